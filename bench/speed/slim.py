"""SlimInfer: the same pot with and without pruning, in turn in one run, and what pruning a whole prompt saves.

Both contenders read the same text cycle by cycle, each ratio is of two neighbours in time. Memory is that of the
buffers of pots as large as the paper's Table 2 has them: Llama 3.1 8B, bfloat16, keys and values of the prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from ondevice.config import EngineConfig, SlimConfig
from ondevice.documents import Document
from ondevice.errors import ConfigError
from ondevice.events import DocumentRead
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.shape import PotShape
from ondevice.prefill.pruning import slim_steps, stored_tokens
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.names import contender_name
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.ingest import Cycle, cycles_of, speed_of
from ondevice_bench.speed.random_model import SHAPES
from ondevice_bench.speed.source import QUICK_TOKENS, chosen

# Llama 3.1 8B in the paper: 8k, 4k and 2k tokens of the prompt after layers 10, 20 and 30.
PAPER = SlimConfig("10:8192,20:4096,30:2048")
PAPER_LENGTHS = {"8k": 8192, "16k": 16384, "24k": 24576, "28k": 28672, "32k": 32768}
_PAPER_SHAPE = "llama-3.1-8b"
_NUM_TOKENS = 32_768


@dataclass(slots=True)
class SlimReading:
    """Tokens per second of both contenders; neighbours in time have the same index."""

    plain_speeds: list[float] = field(default_factory=list)
    slim_speeds: list[float] = field(default_factory=list)
    num_tokens: int = 0


def run_reading(engine: Engine, document: Document, slim: SlimConfig) -> Iterator[SlimReading]:
    """Read a document with both contenders; the same object comes back after every cycle, filled further."""
    reading, sides = SlimReading(), []
    for config in (replace(engine.config, slim=SlimConfig()), replace(engine.config, slim=slim)):
        session = engine.session(config)
        for _ in session.open(document):
            pass
        sides.append(cycles_of(session))
    while True:
        plain, pruned = (_next_cycle(side) for side in sides)
        if plain is None or pruned is None:
            return
        reading.plain_speeds.append(speed_of([plain]))
        reading.slim_speeds.append(speed_of([pruned]))
        reading.num_tokens = plain.stop
        yield reading


def prompt_memory(slim: SlimConfig, num_tokens: int, device: torch.device) -> tuple[int, int]:
    """Bytes of keys and values of a whole prompt, of a full cache and pruned, from buffers really allocated."""
    shape = SHAPES[_PAPER_SHAPE]
    layers, head_dim = shape.num_layers, shape.hidden_size // shape.num_heads
    stored = stored_tokens(slim_steps(slim, layers), slim, num_tokens, layers)
    sizes = []
    for capacities in (None, stored):
        pot = MemoryPot(
            PotShape(layers, shape.num_kv_heads, head_dim, num_tokens, key_rotation="on-read", capacities=capacities),
            dtype=torch.bfloat16,
            device=device,
            rotate_keys=lambda keys, *_: keys,
        )
        sizes.append(sum(buffer.nbytes for buffer in (*pot.keys, *pot.values)))
        del pot
    return sizes[0], sizes[1]


def rows_of(reading: SlimReading, config: EngineConfig, slim: SlimConfig) -> list[Row]:
    """Reading speeds and their ratio."""
    plain, pruned = (contender_name(replace(config, slim=one)) for one in (SlimConfig(), slim))
    case = {"tokens": reading.num_tokens}
    return [
        row(pruned, case, "reading speed", "tokens/s", reading.slim_speeds),
        row(plain, case, "reading speed", "tokens/s", reading.plain_speeds),
        row(pruned, case, "reading speed ratio", "x", _ratios(reading)),
    ]


def memory_rows(device: torch.device) -> tuple[list[Row], dict[str, float]]:
    """The paper's Table 2: bytes of both contenders and the saving, for every length, with the summary."""
    rows, summary = [], {}
    for name, num_tokens in PAPER_LENGTHS.items():
        full, pruned = prompt_memory(PAPER, num_tokens, device)
        saving, case = 100 * (1 - pruned / full), {"prompt tokens": num_tokens}
        rows += [
            row("full KV", case, "prompt cache", "bytes", [full]),
            row("SlimInfer", case, "prompt cache", "bytes", [pruned]),
            row("SlimInfer", case, "memory saving", "%", [saving]),
        ]
        summary[f"memory_saving_percent_{name}"] = saving
    return rows, summary


def summary_of(reading: SlimReading) -> dict[str, float]:
    """Speedup of reading into the pruned pot."""
    return {"reading_speedup": float(np.median(_ratios(reading)))}


def _next_cycle(side: Iterator[object]) -> Cycle | None:
    """Read on to the end of a cycle that was distilled; None at the end of the document."""
    for item in side:
        if isinstance(item, Cycle):
            return item
        if isinstance(item, DocumentRead):
            return None  # what is left over is neither distilled nor pruned
    return None


def _ratios(reading: SlimReading) -> list[float]:
    return [slim / plain for slim, plain in zip(reading.slim_speeds, reading.plain_speeds, strict=True)]


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    engine, size = setup.engine, options.tokens or (QUICK_TOKENS if options.quick else _NUM_TOKENS)
    slim = engine.config.slim if engine.config.slim.schedule != "off" else SlimConfig("auto")
    reading = SlimReading()
    for reading in run_reading(engine, chosen(setup, options.text, size), slim):
        setup.report("Reading with both", reading.num_tokens / size)
    if not reading.slim_speeds:
        raise ConfigError(f"{size:,} tokens do not fill the pot", fix="Read more with --tokens.")
    setup.report("Measuring whole prompts", 0.0)
    memory, saving = memory_rows(engine.loaded.device)
    yield Table([*rows_of(reading, engine.config, slim), *memory], summary_of(reading) | saving)


MEASUREMENT = Measurement[Table](_measure)
