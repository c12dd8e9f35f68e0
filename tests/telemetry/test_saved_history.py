"""The history of a reading on disk: it comes back as it was, and nothing else is believed."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ondevice.telemetry.retention_history import RetentionHistory, history_of, history_record
from tests.telemetry.test_retention_history import distilled, readings


def told(history: RetentionHistory) -> list[Any]:
    return [
        (
            cycle,
            history.num_positions(cycle),
            history.levels(0, 10_000, cycle).tolist(),
            history.is_novel(0, 10_000, cycle).tolist(),
            np.round(history.shares(cycle), 5).tolist(),
        )
        for cycle in range(history.first_cycle, history.last_cycle + 1)
    ]


def history_after(events: list[Any]) -> RetentionHistory:
    history = RetentionHistory()
    for event in events:
        history.apply(event)
    return history


@given(readings(), st.integers(0, 5))
@settings(max_examples=60)
def test_it_comes_back_as_of_any_selection_and_goes_on(reading: Any, left: int) -> None:
    """Also where the pot on disk is of an earlier selection than the record beside it."""
    _, events = reading
    assume(events[0].retention.num_tokens)
    whole = history_after(events)
    record = json.loads(json.dumps(history_record(whole)))
    last = max(events[0].cycle, events[-1].cycle - left)
    restored = history_of(record, events[-1].retention.num_tokens, last)
    upto = [event for event in events if event.cycle <= last]
    assert [one[:4] for one in told(restored)] == [one[:4] for one in told(history_after(upto))]
    for event in events[len(upto) :]:
        restored.apply(event)
    for one, other in zip(told(restored), told(whole), strict=True):
        assert one[:4] == other[:4]
        assert one[4] == pytest.approx(other[4], abs=1e-4)


def test_a_pot_that_has_not_been_full_has_none() -> None:
    assert history_record(RetentionHistory()) == {}
    for record in ({}, None, [], "x", 7):
        assert history_of(record, 100, 1).num_cycles == 0


@pytest.mark.parametrize(
    "change",
    [
        {"ended": "AAAA"}, {"ended": "no base64"}, {"ended": 5}, {"num_positions": [10, 5]}, {"num_positions": []},
        {"num_positions": [10, 10**9]}, {"num_positions": [True, 10]}, {"num_positions": [5, 8.0]},
        {"shares": [[0.0] * 5]}, {"shares": [[0, 0, 0, 0, 7]] * 2}, {"shares": [[None] * 5] * 2}, {"shares": "x"},
        {"first_cycle": 0}, {"first_cycle": -3}, {"first_cycle": "1"}, {"is_complete": 1},
    ],
)  # fmt: skip
def test_what_no_reading_leaves_is_taken_for_none(change: dict[str, Any]) -> None:
    chance = np.random.default_rng(0)
    first = chance.integers(0, 7, 10)
    record = history_record(
        history_after([distilled(1, first, [], 6), distilled(2, np.append(first // 2, [6] * 5), [2], 6)])
    )
    assert history_of(record, 15, 2).num_cycles == 2
    assert history_of(record | change, 15, 2).num_cycles == 0


def test_a_record_that_unpacks_to_more_than_its_document_has_is_not_unpacked() -> None:
    record = history_record(history_after([distilled(1, [3, 0, 6], [], 6)]))
    bomb = base64.b64encode(zlib.compress(bytes(100_000_000))).decode()
    assert history_of(record | {"ended": bomb}, 3, 1).num_cycles <= 1


def test_a_long_document_takes_little() -> None:
    """Half a million tokens, of which few change at a selection: kilobytes, not megabytes."""
    chance, events, counts = np.random.default_rng(0), [], np.zeros(0, np.int64)
    for cycle in range(1, 41):
        counts = np.append(np.where(chance.random(len(counts)) < 0.5, 0, counts), chance.integers(0, 2, 12_500) * 6)
        events.append(distilled(cycle, counts, [], 6))
    record = history_record(history_after(events))
    assert len(record["ended"]) < 2_000_000
    assert history_of(record, 500_000, 40).num_cycles == 40
