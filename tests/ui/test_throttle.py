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


@pytest.mark.parametrize("urgent_share", [0.0, 0.3, 1.0])
def test_no_second_has_more_than_five_updates(urgent_share: float) -> None:
    clock, chance = Clock(), random.Random(0)
    throttle = Throttle(clock=clock)
    sent = []
    for _ in range(5000):
        clock.now += chance.expovariate(60)
        if throttle.allows(urgent=chance.random() < urgent_share):
            sent.append(clock.now)
    assert len(sent) > 100
    busiest = max(sum(start <= time < start + 1 for time in sent) for start in sent)
    assert busiest <= 4, "the fifth is the last state, which is sent without asking"


def test_updates_are_spread_evenly() -> None:
    clock = Clock()
    throttle = Throttle(per_second=10, clock=clock)
    sent = []
    for _ in range(100):
        clock.now += 0.02
        if throttle.allows():
            sent.append(clock.now)
    gaps = [later - earlier for earlier, later in pairwise(sent)]
    assert min(gaps) >= 0.1 - 1e-9
    assert max(gaps) < 0.2


def test_an_urgent_update_follows_at_once_and_a_common_one_waits() -> None:
    clock = Clock()
    throttle = Throttle(clock=clock)
    assert throttle.allows()
    clock.now += 0.001
    assert not throttle.allows()
    assert throttle.allows(urgent=True)


def test_a_slow_source_is_never_held_back() -> None:
    clock = Clock()
    throttle = Throttle(clock=clock)
    for _ in range(20):
        clock.now += 1.5
        assert throttle.allows()
