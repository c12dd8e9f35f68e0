"""The history of a reading against brute force: every distillation kept whole, and asked the same questions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ondevice.config import PotConfig
from ondevice.documents import Document, Page
from ondevice.events import HeadCounts, PotDistilled
from ondevice.telemetry.retention_history import NUM_LEVELS, STEPS_PERCENT, RetentionHistory
from tests.builders.models import plain_config
from tests.builders.screens import tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")


def distilled(cycle: int, retention: Any, novel: Any, num_heads: int) -> PotDistilled:
    counts = np.asarray(retention, np.uint16)
    tokens = np.flatnonzero(counts).astype(np.int32)
    held, novelty = HeadCounts(len(counts), tokens, counts[tokens]), np.asarray(novel, np.int32)
    return PotDistilled(cycle, len(counts), 1, 1, (1,), 0.0, 0.0, num_heads, held, novelty)


@st.composite
def readings(draw: Any) -> tuple[int, list[PotDistilled]]:
    """A reading in which counts only fall, and novelty is only ever lost."""
    num_heads = draw(st.integers(1, 200))
    first = draw(st.integers(1, 3))
    counts, novel, events = np.zeros(0, np.int64), np.zeros(0, bool), []
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    for cycle in range(first, first + draw(st.integers(1, 6))):
        new = draw(st.integers(0, 20))
        counts = np.concatenate((counts, np.full(new, num_heads)))
        counts = np.minimum(counts, chance.integers(0, num_heads + 1, len(counts)) * chance.integers(0, 2, len(counts)))
        novel = np.concatenate((novel, np.ones(new, bool))) & (chance.random(len(counts)) < 0.6) & (counts > 0)
        events.append(distilled(cycle, counts, np.flatnonzero(novel), num_heads))
    return num_heads, events


@given(readings(), st.data())
@settings(max_examples=80)
def test_every_moment_of_a_reading_comes_back_exactly(reading: tuple[int, list[PotDistilled]], data: Any) -> None:
    num_heads, events = reading
    history = RetentionHistory()
    for event in events:
        history.apply(event)
    assert (history.first_cycle, history.last_cycle) == (events[0].cycle, events[-1].cycle)
    for event in events:
        size = event.retention.num_tokens
        start = data.draw(st.integers(0, size))
        stop = data.draw(st.integers(start, size + 5))
        levels = [
            sum(100 * int(count) > percent * num_heads for percent in STEPS_PERCENT)
            for count in event.retention.dense()
        ]
        assert history.num_positions(event.cycle) == size
        assert history.levels(start, stop, event.cycle).tolist() == levels[start:stop]
        novel = np.isin(np.arange(size), event.novelty_tokens)
        assert history.is_novel(start, stop, event.cycle).tolist() == novel[start:stop].tolist()
        for level in range(NUM_LEVELS):
            held = [int(count) for count, at in zip(event.retention.dense(), levels, strict=True) if at == level]
            mean = sum(held) / len(held) / num_heads if held else 0.0
            # What was evicted before is no longer looked at, and holds nothing anyway.
            assert history.shares(event.cycle)[level] == pytest.approx(mean, abs=1e-6)


def num_bytes(history: RetentionHistory) -> int:
    """Bytes it takes: `2 * NUM_LEVELS` for each token that it has room for, and a few for each distillation."""
    return history._ended.nbytes + history._alive.nbytes + sum(share.nbytes + 8 for share in history._shares)


def test_bytes_do_not_grow_with_distillations() -> None:
    history, retention = RetentionHistory(), np.full(10_000, 4, np.uint16)
    history.apply(distilled(1, retention, [], 4))
    before = num_bytes(history)
    for cycle in range(2, 102):
        history.apply(distilled(cycle, retention, [], 4))
    per_cycle = (num_bytes(history) - before) / 100
    assert per_cycle < 40
    assert num_bytes(history) - 101 * per_cycle <= 10_000 * (2 * NUM_LEVELS + 8)


def test_it_ends_where_it_would_grow_too_large_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ondevice.telemetry.retention_history.MAX_TOKENS", 100)
    history = RetentionHistory()
    for cycle in range(1, 6):
        history.apply(distilled(cycle, np.ones(30 * cycle), [], 1))
    assert not history.is_complete
    assert history.num_cycles == 3
    assert history.levels(0, 10, 3).tolist() == [4] * 10
    assert num_bytes(history) < 100 * (2 * NUM_LEVELS + 8) + 3 * 40


def test_what_does_not_follow_begins_anew_and_what_is_known_changes_nothing() -> None:
    history = RetentionHistory()
    history.apply(distilled(7, [3, 3], [], 3))
    history.apply(distilled(7, [0, 0], [], 3))
    assert history.levels(0, 2, 7).tolist() == [4, 4]
    history.apply(distilled(9, [1, 3], [], 3))
    assert (history.first_cycle, history.num_cycles) == (9, 1)


def test_it_follows_a_real_reading() -> None:
    config = plain_config(pot=PotConfig(capacity=256, num_kept=64, reserve=96, step_size=64, catalyst="text",
                                        catalyst_text="lamp"))  # fmt: skip
    session = tiny_engine(config).session()
    text = "The lamp was lit at dusk and burned until the morning. " * 12
    history, events = RetentionHistory(), []
    for event in session.read(Document("a", "txt", "part", (Page(1, text),), 1, len(text))):
        if isinstance(event, PotDistilled):
            history.apply(event)
            events.append(event)
    assert len(events) > 3
    for event in events:
        is_kept = history.levels(0, len(text), event.cycle) > 0
        assert is_kept.tolist() == (event.retention.dense() > 0).tolist()
        novel = np.flatnonzero(history.is_novel(0, len(text), event.cycle))
        assert novel.tolist() == np.sort(event.novelty_tokens).tolist()
