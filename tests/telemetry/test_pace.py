"""The time of what is left, where every pass takes longer than the one before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondevice.events import TokensRead
from ondevice.telemetry.telemetry import Pace, Telemetry

STEP = 100


def seconds_of(start: int, stop: int, token: float, slot: float) -> float:
    """Of tokens [start, stop), each of which takes its time, and more for each one before it."""
    return (stop - start) * token + slot * (stop**2 - start**2) / 2


@given(st.floats(1e-4, 1.0), st.floats(0.0, 1e-4), st.integers(2, 40))
def test_a_tenth_tells_the_rest(token: float, slot: float, num_passes: int) -> None:
    pace = Pace()
    for at in range(0, num_passes * STEP, STEP):
        pace.note(STEP, seconds_of(at, at + STEP, token, slot), at + STEP)
    read, end = num_passes * STEP, 10 * num_passes * STEP
    assert pace.seconds(end - read, read) == pytest.approx(seconds_of(read, end, token, slot), rel=0.05)


def test_nothing_is_known_before_the_first_pass_and_one_pass_tells_no_slowing() -> None:
    pace = Pace()
    assert pace.seconds(1000, 0) == 0.0
    pace.note(STEP, 2.0, STEP)
    assert pace.slowing == 0.0
    assert pace.seconds(STEP, STEP) == pytest.approx(2.0)


def test_a_reading_that_becomes_faster_is_not_taken_to_end_before_now() -> None:
    pace = Pace()
    for at, seconds in enumerate((3.0, 2.0, 1.0), 1):
        pace.note(STEP, seconds, at * STEP)
    assert pace.seconds(10_000, 3 * STEP) > 0


def test_what_is_left_slows_down_until_the_pot_is_full() -> None:
    telemetry = Telemetry()
    for at in range(0, 500, STEP):
        telemetry.apply(
            TokensRead(at + STEP, 2000, STEP, 1, seconds_of(at, at + STEP, 0.01, 1e-4), (at + STEP,), capacity=1000)
        )
    grows, speed = seconds_of(500, 1000, 0.01, 1e-4), telemetry.tokens_per_second
    assert telemetry.eta_seconds == pytest.approx(grows + 1000 / speed)
    telemetry.num_cycles = 1  # it has been full: as many slots as now are in use from then on
    assert telemetry.eta_seconds == pytest.approx(1500 / speed)
