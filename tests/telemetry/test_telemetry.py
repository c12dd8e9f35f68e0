"""Folding events into numbers: progress, speed, time by stage."""

from __future__ import annotations

import numpy as np
import pytest

from ondevice.events import (
    AnswerFinished,
    DocumentRead,
    HeadCounts,
    Ledger,
    PotDistilled,
    QuestionRead,
    TextTokenized,
    TokensChosen,
    TokensOffloaded,
    TokensRead,
)
from ondevice.telemetry.telemetry import STAGES, Telemetry


def read(num_read: int, num_tokens: int, seconds: float, num_total: int | None = 1000) -> TokensRead:
    return TokensRead(num_read, num_total, num_tokens, 3, seconds, (num_read, num_read), 256)


def distilled(seconds: float = 0.5, novelty_seconds: float = 0.5) -> PotDistilled:
    retention = HeadCounts(3, np.array([0, 2], np.int32), np.array([4, 1], np.uint16))
    novelty = np.array([2], np.int32)
    return PotDistilled(1, 3, 250, 100, (100, 100), seconds, novelty_seconds, 4, retention, novelty)


def finished(**stage_seconds: float) -> AnswerFinished:
    ledger = Ledger(tokens_total=3, tokens_read=3)
    return AnswerFinished("q", "a b", 20, "end", 0.2, 1.5, 0, ledger, stage_seconds=stage_seconds)


def folded(*events: object) -> Telemetry:
    telemetry = Telemetry()
    for event in events:
        telemetry.apply(event)
    return telemetry


def test_nothing_is_claimed_before_anything_has_happened() -> None:
    telemetry = Telemetry()
    assert telemetry.tokens_per_second == 0.0
    assert telemetry.eta_seconds is None
    assert telemetry.ingest_seconds == 0.0


def test_speed_counts_the_distillations_between_the_passes() -> None:
    telemetry = folded(read(100, 100, 1.0), distilled(0.5, 0.5), read(200, 100, 2.0))
    assert telemetry.tokens_per_second == pytest.approx(200 / 4.0)
    assert telemetry.eta_seconds == pytest.approx(800 / 50)


def test_speed_is_that_of_the_last_passes_only() -> None:
    slow, fast = [read(i, 10, 10.0) for i in range(20)], [read(i, 100, 1.0) for i in range(8)]
    assert folded(*slow, *fast).tokens_per_second == pytest.approx(100.0)


def test_skipped_tokens_are_passed_but_not_read() -> None:
    passes = [TokensRead(n, 1000, 50, 3, 1.0, (n,), 256, num_skipped=3 * n) for n in (50, 100)]
    telemetry = folded(*passes)
    assert (telemetry.num_read, telemetry.num_skipped, telemetry.num_passed) == (100, 300, 400)
    assert telemetry.tokens_per_second == pytest.approx(200.0)
    assert telemetry.eta_seconds == pytest.approx(3.0)


def test_an_open_stream_has_no_time_left_to_tell() -> None:
    assert folded(read(100, 100, 1.0, num_total=None)).eta_seconds is None


def test_every_second_belongs_to_one_stage() -> None:
    telemetry = folded(
        TextTokenized(1, 2, 500, 0.1),
        TextTokenized(2, 2, 1000, 0.3),
        TokensChosen(0, 250, np.array([[0, 200]], np.int32), 200, 0.8),
        read(100, 100, 1.0),
        read(200, 100, 2.0),
        distilled(0.4, 0.6),
        TokensOffloaded(200, 5000, 0.9, 0.1),
        DocumentRead(Ledger(), 6.0, 1, 4, {"measure": 9.0, "other": 0.3}),
        QuestionRead("q", 5),
        finished(question=0.7, search=0.15, look=0.9, revival=0.2, write=1.5, sources=0.25, finish=0.05),
        finished(question=0.1, write=1.0),
    )
    assert tuple(telemetry.stage_seconds) == STAGES
    assert telemetry.stage_seconds == pytest.approx(
        {
            "tokenize": 0.3,
            "measure": 9.0,
            "speculate": 0.8,
            "forward": 3.0,
            "novelty": 0.6,
            "distill": 0.4,
            "offload": 0.1,
            "other": 0.3,
            "question": 0.8,
            "search": 0.15,
            "look": 0.9,
            "revival": 0.2,
            "write": 2.5,
            "sources": 0.25,
            "finish": 0.05,
        }
    )
    assert telemetry.ingest_seconds == pytest.approx(5.5)
    assert telemetry.offload_hidden_seconds == pytest.approx(0.8)


def test_a_distillation_empties_the_gauge() -> None:
    telemetry = folded(read(250, 250, 1.0), distilled())
    assert telemetry.num_cached == (100, 100)
    assert telemetry.num_cycles == 1


def test_the_final_account_gives_the_total_of_a_stream() -> None:
    ledger = Ledger(tokens_total=345, tokens_read=345)
    end = DocumentRead(ledger, 2.0, 1, 4)
    telemetry = folded(read(345, 345, 1.0, num_total=None), end)
    assert telemetry.num_total == 345
