"""Contenders in turn: A B A B, so that a machine that slows down slows all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ondevice.machine.memory import free_memory_bytes, usable_bytes
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.reference import synchronize

Seconds = dict[str, list[float]]  # of each contender; values of one round have the same index


class LeftOut(NamedTuple):
    """A case that was not measured, and why: a sentence."""

    reason: str


def take_turns(
    contenders: Mapping[str, Callable[[], object]],
    device: torch.device,
    *,
    min_rounds: int = 5,
    max_rounds: int = 25,
    budget_seconds: float = 10.0,
    is_warm: bool = False,
) -> Seconds:
    """Time every contender once a round, after one round that does not count unless they are warm already.

    Rounds go on from `min_rounds` to `max_rounds` as long as the next one ends within the budget.
    """
    for work in contenders.values():
        if not is_warm:
            work()
    seconds: Seconds = {name: [] for name in contenders}
    began = time.perf_counter()
    for done in range(max_rounds):
        spent = time.perf_counter() - began
        if done >= min_rounds and spent * (done + 1) > budget_seconds * done:
            break
        for name, work in contenders.items():
            seconds[name].append(timed(work, device))
    return seconds


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds for one call; what it returns is freed within them."""
    synchronize(device)
    began = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - began


def time_rows(seconds: Seconds, case: dict[str, Any], metric: str) -> list[Row]:
    """A row for each contender, in milliseconds."""
    return [row(name, case, metric, "ms", [1e3 * s for s in values]) for name, values in seconds.items()]


def speedup_row(seconds: Seconds, case: dict[str, Any], metric: str, fast: str, slow: str) -> Row:
    """Speedup of `fast` over its neighbour in time `slow`, round by round."""
    ratios = [a / b for a, b in zip(seconds[slow], seconds[fast], strict=True)]
    return row(fast, case, f"{metric}, speedup", "x", ratios)


def mean_speedup(rows: Sequence[Row], metrics: Sequence[str], fast: str) -> float | None:
    """The geometric mean over all cases of some metrics among `rows`; None where there are none."""
    names = {f"{metric}, speedup" for metric in metrics}
    values = [row.p50 for row in rows if row.contender == fast and row.metric in names]
    return float(np.exp(np.mean(np.log(values)))) if values else None


def room_for(what: str, num_bytes: int, device: torch.device) -> LeftOut | None:
    """Why `what` must be left out, if that many bytes are not free."""
    usable = usable_bytes(free_memory_bytes(device))
    if num_bytes <= usable:
        return None
    return LeftOut(f"{what} left out: it takes {num_bytes / 1e9:.1f} GB, and {usable / 1e9:.1f} GB are free for it.")
