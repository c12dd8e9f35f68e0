"""Decoding with EQUIP beside StreamingLLM and H2O by copies: latency once the cache is full, and whole sequences.

A step of a model that does not fit into caches takes a second, and 4,096 of them take too long: the time of a
sequence is a sum of sampled steps. Steps are timed at some lengths of the growing cache and, many more, with the full
one; between the lengths a straight line is assumed, and every step with the full cache counts as the sampled ones.
`run_validation` runs one small sequence whole beside that sum. The prompt is one token: all of the sequence is
decoded. Not sampled: EQUIP numbers positions again once in 3 x capacity steps, which takes as long as one of
StreamingLLM's steps; and no side samples or streams its tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ondevice.machine.process import return_free_memory
from ondevice.model.decoder import Decoder
from ondevice.pot.memory_pot import MemoryPot
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.equip.sides import (
    EQUIP,
    H2O,
    PAIRS,
    STREAMING,
    Builder,
    Side,
    in_place,
    prefilled,
    shift_append,
    shift_append_halves,
)
from ondevice_bench.speed.reference import synchronize
from ondevice_bench.speed.turns import (
    LeftOut,
    Seconds,
    mean_speedup,
    room_for,
    speedup_row,
    take_turns,
    time_rows,
    timed,
)

LATENCY = "inter-token latency, cache full"
BREAKDOWN = "inter-token latency by optimisation"
_LARGE_BATCH = 8  # from here on the paper promises its speedups
_GROWING_ROUNDS = 2  # at each length of the growing cache
_TURN_SECONDS = (
    0.1  # steps shorter than that are timed several at once: a side finds the other's data in the CPU's cache
)
_MOST_STEPS = 16
_TEMPORARY = 1.1  # what a step allocates beside the caches, relative to them


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """The cases that are measured on one model.

    Attributes:
        name: of the model, in the rows.
        batches, caches: sizes; every combination is a case.
        sequences: lengths of whole sequences, tokens; those within the cache are left out.
        budget_seconds: for the steps with a full cache, beyond the five rounds that every case gets.
    """

    name: str
    batches: tuple[int, ...]
    caches: tuple[int, ...]
    sequences: tuple[int, ...]
    budget_seconds: float


@dataclass(frozen=True, slots=True)
class Steps:
    """Sampled steps of both sides of one pair: seconds at lengths of the growing cache, and with the full one."""

    capacity: int
    growing: dict[int, Seconds]
    full: Seconds

    def sequence(self, num_tokens: int) -> Seconds:
        """Seconds for a whole sequence, once for every round with the full cache."""
        lengths = np.arange(min(num_tokens, self.capacity))
        totals: Seconds = {}
        for name, full in self.full.items():
            sampled = [float(np.median(seconds[name])) for seconds in self.growing.values()]
            before = float(np.interp(lengths, list(self.growing), sampled).sum())
            totals[name] = [before + max(num_tokens - self.capacity, 0) * step for step in full]
        return totals


def run_decoding(decoder: Decoder, plan: DecodePlan) -> Iterator[list[Row] | LeftOut]:
    """Rows of case after case, or why one was left out."""
    source = prefilled(decoder, max(plan.caches))
    for capacity in plan.caches:
        for batch in plan.batches:
            case = {"batch": batch, "cache": capacity}
            for method, builders in PAIRS.items():
                needed = int(_TEMPORARY * 2.5 * kv_bytes(decoder, capacity, batch))
                if missing := room_for(
                    f"{method} on {plan.name}, batch {batch}, cache {capacity}", needed, decoder.device
                ):
                    yield missing
                    continue
                steps = sample_steps(decoder, builders, source, capacity, batch, plan.budget_seconds)
                yield _rows(steps, method, plan, case)
                return_free_memory()


def run_breakdown(
    decoder: Decoder, name: str, capacity: int, batch: int, budget_seconds: float
) -> Iterator[list[Row] | LeftOut]:
    """Speedup of the optimisations, one after the other (figure 8b), and the bytes of its cache."""
    needed = int(_TEMPORARY * 7.5 * kv_bytes(decoder, capacity, batch))
    if missing := room_for(f"The breakdown on {name}, batch {batch}, cache {capacity}", needed, decoder.device):
        yield missing
        return
    builders: tuple[Builder, ...] = (
        shift_append,
        shift_append_halves,
        in_place("half-cache", f"{STREAMING} + in place + RoPE caching"),
        in_place("stored", f"{STREAMING} + in place + sink-only rotation"),
    )
    source = prefilled(decoder, capacity)
    sides = [build(decoder, capacity, batch) for build in builders]
    for side in sides:
        side.fill(source, capacity, batch)
    seconds = _timed_steps(sides, batch, budget_seconds)
    case = {"model": name, "batch": batch, "cache": capacity}
    yield [
        *time_rows(seconds, case, BREAKDOWN),
        *(speedup_row(seconds, case, BREAKDOWN, side.name, STREAMING) for side in sides[1:]),
        *(row(side.name, case, "cache size", "bytes", [side.cache.nbytes]) for side in sides),
        *(row(side.name, case, "memory beyond keys and values", "bytes",
              [side.cache.nbytes - kv_bytes(decoder, capacity, batch)]) for side in sides),
    ]  # fmt: skip


def run_validation(decoder: Decoder, name: str, capacity: int, batch: int, num_tokens: int) -> list[Row]:
    """One sequence really run, beside the sum of sampled steps."""
    builders = PAIRS[STREAMING]
    steps = sample_steps(decoder, builders, prefilled(decoder, capacity), capacity, batch, 5.0)
    case = {"model": name, "batch": batch, "cache": capacity, "sequence": num_tokens}
    really = _whole_sequences([build(decoder, capacity, batch) for build in builders], batch, num_tokens)
    rows = []
    for side, summed in steps.sequence(num_tokens).items():
        ratios = [seconds / really[side] for seconds in summed]
        rows += [
            row(side, case, "end to end, from sampled steps", "s", summed),
            row(side, case, "end to end, really run", "s", [really[side]]),
            row(side, case, "sampled steps over really run", "x", ratios),
        ]
    return rows


def sample_steps(
    decoder: Decoder, builders: Sequence[Builder], source: MemoryPot, capacity: int, batch: int, budget_seconds: float
) -> Steps:
    """Fill the caches of some contenders step by step to their capacity, and time them in turn on the way."""
    sides = [build(decoder, capacity, batch) for build in builders]
    few = max(capacity // 32, 1)  # steps in a turn, so that all of them are at about the length they stand for
    growing = {}
    for length in (capacity // 8, capacity // 2, capacity - few * (_GROWING_ROUNDS + 2)):
        for side in sides:
            side.fill(source, length, batch)
        growing[length] = _timed_steps(sides, batch, 0.0, _GROWING_ROUNDS, few)
    for side in sides:
        side.fill(source, capacity, batch)
    return Steps(capacity, growing, _timed_steps(sides, batch, budget_seconds))


def kv_bytes(decoder: Decoder, capacity: int, batch: int) -> int:
    """Bytes of the keys and values alone."""
    parts = decoder.parts
    return 2 * len(parts.layers) * batch * parts.num_kv_heads * capacity * parts.head_dim * decoder.dtype.itemsize


def means_of(rows: Sequence[Row], plan: DecodePlan, suffix: str = "") -> dict[str, float | None]:
    """Geometric means over the sequences of one model, at the batch sizes of which the paper speaks.

    Args:
        suffix: of the contenders' names.
    """
    large = [row for row in rows if row.case.get("batch", 0) >= _LARGE_BATCH]
    metrics = [end_to_end(sequence) for sequence in plan.sequences]
    return {
        "end_to_end_vs_streaming": mean_speedup(large, metrics, on(EQUIP + STREAMING, plan) + suffix),
        "end_to_end_vs_h2o": mean_speedup(large, metrics, on(EQUIP + H2O, plan) + suffix),
    }


def end_to_end(num_tokens: int) -> str:
    """The name of the metric."""
    return f"end to end, {num_tokens:,} tokens, from sampled steps"


def on(contender: str, plan: DecodePlan) -> str:
    """The contender's name on one model."""
    return f"{contender} on {plan.name}"


def _rows(steps: Steps, method: str, plan: DecodePlan, case: dict[str, Any]) -> list[Row]:
    def named(seconds: Seconds) -> Seconds:
        return {on(name, plan): values for name, values in seconds.items()}

    ours, theirs = on(EQUIP + method, plan), on(method, plan)
    full = named(steps.full)
    rows = [*time_rows(full, case, LATENCY), speedup_row(full, case, LATENCY, ours, theirs)]
    for num_tokens in plan.sequences:
        if num_tokens > steps.capacity:
            rows.append(speedup_row(named(steps.sequence(num_tokens)), case, end_to_end(num_tokens), ours, theirs))
    return rows


def _timed_steps(
    sides: Sequence[Side], batch: int, budget_seconds: float, rounds: int | None = None, most: int = _MOST_STEPS
) -> Seconds:
    """Seconds of one step of some sides in turn, of one token for every sequence of the batch, after one of each.

    Args:
        rounds: exactly so many; None: as the budget has it, at least five.
        most: steps in one turn at most.
    """
    device = sides[0].decoder.device
    ids = torch.randint(0, sides[0].decoder.parts.vocab_size, (batch, 1), device=device)
    slowest = max(timed(_steps(side, ids, 1), device) for side in sides)
    num_steps = max(min(int(_TURN_SECONDS / slowest), most), 1)
    seconds = take_turns(
        {side.name: _steps(side, ids, num_steps) for side in sides},
        device,
        min_rounds=rounds or 5,
        max_rounds=rounds or 25,
        budget_seconds=budget_seconds,
        is_warm=num_steps == 1,
    )
    return {name: [turn / num_steps for turn in turns] for name, turns in seconds.items()}


def _steps(side: Side, ids: Tensor, num_steps: int) -> Callable[[], Tensor]:
    """Greedy steps of one side, each reading what the one before wrote."""

    def run() -> Tensor:
        last = ids
        for _ in range(num_steps):
            last = side.step(last)[:, -1:].argmax(dim=-1)
        return last

    return run


def _whole_sequences(sides: Sequence[Side], batch: int, num_tokens: int) -> dict[str, float]:
    """Seconds for greedy decoding of a sequence from its first token on, by some sides in turn, piece by piece."""
    device = sides[0].decoder.device
    seconds = {side.name: 0.0 for side in sides}
    last = {side.name: torch.zeros(batch, 1, dtype=torch.int64, device=device) for side in sides}
    for done in range(0, num_tokens, _MOST_STEPS):
        for side in sides:
            synchronize(device)
            began = time.perf_counter()
            last[side.name] = _steps(side, last[side.name], min(_MOST_STEPS, num_tokens - done))()
            synchronize(device)
            seconds[side.name] += time.perf_counter() - began
    return seconds
