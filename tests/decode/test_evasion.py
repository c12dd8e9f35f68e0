"""Answers that do not answer, and right ones that might be taken for such."""

from __future__ import annotations

import pytest

from ondevice.decode.evasion import evasion
from ondevice.decode.prompt import Turn


@pytest.mark.parametrize(
    ("lacks", "question", "answer"),
    [
        ("number", "How tall is the lighthouse of Skarv?", "The lighthouse of Skarv is named after a bird."),
        (
            "number",
            "How much would a second lamp cost?",
            "The document states that a second lamp would be pretty expensive.",
        ),
        ("number", "How many prisms has lens 2?", "Lens 2 has prisms."),  # the number of the question is no answer
        ("number", "And how many rooms are there?", "The rooms are on the upper floor."),
        ("number", "What percentage of the keepers left?", "The keepers left for the mainland."),
        ("number", "Wie viele Tage Urlaub gibt es?", "Der Urlaub richtet sich nach dem Gesetz."),
        ("time", "When was the log recorded?", "The log was recorded in English by two keepers."),
        ("time", "In which year did Nathan move to Bergen?", "Nathan moved to Bergen with his brother."),
        ("time", "Wann wurde der Turm gebaut?", "Der Turm wurde aus Stein gebaut."),
        ("question", "Which kind of lens does the tower use?", "The tower uses a kind of lens."),
        ("question", "What subject did Ron study in Victoria?", "Ron studied in Victoria."),
        ("question", "What is Nathan's last name?", "Nathan"),
        ("question", "From which company's offices did the letters come?", "The letters came from offices."),
        ("question", "Wer war der Wärter von Skarv?", "Der Wärter von Skarv war der Wärter."),
        ("time", "When was the log recorded?", "The log was recorded by a novelist."),  # no November
    ],
)
def test_what_each_answer_has_is_lacking(lacks: str, question: str, answer: str) -> None:
    assert evasion(answer, question) == lacks


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How many prisms has it?", "224"),
        ("How many prisms has it?", "It has none."),
        ("How many keepers were there?", "There were three keepers."),
        ("How much money did the lamp cost?", "A few thousand crowns."),
        ("How old is Sigrun?", "She is twenty-four."),
        ("How much of it is lost?", "Some of the oil."),  # a share may be told in any words
        ("How long may the tenant stay?", "Until the end of the lease."),
        ("Wie viele Wärter gab es?", "Es gab dreiundzwanzig Wärter."),
        ("Wie alt ist sie?", "Sie ist zwölf Jahre alt."),
        ("When was it lit?", "After the war."),
        ("When was it lit?", "On a Tuesday."),
        ("How much is known of it?", "Little is known of it."),
        ("When are pets allowed?", "With the consent of the landlord."),
        ("Wann darf man kündigen?", "Mit Zustimmung des Vermieters."),
        ("When does the tenant pay?", "The first rent comes with the keys."),  # on which terms, not which day
        ("In what year was it lit?", "In 1886."),
        ("Wann wurde er gebaut?", "Während des Krieges."),
        ("Who kept the light, Aas or Brekke?", "Brekke kept the light."),
        ("Which of the keepers was older?", "Sigrun"),
        ("Are there pets?", "There are pets."),
        ("What is the keeper's name?", "Sigrun Aas"),
        ("What does the document say of pets?", "Pets are not allowed."),
        ("Who was it?", "That is not in the document."),
        ("Qui était le gardien ?", "Le gardien."),
        ("How many prisms has it?", ""),
    ],
)
def test_what_may_be_an_answer_is_not_doubted(question: str, answer: str) -> None:
    assert evasion(answer, question) == ""


def test_a_long_question_brings_its_own_text_and_a_long_word_takes_no_time() -> None:
    assert evasion("The tower.", f"{'The tower stands. ' * 40}What is it called?") == ""
    assert evasion(f"{'a' * 50_000} {'b-' * 50_000}", "How many rooms are there?") == "number"


def test_what_does_not_answer_is_not_remembered() -> None:
    question, answer = "How many rooms are there?", "The rooms are on the upper floor."
    assert not Turn.of(question, answer, 0, evasion(answer, question)).answer
    assert Turn.of(question, "There are two.", 0, evasion("There are two.", question)).answer
