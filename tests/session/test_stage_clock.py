"""Stages of reading and answering, which add up to the wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ondevice.config import PotConfig, TierConfig
from ondevice.decode.host_recall import HostRecall
from ondevice.documents import Document, Page
from ondevice.events import AnswerFinished, AnswerToken, DocumentRead, Event, PotDistilled, TokensRead, TokensRecalled
from ondevice.model.decoder import Decoder
from ondevice.prefill.reader import Reader
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from ondevice.telemetry.telemetry import Telemetry
from tests.builders.models import plain_config, plain_generation, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(60))
POT = PotConfig(capacity=400, num_kept=160, reserve=160, step_size=60)
TIER = TierConfig(budget_bytes=1_000_000, max_tokens=64, every=8)
PAUSE = 0.2  # seconds that a stage is made to take; nothing else in these tests takes as long
NEAR = 0.1  # seconds by which two readings of the clock may differ


def session_of(**fields: Any) -> Session:
    settings = {"pot": POT, "tier": TIER, "generation": plain_generation(max_new_tokens=40), **fields}
    return Engine(tiny_loaded(), plain_config(**settings)).session()


def document() -> Document:
    return Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))


def slower(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, taking longer."""

    def run(*args: Any, **options: Any) -> Any:
        time.sleep(PAUSE)
        return method(*args, **options)

    return run


def timed(events: Iterator[Event]) -> tuple[list[Event], list[float]]:
    """Events, and the seconds after which each of them came."""
    began, seen, at = time.perf_counter(), list[Event](), list[float]()
    for event in events:
        seen.append(event)
        at.append(time.perf_counter() - began)
    return seen, at


@pytest.mark.parametrize("recalls", [False, True])
def test_a_look_is_a_stage_of_its_own_whether_it_recalls_or_not(recalls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of()
    list(session.read(document()))
    list(session.ask("Which lamp?"))  # whatever is compiled or laid out once is
    look = HostRecall.wants_others if recalls else lambda *_, **__: False
    monkeypatch.setattr(HostRecall, "wants_others", slower(look))
    events, at = timed(session.ask("Which lamp did keeper 7 light?"))
    finished = events[-1]
    assert isinstance(finished, AnswerFinished)
    written = [when for event, when in zip(events, at, strict=True) if isinstance(event, AnswerToken)]
    num_looks = (finished.num_tokens - 1) // TIER.every  # beside the one before the first token
    assert num_looks > 3
    assert finished.ttft_seconds == pytest.approx(written[0], abs=NEAR)
    assert finished.decode_seconds == pytest.approx(written[-1] - written[0], abs=NEAR)
    assert finished.tokens_per_second == pytest.approx((len(written) - 1) / (written[-1] - written[0]), rel=0.1)
    assert finished.seconds == pytest.approx(at[-1], abs=NEAR)
    assert finished.stage_seconds["look"] >= (num_looks + 1) * PAUSE
    assert finished.stage_seconds["write"] < num_looks * PAUSE
    assert any(isinstance(event, TokensRecalled) for event in events) == recalls
    assert sum(finished.to_json()["stage_seconds"].values()) == finished.to_json()["seconds"]


@pytest.mark.parametrize("num_tokens", [2, 15, 16])
def test_a_few_tokens_have_no_speed(num_tokens: int) -> None:
    session = session_of(generation=plain_generation(max_new_tokens=num_tokens))
    list(session.read(document()))
    finished = list(session.ask("Which lamp?"))[-1]
    assert isinstance(finished, AnswerFinished)
    assert finished.num_tokens == num_tokens
    assert (finished.tokens_per_second is None) == (num_tokens < 16)
    assert finished.to_json()["decode_tokens_per_second"] == finished.tokens_per_second


def test_an_answer_that_was_stopped_adds_up_too() -> None:
    session, telemetry = session_of(), Telemetry()
    list(session.read(document()))
    began = time.perf_counter()
    for event in session.ask("Which lamp?"):
        telemetry.apply(event)
        if isinstance(event, AnswerToken):
            time.sleep(PAUSE)
            session.stop()
    passed = time.perf_counter() - began
    assert isinstance(event, AnswerFinished)
    assert event.stop_reason == "cancelled"
    assert sum(telemetry.stage_seconds.values()) == pytest.approx(passed, abs=NEAR)


def test_reading_adds_up_with_what_lies_between_its_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    session, telemetry = session_of(), Telemetry()
    monkeypatch.setattr(Reader, "score_novelty", slower(Reader.score_novelty))
    began = time.perf_counter()
    for event in session.read(document()):
        telemetry.apply(event)
        if isinstance(event, PotDistilled):
            time.sleep(PAUSE)  # as for a program that saves what was read so far
    passed = time.perf_counter() - began
    seconds = telemetry.stage_seconds
    assert telemetry.num_cycles > 3
    assert seconds["novelty"] >= telemetry.num_cycles * PAUSE
    assert seconds["distill"] < PAUSE
    assert seconds["other"] >= telemetry.num_cycles * PAUSE
    assert telemetry.ingest_seconds == pytest.approx(passed, abs=NEAR)
    assert sum(seconds.values()) == pytest.approx(passed, abs=NEAR)


def test_an_answer_in_the_middle_of_reading_is_none_of_its_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    session, telemetry = session_of(), Telemetry()
    monkeypatch.setattr(HostRecall, "wants_others", slower(HostRecall.wants_others))
    is_asked, answering = False, 0.0
    began = time.perf_counter()
    for event in session.read(document()):
        telemetry.apply(event)
        if isinstance(event, TokensRead) and telemetry.num_cycles and not is_asked:
            is_asked, asked = True, time.perf_counter()
            for one in session.ask("Which lamp?"):
                telemetry.apply(one)
            answering = time.perf_counter() - asked
    passed = time.perf_counter() - began
    assert answering > PAUSE
    assert sum(telemetry.stage_seconds.values()) == pytest.approx(passed, abs=NEAR)
    assert telemetry.ingest_seconds == pytest.approx(passed - answering, abs=NEAR)


def test_what_a_device_still_computes_belongs_to_the_stage_that_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, which goes on after a call has returned; here novelty alone is so slow."""
    pending = [0.0]

    def wait(_: Decoder) -> None:
        time.sleep(pending[0])
        pending[0] = 0.0

    def score(_: Reader) -> None:
        pending[0] += PAUSE

    monkeypatch.setattr(Decoder, "synchronize", wait)
    monkeypatch.setattr(Reader, "score_novelty", score)
    distilled = [event for event in session_of().read(document()) if isinstance(event, PotDistilled)]
    assert distilled
    for event in distilled:
        assert event.novelty_seconds >= PAUSE
        assert event.seconds < PAUSE


def test_a_pause_between_two_readings_is_no_time_of_reading() -> None:
    session, telemetry = session_of(), Telemetry()
    for event in session.read(document()):
        telemetry.apply(event)
        if isinstance(event, TokensRead):
            session.stop()
    time.sleep(PAUSE)
    began = time.perf_counter()
    before = telemetry.ingest_seconds
    for event in session.resume():
        telemetry.apply(event)
    passed = time.perf_counter() - began
    assert isinstance(event, DocumentRead)
    assert event.ledger.tokens_unread == 0
    assert telemetry.ingest_seconds - before == pytest.approx(passed, abs=NEAR)
