"""Answers that the document does not seem to give: when one is refused, and that nothing of it is left."""

from __future__ import annotations

import pytest
import torch

from ondevice.config import GenerationConfig, PotConfig
from ondevice.decode import certainty
from ondevice.decode.certainty import LEAST, MOST_TOKENS, NOT_THERE, NOT_YET, Certainty
from ondevice.documents import Document, Page
from ondevice.events import AnswerFinished, AnswerToken, Event, TokensRead
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from tests.builders.models import plain_config, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "Halvard lit lamp 7 at dusk. The sea was calm. " * 12
QUESTION = "Who lit lamp 7?"


def noted(*log_probabilities: float) -> Certainty:
    judge = Certainty(QUESTION, [TEXT], NOT_THERE)
    for value in log_probabilities:
        likely = torch.tensor(value).exp()
        judge.note(torch.stack([likely, 1 - likely]).log()[None], 0)
    return judge


def test_an_answer_of_unlikely_tokens_fails() -> None:
    assert not noted(LEAST / 2, LEAST).fails("Halvard")
    assert noted(LEAST / 2, 2 * LEAST).fails("Halvard")


def test_only_the_first_tokens_count() -> None:
    judge = noted(*[LEAST / 2] * MOST_TOKENS)
    assert judge.is_settled
    for _ in range(100):
        judge.note(torch.tensor([[-9.0, 9.0]]), 0)
    assert not judge.fails("Halvard")
    assert not noted(*[LEAST / 2] * (MOST_TOKENS - 1)).is_settled


@pytest.mark.parametrize(("text", "fails"), [("Halvard", False), ("Ingrid", True), ("", True), ("Yes", False)])
def test_a_sure_answer_fails_where_all_that_it_says_is_from_elsewhere(text: str, fails: bool) -> None:
    assert noted(LEAST / 2).fails(text) == fails


def document_of(text: str) -> Document:
    return Document("text", "pdf", "page", (Page(1, text),), num_pages=1, size_bytes=len(text))


def session_of(**fields: object) -> Session:
    pot = PotConfig(policy="full", capacity=2000, num_kept=100, reserve=400)
    fields = {"max_new_tokens": 40, "num_passage_tokens": 0, "stops_loops": False, **fields}
    generation = GenerationConfig(**fields)  # type: ignore[arg-type]
    return Engine(tiny_loaded(max_positions=4096), plain_config(pot=pot, generation=generation)).session()


def asked(session: Session, question: str = QUESTION) -> tuple[list[Event], AnswerFinished]:
    events = list(session.ask(question))
    assert isinstance(events[-1], AnswerFinished)
    return events, events[-1]


def test_what_is_refused_says_so_from_its_first_word_on_and_the_pot_never_notices() -> None:
    session = session_of()
    list(session.read(document_of(TEXT)))
    before = [tensor.clone() for tensor in session.context.pot.buffers()]
    events, answer = asked(session)
    assert (answer.text, answer.stop_reason) == (NOT_THERE, "not_found"), "a model of random weights is never sure"
    assert "".join(event.text for event in events if isinstance(event, AnswerToken)) == NOT_THERE
    assert not answer.sources.passages
    assert all(torch.equal(*pair) for pair in zip(before, session.context.pot.buffers(), strict=True))


def test_a_sure_model_answers_as_without_judgement(monkeypatch: pytest.MonkeyPatch) -> None:
    judged, free = session_of(), session_of(grounded=False)
    monkeypatch.setattr(certainty, "LEAST", -1e9)
    monkeypatch.setattr(certainty, "are_all_unfounded", lambda *given: False)
    for session in (judged, free):
        list(session.read(document_of(TEXT)))
    events, answer = asked(judged)
    assert answer.stop_reason == "length"
    assert [event.index for event in events if isinstance(event, AnswerToken)] == list(range(40))
    assert 0 < answer.ttft_seconds <= answer.seconds
    assert asked(free)[1].stop_reason == "length"


def test_before_all_is_read_nothing_is_said_to_be_missing() -> None:
    session = session_of(num_passage_tokens=200)
    reading = session.read(document_of(TEXT))
    while not isinstance(next(reading), TokensRead):
        pass
    assert session.context.spans
    assert asked(session)[1].text == NOT_YET


@pytest.mark.parametrize("question", ["Summarise the document.", "What is on page 1?", "How many pages are there?"])
def test_questions_about_the_whole_or_a_place_are_not_judged(question: str) -> None:
    session = session_of()
    list(session.read(document_of(TEXT)))
    assert asked(session, question)[1].stop_reason != "not_found"


def test_who_asks_for_free_answers_gets_them() -> None:
    session = session_of(grounded=False)
    list(session.read(document_of(TEXT)))
    assert asked(session)[1].stop_reason == "length"
