"""The memory that a session was planned to take, beside what it takes: both in fresh processes, one after the other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from ondevice.bench.processes import in_its_own_process
from ondevice.bench.source import generated
from ondevice.config import EngineConfig
from ondevice.evaluation.measurement import Measurement, Setup, Table
from ondevice.model.loading.placement import choose_device
from ondevice.results.process_memory import peak_rss_bytes
from ondevice.results.results import Row, row
from ondevice.session.engine import Engine
from ondevice.session.footprint import MemoryPlan
from ondevice.session.machines import this_machine

CAPACITIES, QUICK_CAPACITIES = (1024, 4096, 8192), (1024,)
_POTS = 2.5  # times the slots: distilled at least twice
_QUESTION, _NEW_TOKENS = "Who found the letter, and where?", 32


@dataclass(frozen=True, slots=True)
class Taken:
    """One session as it was.

    Attributes:
        num_tokens: that were read.
        tokens_per_second: of reading, with the tokenizer's share.
        peak_bytes: the most that its process had resident, or the most that torch took of a GPU.
        predicted_bytes: the same by the plan.
    """

    num_tokens: int
    tokens_per_second: float
    peak_bytes: int
    predicted_bytes: int = 0


def take(config: EngineConfig, num_tokens: int | None = None) -> Taken:
    """Plan a session with these settings, and hold one.

    Args:
        config: with a size of the pot.
        num_tokens: to read; None: two and a half pots.

    Raises:
        OndeviceError: it cannot be held.
    """
    num_tokens = num_tokens or int(_POTS * config.pot.capacity)
    predicted = in_its_own_process(planned, config, num_tokens)
    return replace(in_its_own_process(held, config, num_tokens), predicted_bytes=predicted)


def planned(config: EngineConfig, num_tokens: int) -> int:
    """What the plan for this machine says, in bytes: of a GPU where there is one, else of the main memory."""
    device = choose_device(config.device)
    footprint = MemoryPlan(config, this_machine(device), num_tokens).footprint
    return footprint.device_bytes if device.type == "cuda" else footprint.peak_bytes


def held(config: EngineConfig, num_tokens: int) -> Taken:
    """A session of this process: a generated text is read, one question answered."""
    generation = replace(config.generation, max_new_tokens=_NEW_TOKENS, temperature=0.0)
    engine = Engine.load(replace(config, generation=generation))
    document = generated(num_tokens, engine.loaded.tokenizer, config.seed)
    session, began = engine.session(), time.perf_counter()
    for _ in session.read(document):
        pass
    seconds = time.perf_counter() - began
    for _ in session.ask(_QUESTION):
        pass
    is_gpu = engine.loaded.device.type == "cuda"
    peak = torch.cuda.max_memory_reserved() if is_gpu else peak_rss_bytes()
    return Taken(num_tokens, num_tokens / seconds, peak)


def _rows(config: EngineConfig, taken: Taken) -> list[Row]:
    case = {"slots": config.pot.capacity, "tokens": taken.num_tokens}
    return [
        row("plan", case, "peak memory", "bytes", [taken.predicted_bytes]),
        row("session", case, "peak memory", "bytes", [taken.peak_bytes]),
        row("plan", case, "peak memory, planned over measured", "x", [taken.predicted_bytes / taken.peak_bytes]),
        row("session", case, "reading speed", "tokens/s", [taken.tokens_per_second]),
    ]


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    rows, summary = list[Row](), dict[str, float]()
    for capacity in options.capacities or (QUICK_CAPACITIES if options.quick else CAPACITIES):
        setup.report(f"A pot of {capacity:,} slots", None)
        given = setup.engine.config
        config = replace(given, pot=replace(given.pot, capacity=capacity, num_kept=0))
        taken = take(config)
        rows += _rows(config, taken)
        summary[f"predicted_over_measured_peak_{capacity}"] = taken.predicted_bytes / taken.peak_bytes
    farthest = max(summary.values(), key=lambda ratio: abs(ratio - 1.0))
    yield Table(rows, {"predicted_over_measured_peak": farthest, **summary})


MEASUREMENT = Measurement[Table](_measure)
