"""Memory and speed that a session was planned to have, beside what it has, for pots of several sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ondevice.config import EngineConfig
from ondevice.planning.trial import Taken, take
from ondevice.result import Row, row
from ondevice_bench.quality.measurement import Measurement, Setup, Table

CAPACITIES, QUICK_CAPACITIES = (1024, 4096, 8192), (1024,)
_KEYS = {"peak memory": "peak", "reading speed": "reading", "answering speed": "decoding"}  # in the summary


def _rows(config: EngineConfig, taken: Taken) -> list[Row]:
    case = {"slots": config.pot.capacity, "tokens": taken.num_tokens}
    predicted = taken.predicted
    metrics = [("peak memory", "bytes", float(predicted.peak_bytes), float(taken.peak_bytes))]
    if predicted.reading is not None and predicted.answering is not None and taken.answering:
        metrics.append(("reading speed", "tokens/s", predicted.reading, taken.reading))
        metrics.append(("answering speed", "tokens/s", predicted.answering, taken.answering))
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
        taken = take(config)
        some = _rows(config, taken)
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
