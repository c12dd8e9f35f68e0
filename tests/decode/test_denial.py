"""Answers that the document does not seem to have: when one is denied, and that the pot never notices."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ondevice.config import GenerationConfig, PotConfig
from ondevice.decode import denial as denial_module
from ondevice.decode.denial import NOT_THERE, NOT_YET, Judgement, denial
from ondevice.documents import Document, Page
from ondevice.events import AnswerFinished, AnswerToken, Event, TokensRead
from ondevice.session import session as session_module
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from tests.builders.models import plain_config, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "Halvard lit lamp 7 at dusk. The sea was calm. " * 24
QUESTION = "Who lit lamp 7?"
POT = PotConfig(policy="full", capacity=2000, num_kept=100, reserve=400)
ALWAYS, NEVER = -1e9, 1e9


def document_of(text: str) -> Document:
    return Document("text", "pdf", "page", (Page(1, text),), num_pages=1, size_bytes=len(text))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Judges the tiny model as a large one, and denies from this log probability on."""
    monkeypatch.setattr(session_module, "SMALLEST", 0)
    monkeypatch.setattr(denial_module, "_LEAST", request.param)


def session_of(**fields: Any) -> Session:
    fields = {"max_new_tokens": 40, "num_passage_tokens": 0, "stops_loops": False, **fields}
    config = plain_config(pot=POT, generation=GenerationConfig(**fields))
    return Engine(tiny_loaded(max_positions=4096), config).session()


def asked(session: Session, question: str = QUESTION, **given: Any) -> tuple[list[Event], AnswerFinished]:
    events = list(session.ask(question, **given))
    assert isinstance(events[-1], AnswerFinished)
    return events, events[-1]


def test_a_denial_is_the_log_probability_of_its_sentence() -> None:
    session = session_of()
    list(session.read(document_of(TEXT)))
    context, decoder = session.context, session.context.decoder
    asks, says = context.chat.question(QUESTION), context.loaded.tokenizer.encode(NOT_THERE)[0].tolist()
    expected = 0.0
    with context.pot.savepoint():
        out = decoder.forward(decoder.ids(asks), context.pot)
        found = denial(decoder, context.pot, out.hidden_states[:, -1:], says, lambda: False)
        for token in says:  # one after the other
            expected += float(decoder.head.logits(out.hidden_states[:, -1]).float().log_softmax(-1)[0, token])
            out = decoder.forward(decoder.ids([token]), context.pot)
    assert found == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("judged", [ALWAYS], indirect=True)
def test_what_is_denied_says_so_and_the_pot_never_notices(judged: None) -> None:
    session = session_of()
    list(session.read(document_of(TEXT)))
    before = [tensor.clone() for tensor in session.context.pot.buffers()]
    events, answer = asked(session)
    assert (answer.text, answer.stop_reason) == (NOT_THERE, "not_found")
    assert "".join(event.text for event in events if isinstance(event, AnswerToken)) == NOT_THERE
    assert not answer.sources.passages
    assert answer.num_tokens == len(session.context.loaded.tokenizer.encode(NOT_THERE)[0])
    assert 0 < answer.ttft_seconds <= answer.seconds
    assert all(torch.equal(*pair) for pair in zip(before, session.context.pot.buffers(), strict=True))


@pytest.mark.parametrize("judged", [NEVER], indirect=True)
def test_a_judgement_changes_no_answer_that_it_lets_pass(judged: None, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of()
    list(session.read(document_of(TEXT)))
    text = asked(session)[1].text
    monkeypatch.setattr(session_module, "SMALLEST", 10_000)
    assert asked(session)[1].text == text


@pytest.mark.parametrize("judged", [ALWAYS], indirect=True)
def test_before_all_is_read_nothing_is_said_to_be_missing(judged: None) -> None:
    session = session_of(num_passage_tokens=200)
    reading = session.read(document_of(TEXT))
    while not isinstance(next(reading), TokensRead):
        pass
    assert session.context.spans
    assert asked(session)[1].text == NOT_YET


@pytest.mark.parametrize("judged", [ALWAYS], indirect=True)
@pytest.mark.parametrize("question", ["Summarise the document.", "What is on page 1?", "How many pages are there?"])
def test_questions_about_the_whole_or_a_place_are_not_judged(judged: None, question: str) -> None:
    session = session_of()
    list(session.read(document_of(TEXT)))
    assert asked(session, question)[1].stop_reason != "not_found"


@pytest.mark.parametrize("judged", [ALWAYS], indirect=True)
def test_free_answers_and_those_that_are_begun_are_not_judged(judged: None) -> None:
    session = session_of()
    list(session.read(document_of(TEXT)))
    assert asked(session, begun=[5, 6])[1].stop_reason != "not_found"
    free = session_of(grounded=False)
    list(free.read(document_of(TEXT)))
    assert asked(free)[1].stop_reason != "not_found"


@pytest.mark.parametrize("judged", [ALWAYS], indirect=True)
def test_a_question_in_another_language_is_not_judged(judged: None) -> None:
    session = session_of()
    list(session.read(document_of(TEXT)))
    assert asked(session, "Wer hat die siebte Lampe angezündet?")[1].stop_reason != "not_found"


def test_the_more_of_its_words_stand_there_the_surer_a_denial_has_to_be() -> None:
    nothing, half, everything = (Judgement(NOT_THERE, share) for share in (0.0, 0.5, 1.0))
    assert nothing.denies(-20.0)
    assert half.denies(-6.0)
    assert not half.denies(-20.0)
    assert not everything.denies(-6.0)


def test_a_name_that_the_document_lacks_makes_a_denial_likelier() -> None:
    assert Judgement(NOT_THERE, 0.5, lacks=True).denies(-20.0)
    assert not Judgement(NOT_THERE, 0.5, lacks=True).denies(-40.0)


@pytest.mark.parametrize("judged", [ALWAYS], indirect=True)
def test_a_question_to_a_short_text_is_not_judged(judged: None) -> None:
    session = session_of()
    list(session.read(document_of(TEXT[:400])))
    assert asked(session)[1].stop_reason != "not_found"


def test_a_small_model_is_not_judged() -> None:
    session = session_of()
    list(session.read(document_of(TEXT)))
    assert asked(session)[1].stop_reason != "not_found"
