"""A look into a full host tier: every key, beside mean keys first; and what a question waits for until it is back.

The keys are random numbers of the model's shape: what a look costs does not depend on what it finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ondevice.config import TierConfig
from ondevice.decode.host_recall import WORD_LOOK
from ondevice.pot.host.host_memory import HostMemory
from ondevice.pot.host.kv_tier import HostTier, Taken
from ondevice.pot.host.retrieve import CLOSE_LOOK, COVERAGE, rank_blocks
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.result import row
from ondevice_bench.speed.turns import take_turns

TOKENS, QUICK_TOKENS, TEXT_TOKENS = 65_536, 8192, 3000
QUESTION_TOKENS = 30
_EVERY_KEY, _TWO_STEPS = "every key", "mean keys, then the best blocks"
_STEP = 1024


def filled_tier(engine: Engine, config: TierConfig, num_tokens: int) -> HostTier:
    """A tier for a document of so many tokens, all of whose keys and values are in it."""
    decoder = engine.decoder
    shape = decoder.pot_shape(engine.config.pot.capacity)
    budget = HostMemory.most_bytes_of(shape, TierConfig(10**15), None, num_tokens)
    tier = HostTier(shape, budget, dtype=decoder.dtype)
    generator = torch.Generator().manual_seed(engine.config.seed)
    for first in range(0, num_tokens, _STEP):
        origin = torch.arange(first, min(first + _STEP, num_tokens), dtype=torch.int32)
        for layer in range(shape.num_layers):
            size = (2, shape.num_kv_heads, origin.shape[0], shape.head_dim)
            keys, values = torch.randn(size, generator=generator)
            tier.take_over(Taken(layer, [keys[None], values[None]], origin))
    return tier


def measure_looks(engine: Engine, tier: HostTier, num_tokens: int) -> Table:
    """Seconds of both looks, in turn, and bytes."""
    parts, config, pot = engine.decoder.parts, engine.config, engine.config.pot
    generator = torch.Generator().manual_seed(engine.config.seed + 1)
    size = (1, parts.num_heads, QUESTION_TOKENS, parts.head_dim)
    queries = [torch.randn(size, generator=generator).to(engine.decoder.device) for _ in parts.layers]
    num_blocks = config.tier.max_tokens // config.slim.block_size

    # Blocks that share words with a question: of random numbers any will do.
    words = np.random.default_rng(engine.config.seed).permutation(num_tokens // config.slim.block_size)
    also_close = words[: WORD_LOOK * num_blocks].tolist()

    def look(num_close: int | None) -> list[int]:
        return rank_blocks(
            tier,
            queries,
            scale=parts.scale,
            softcap=parts.attention_softcap,
            block_size=config.slim.block_size,
            first=pot.num_sink_tokens,
            coverage=COVERAGE,
            num_close=num_close,
            also_close=also_close,
        )

    seconds = take_turns(
        {_EVERY_KEY: lambda: look(None), _TWO_STEPS: lambda: look(CLOSE_LOOK * num_blocks)},
        engine.decoder.device,
        max_rounds=9,
        budget_seconds=60.0,
    )
    case = {"tokens": num_tokens}
    rows = [row(name, case, "look", "s", values) for name, values in seconds.items()]
    ratios = [a / b for a, b in zip(seconds[_EVERY_KEY], seconds[_TWO_STEPS], strict=True)]
    rows.append(row(_TWO_STEPS, case, "times as fast", "x", ratios))
    rows.append(row("host tier", case, "memory", "bytes", [tier.nbytes]))
    summary = {
        "look_seconds": float(np.median(seconds[_TWO_STEPS])),
        "look_seconds_every_key": float(np.median(seconds[_EVERY_KEY])),
        "look_speedup": float(np.median(ratios)),
        "tier_bytes": float(tier.nbytes),
    }
    return Table(rows, summary)


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    engine = setup.engine
    num_tokens = options.tokens or (QUICK_TOKENS if options.quick else TOKENS)
    setup.report("Filling the host tier", None)
    small = filled_tier(engine, engine.config.tier, TEXT_TOKENS).nbytes
    tier = filled_tier(engine, engine.config.tier, num_tokens)
    setup.report("Looking", None)
    looks = measure_looks(engine, tier, num_tokens)
    memory = row("host tier", {"tokens": TEXT_TOKENS}, "memory", "bytes", [small])
    yield Table([*looks.rows, memory], looks.summary | {f"tier_bytes_{TEXT_TOKENS}": float(small)})


MEASUREMENT = Measurement[Table](_measure)
