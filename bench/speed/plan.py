"""Memory and speed that a session was planned to have, beside what it has, for pots of several sizes.

The machine is measured before and after, since such machines change their speed while one looks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ondevice.config import EngineConfig
from ondevice.model.loading.placement import choose_device
from ondevice.planning.footprint import MemoryPlan
from ondevice.planning.machines import this_machine
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.foreseen import foreseen_speed
from ondevice_bench.speed.processes import in_its_own_process
from ondevice_bench.speed.rates import rates_of
from ondevice_bench.speed.trial import POTS, Taken, take

CAPACITIES, QUICK_CAPACITIES = (1024, 4096, 8192), (1024,)
_KEYS = {"peak memory": "peak", "reading speed": "reading", "answering speed": "decoding"}  # in the summary


Speeds = tuple[float, float]  # tokens a second of reading and of answering


def speeds(config: EngineConfig, num_tokens: int) -> Speeds | None:
    """As the roofline of this machine says, measured now; None where they cannot be told before."""
    device = choose_device(config.device)
    made = MemoryPlan(config, this_machine(device), num_tokens)
    rates = rates_of(made.plan, device.type, again=True)
    speed = foreseen_speed(made.plan, rates, num_tokens) if rates is not None else None
    return None if speed is None else (speed.reading, speed.answering)


def _rows(config: EngineConfig, taken: Taken, before: Speeds | None, after: Speeds | None) -> list[Row]:
    case = {"slots": config.pot.capacity, "tokens": taken.num_tokens}
    metrics = [("peak memory", "bytes", float(taken.predicted_bytes), float(taken.peak_bytes))]
    if before is not None and after is not None and taken.answering:
        # The speed whose seconds lie halfway.
        reading, answering = (2 / (1 / one + 1 / other) for one, other in zip(before, after, strict=True))
        metrics.append(("reading speed", "tokens/s", reading, taken.reading))
        metrics.append(("answering speed", "tokens/s", answering, taken.answering))
    rows = list[Row]()
    for metric, unit, planned_value, measured in metrics:
        rows.append(row("plan", case, metric, unit, [planned_value]))
        rows.append(row("session", case, metric, unit, [measured]))
        rows.append(row("plan", case, f"{metric}, planned over measured", "x", [planned_value / measured]))
    return rows


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    rows, summary = list[Row](), dict[str, float]()
    for capacity in options.capacities or (QUICK_CAPACITIES if options.quick else CAPACITIES):
        setup.report(f"A pot of {capacity:,} slots", None)
        given = setup.engine.config
        config = replace(given, pot=replace(given.pot, capacity=capacity, num_kept=0))
        num_tokens = int(POTS * capacity)
        before = in_its_own_process(speeds, config, num_tokens)
        taken = take(config, num_tokens)
        some = _rows(config, taken, before, in_its_own_process(speeds, config, num_tokens))
        rows += some
        summary |= {
            f"predicted_over_measured_{_KEYS[one.metric.partition(',')[0]]}_{capacity}": one.p50
            for one in some
            if one.unit == "x"
        }
    yield Table(rows, _farthest(summary) | summary)


def _farthest(summary: dict[str, float]) -> dict[str, float]:
    """Of each figure the ratio that is the farthest off."""
    names = {name: name.rpartition("_")[0] for name in summary}
    return {
        name: max((summary[one] for one in names if names[one] == name), key=lambda ratio: abs(math.log(ratio)))
        for name in dict.fromkeys(names.values())
    }


MEASUREMENT = Measurement[Table](_measure)
