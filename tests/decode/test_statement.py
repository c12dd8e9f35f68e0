"""Questions for yes or no: which they are, what their answers may not open with, and that they then state the fact."""

from __future__ import annotations

import pytest

from ondevice.decode.statement import barred
from ondevice.documents import Document, Page
from ondevice.events import AnswerFinished
from ondevice.session.engine import Engine
from tests.builders.models import byte_tokenizer, default_model, plain_config, plain_generation


@pytest.mark.parametrize(
    "question",
    [
        "Are pets allowed in the cabin?",
        "may it lift 25 tons ?",
        "The crane is old. Was it built by Visby Works?",
        "And does that cost more?",
        "Sind Haustiere erlaubt?",
        "¿Está incluida la electricidad?",
    ],
)
def test_an_answer_to_a_question_for_yes_or_no_opens_with_neither(question: str) -> None:
    tokenizer = default_model().tokenizer
    assert {"Yes", "No", " yes"} <= {tokenizer.decode([token]) for token in barred(question, tokenizer)}


@pytest.mark.parametrize(
    "question",
    [
        "Who is allowed in the cabin?",
        "How much may it lift?",
        "Are pets allowed? Answer with yes or no.",
        "Are pets allowed, yes or no?",
        "Were both born in Norway?\nAnswer in a few words.",
        "Is it old? Explain.",
        "",
    ],
)
def test_any_other_answer_opens_as_it_will(question: str) -> None:
    assert barred(question, default_model().tokenizer) == []


def test_words_of_several_tokens_are_not_barred_for_their_first_letter() -> None:
    assert barred("Are pets allowed?", byte_tokenizer()) == []


def test_the_model_states_what_it_read() -> None:
    text = "Anna likes tea. Anna has two cats. Anna does not have a dog."
    generation = plain_generation(max_new_tokens=12, grounded=True, chat=True)
    session = Engine(default_model(), plain_config(generation=generation)).session()
    list(session.read(Document("Anna", "txt", "part", (Page(1, text),), 1, len(text))))
    *_, last = session.ask("Does Anna have a dog?")
    assert isinstance(last, AnswerFinished)
    assert last.text == "Anna does not have a dog.", "and not: No, Anna does not have a dog."
