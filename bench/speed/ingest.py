"""Reading: the pot over a long text, and transformers over a prompt of 2,048 tokens, in turn in one run.

The pot reads on in segments of whole cycles; after each, transformers reads its prompt into a fresh full cache. Every
ratio is of two neighbours in time, so that a machine that slows down slows both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ondevice.config import EngineConfig
from ondevice.documents import Document
from ondevice.errors import ConfigError
from ondevice.events import DocumentRead, Event, PotDistilled
from ondevice.machine.process import peak_rss_bytes, return_free_memory
from ondevice.pot.memory_pot import MemoryPot
from ondevice.session.engine import Engine, Session
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.names import contender_name
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.peak_memory import reset_peak_rss
from ondevice_bench.speed.reference import Reference, load_reference
from ondevice_bench.speed.source import NUM_TOKENS, QUICK_TOKENS, chosen

PROMPT_TOKENS = 2048
WARM_TOKENS = 32 * 1024  # memory has to stay where it is from here on
_WARM_UP_TOKENS = 256
_TOKENS_PER_SEGMENT = 4096  # between two prefills of transformers
_MIN_SEGMENTS, _MAX_SEGMENTS = 2, 32
FULL_KV = "transformers full KV"


@dataclass(frozen=True, slots=True)
class Cycle:
    """One filling of the pot with its distillation: document tokens [start, stop), seconds, peak memory in it."""

    start: int
    stop: int
    seconds: float
    peak_rss_bytes: int


@dataclass(slots=True)
class Reading:
    """Figures taken while the text is read.

    Attributes:
        cycles: in order.
        segment_speeds, prefill_speeds: tokens per second, neighbours have the same index.
        pot_bytes: of all buffers.
        is_constant: whether every buffer of the pot stayed where it was, as large as it was.
    """

    cycles: list[Cycle] = field(default_factory=list)
    segment_speeds: list[float] = field(default_factory=list)
    prefill_speeds: list[float] = field(default_factory=list)
    pot_bytes: int = 0
    is_constant: bool = True


def run_ingest(
    engine: Engine, reference: Reference, document: Document, num_segments: int
) -> Iterator[Event | Reading]:
    """Events while both contenders read, and the `Reading` at the end.

    Raises:
        ConfigError: the text is shorter than the prompt that transformers reads.
    """
    session = engine.session()
    yield from session.open(document)
    total = session.context.tokens.num_tokens
    if total < PROMPT_TOKENS:
        raise ConfigError(f"The text has {total:,} tokens", fix=f"Give at least {PROMPT_TOKENS:,}.")
    prompt = torch.as_tensor(session.context.tokens.ids(0, PROMPT_TOKENS), dtype=torch.int64).to(engine.loaded.device)[
        None
    ]
    reference.prefill(prompt[:, :_WARM_UP_TOKENS])
    reading = Reading(pot_bytes=session.context.pot.nbytes)
    layout, segment = _layout(session.context.pot), []
    return_free_memory()
    reset_peak_rss()
    for item in cycles_of(session):
        if not isinstance(item, Cycle):
            yield item
            continue
        segment.append(item)
        reading.cycles.append(item)
        reading.is_constant &= _layout(session.context.pot) == layout
        if item.stop >= total * (len(reading.prefill_speeds) + 1) // num_segments:
            reading.segment_speeds.append(speed_of(segment))
            reading.prefill_speeds.append(PROMPT_TOKENS / reference.prefill(prompt))
            segment = []
            # What transformers took must not hide what the pot takes.
            return_free_memory()
            reset_peak_rss()
    yield reading


def rows_of(reading: Reading, config: EngineConfig) -> tuple[Row, ...]:
    """The rows of both contenders."""
    pot, total = contender_name(config), {"tokens": reading.cycles[-1].stop}
    prompt = {"tokens": PROMPT_TOKENS}
    ratios = _ratios(reading)
    peaks = [cycle.peak_rss_bytes for cycle in reading.cycles]
    return (
        row(pot, total, "reading speed", "tokens/s", reading.segment_speeds),
        row(FULL_KV, prompt, "reading speed", "tokens/s", reading.prefill_speeds),
        row(pot, total, "reading speed ratio", "x", ratios),
        row(pot, total, "pot size", "bytes", [reading.pot_bytes]),
        row(pot, total, "peak memory", "bytes", peaks),
    )


def summary_of(reading: Reading) -> dict[str, float]:
    """The figures by which reading is judged."""
    cycles = reading.cycles
    return {
        "reading_ratio_vs_transformers_2k": float(np.median(_ratios(reading))),
        "last_tenth_over_first_tenth": _last_over_first(cycles),
        "rss_growth_32k_to_end": rss_growth([(cycle.stop, cycle.peak_rss_bytes) for cycle in cycles]),
        "pot_bytes_constant": float(reading.is_constant),
    }


def rss_growth(peaks: Sequence[tuple[int, int]]) -> float:
    """Growth of peak memory after the first `WARM_TOKENS` tokens, as a share; 0 if none follow.

    Args:
        peaks: tokens read and peak memory, for each cycle.
    """
    before = [peak for stop, peak in peaks if stop <= WARM_TOKENS]
    after = [peak for stop, peak in peaks if stop > WARM_TOKENS]
    return max(after) / max(before) - 1.0 if before and after else 0.0


def cycles_of(session: Session) -> Iterator[Event | Cycle]:
    """Read on to the end: the events, and a `Cycle` whenever the pot has been distilled, and for what is left over.

    The clock runs only while the engine works, never while a caller does something with an event.
    """
    events, start, seconds = session.resume(), session.context.num_read, 0.0
    while True:
        began = time.perf_counter()
        event = next(events, None)
        seconds += time.perf_counter() - began
        if event is None:
            return
        yield event
        if session.context.num_read > start and isinstance(event, PotDistilled | DocumentRead):
            yield Cycle(start, session.context.num_read, seconds, peak_rss_bytes())
            start, seconds = session.context.num_read, 0.0


def _last_over_first(cycles: Sequence[Cycle]) -> float:
    """Reading speed over the last tenth of the tokens, relative to the first tenth; whole cycles only."""
    # What is left over at the end is not distilled, which would flatter the last tenth.
    whole = cycles[:-1] if len(cycles) > 1 else cycles
    tenth = whole[-1].stop / 10
    first = [cycle for cycle in whole if cycle.stop <= tenth] or whole[:1]
    last = [cycle for cycle in whole if cycle.start >= 9 * tenth] or whole[-1:]
    return speed_of(last) / speed_of(first)


def _ratios(reading: Reading) -> list[float]:
    return [pot / full for pot, full in zip(reading.segment_speeds, reading.prefill_speeds, strict=True)]


def speed_of(cycles: Sequence[Cycle]) -> float:
    """Tokens per second over some cycles."""
    return sum(cycle.stop - cycle.start for cycle in cycles) / sum(cycle.seconds for cycle in cycles)


def _layout(pot: MemoryPot) -> list[tuple[int, int]]:
    """Address and size of every buffer of the pot."""
    return [(buffer.data_ptr(), buffer.nbytes) for buffer in pot.buffers()]


def _config(given: Callable[..., EngineConfig], _: object) -> EngineConfig:
    config = given()
    if config.pot.method.keeps_all:
        raise ConfigError("--policy full has no pot to measure", fix="It is the other contender; choose a pot.")
    return config


def _measure(setup: Setup, options: Any) -> Iterator[Event | Table]:
    size, reference = options.tokens or (QUICK_TOKENS if options.quick else None), load_reference(setup)
    num_segments = min(max((size or NUM_TOKENS) // _TOKENS_PER_SEGMENT, _MIN_SEGMENTS), _MAX_SEGMENTS)
    for item in run_ingest(setup.engine, reference, chosen(setup, options.text, size), num_segments):
        yield Table(rows_of(item, setup.engine.config), summary_of(item)) if isinstance(item, Reading) else item


MEASUREMENT = Measurement[Table](_measure, config=_config)
