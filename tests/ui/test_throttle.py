"""The browser gets at most five updates in any second, and never waits for an urgent one."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from ondevice.ui.throttle import Throttle


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("ondevice.ui.throttle.monotonic", clock)
    return clock


@pytest.mark.parametrize("urgent_share", [0.0, 0.3, 1.0])
def test_no_second_has_more_than_five_updates(clock: Clock, urgent_share: float) -> None:
    chance = random.Random(0)
    throttle = Throttle()
    sent = []
    for _ in range(5000):
        clock.now += chance.expovariate(60)
        if throttle.allows(urgent=chance.random() < urgent_share):
            sent.append(clock.now)
    assert len(sent) > 100
    busiest = max(sum(start <= time < start + 1 for time in sent) for start in sent)
    assert busiest <= 4, "the fifth is the last state, which is sent without asking"


def test_updates_are_spread_evenly(clock: Clock) -> None:
    throttle = Throttle()
    sent = []
    for _ in range(100):
        clock.now += 0.02
        if throttle.allows():
            sent.append(clock.now)
    gaps = [later - earlier for earlier, later in pairwise(sent)]
    assert min(gaps) >= 0.25 - 1e-9
    assert max(gaps) < 0.3


def test_an_urgent_update_follows_at_once_and_a_common_one_waits(clock: Clock) -> None:
    throttle = Throttle()
    assert throttle.allows()
    clock.now += 0.001
    assert not throttle.allows()
    assert throttle.allows(urgent=True)


def test_a_slow_source_is_never_held_back(clock: Clock) -> None:
    throttle = Throttle()
    for _ in range(20):
        clock.now += 1.5
        assert throttle.allows()
