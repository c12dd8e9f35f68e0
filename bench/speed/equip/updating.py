"""The update of keys and values alone: EQUIP in place beside shift-and-append and gather-and-append, in one run.

Table 6 of the paper: a cache of 1,024 tokens gives up 64 for 64 new ones. What is evicted has been chosen before the
clock starts, on both sides. Table 7: a cache cut to half by SnapKV and LagKV, with the attention of one query after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle

import torch
from ondevice.kernels.attention import attention
from ondevice.kernels.pot_update import replace_slots_
from torch import Tensor

from ondevice_bench.results.result import Row
from ondevice_bench.speed.equip.baselines import gathered
from ondevice_bench.speed.equip.compression import Choice, cut_by_copies, cut_in_place_, lagkv, snapkv
from ondevice_bench.speed.equip.sides import EQUIP, H2O, NUM_SINKS, STREAMING
from ondevice_bench.speed.turns import LeftOut, mean_speedup, room_for, speedup_row, take_turns, time_rows

WITH_ROTATED = f"{EQUIP}{STREAMING}, keys after RoPE too"
UPDATE, CUT = "KV update", "cut and attention"


@dataclass(frozen=True, slots=True)
class UpdateCase:
    """Shape of one layer's cache, and how many of its tokens are replaced at once."""

    batch: int
    heads: int
    head_dim: int
    cache: int = 1024
    evicted: int = 64

    def buffer(self, generator: torch.Generator) -> Tensor:
        """(batch, heads, cache, dim)."""
        shape = (self.batch, self.heads, self.cache, self.head_dim)
        return torch.empty(shape, device=generator.device).uniform_(-1.0, 1.0, generator=generator)

    @property
    def nbytes(self) -> int:
        """Of one buffer in float32."""
        return self.batch * self.heads * self.head_dim * self.cache * 4


@dataclass(frozen=True, slots=True)
class CutCase:
    """Shape of one layer's cache, and to how many tokens it is cut."""

    model: str
    batch: int
    heads: int
    head_dim: int = 128
    sequence: int = 1024
    cache: int = 512
    lag: int = 192


# The rows of the paper's tables 6 and 7, the latter with the batch that a CPU takes.
UPDATES = (
    UpdateCase(1, 64, 64),
    UpdateCase(1, 64, 128),
    UpdateCase(1, 128, 64),
    UpdateCase(8, 64, 64),
    UpdateCase(8, 64, 128),
    UpdateCase(8, 128, 64),
    UpdateCase(32, 64, 64),
    UpdateCase(32, 64, 128),
)
QUICK_UPDATES = (UpdateCase(1, 8, 64, 256, 16), UpdateCase(4, 8, 128, 256, 16))
CUTS = (CutCase("Llama 2 7B", 8, 32), CutCase("OPT 13B", 8, 40))
QUICK_CUTS = (CutCase("small", 2, 4, 32, 256, 128, 48),)


def run_updates(
    cases: Sequence[UpdateCase], device: torch.device, budget_seconds: float
) -> Iterator[list[Row] | LeftOut]:
    """Rows of case after case, or why one was left out.

    Args:
        budget_seconds: for each case, beyond the five rounds that it gets anyway.
    """
    for case in cases:
        what = f"The update at batch {case.batch} with {case.heads} heads of {case.head_dim}"
        if missing := room_for(what, 6 * case.nbytes, device):
            yield missing
            continue
        seconds = take_turns(update_contenders(case, device), device, budget_seconds=budget_seconds)
        shown: dict[str, object] = asdict(case)
        yield [
            *time_rows(seconds, shown, UPDATE),
            *(speedup_row(seconds, shown, UPDATE, EQUIP + name, name) for name in (STREAMING, H2O)),
            speedup_row(seconds, shown, UPDATE, WITH_ROTATED, STREAMING),
        ]


def run_cuts(cases: Sequence[CutCase], device: torch.device, budget_seconds: float) -> Iterator[list[Row]]:
    """The same for caches that are cut down: update and attention."""
    for case in cases:
        shown: dict[str, object] = {key: value for key, value in asdict(case).items() if key != "lag"}
        for method, contenders in cut_contenders(case, device).items():
            seconds = take_turns(contenders, device, budget_seconds=budget_seconds)
            yield [*time_rows(seconds, shown, CUT), speedup_row(seconds, shown, CUT, EQUIP + method, method)]


def means_of(rows: Sequence[Row], suffix: str = "") -> dict[str, float | None]:
    """Geometric means over all cases of Table 6; `suffix` ends the contenders' names."""
    return {
        "kv_update_vs_shift": mean_speedup(rows, [UPDATE], EQUIP + STREAMING + suffix),
        "kv_update_vs_gather": mean_speedup(rows, [UPDATE], EQUIP + H2O + suffix),
    }


def update_contenders(case: UpdateCase, device: torch.device) -> dict[str, Callable[[], list[Tensor]]]:
    """One update of keys and values by every contender; each returns what is cached afterwards.

    All begin from the same buffers. The copies are not kept for the next round: as when a new cache replaces the old,
    each is allocated, written and freed once.
    """
    generator = torch.Generator(device).manual_seed(0)
    cached = [case.buffer(generator) for _ in range(3)]  # the third: keys after RoPE
    keys_values = cached[:2]
    new = [tensor[:, :, -case.evicted :] + 1.0 for tensor in keys_values]
    # The oldest tokens move on through the buffer, as they do while decoding.
    oldest = cycle(range(NUM_SINKS, case.cache - case.evicted + 1, case.evicted))
    evicted = torch.rand(cached[0].shape[:3], device=device, generator=generator).argsort(-1)[..., : case.evicted]

    def shift() -> list[Tensor]:
        recent = slice(NUM_SINKS + case.evicted, case.cache)
        return [
            torch.cat((old[:, :, :NUM_SINKS], old[:, :, recent], added), 2)
            for old, added in zip(keys_values, new, strict=True)
        ]

    def gather() -> list[Tensor]:
        mask = torch.ones(cached[0].shape[:3], dtype=torch.bool, device=device).scatter_(-1, evicted, False)
        return [torch.cat((gathered(old, mask), added), 2) for old, added in zip(keys_values, new, strict=True)]

    def replace(buffers: list[Tensor], index: slice | Tensor) -> list[Tensor]:
        return [replace_slots_(old, index, added) for old, added in zip(buffers, cycle(new), strict=False)]

    def oldest_slots() -> slice:
        start = next(oldest)
        return slice(start, start + case.evicted)

    return {
        STREAMING: shift,
        EQUIP + STREAMING: lambda: replace(keys_values, oldest_slots()),
        H2O: gather,
        EQUIP + H2O: lambda: replace(keys_values, evicted),
        WITH_ROTATED: lambda: replace(cached, oldest_slots()),
    }


def cut_contenders(case: CutCase, device: torch.device) -> dict[str, dict[str, Callable[[], Tensor]]]:
    """For each method both ways to cut, with the attention of one query (batch, heads, 1, dim) after it."""
    generator = torch.Generator(device).manual_seed(0)
    shape = (case.batch, case.heads, case.sequence, case.head_dim)
    keys, values, query = (torch.randn(shape, device=device, generator=generator) for _ in range(3))
    scale = case.head_dim**-0.5
    choices = {
        "SnapKV": snapkv(query, keys, case.cache, scale=scale),
        "LagKV": lagkv(keys, values, case.cache, num_sinks=NUM_SINKS, lag=case.lag),
    }
    query = query[:, :, -1:].clone()

    def both(method: str, choice: Choice) -> dict[str, Callable[[], Tensor]]:
        # Buffers of its own: they change, after which this choice is as good as any.
        buffers = keys.clone(), values.clone()
        return {
            method: lambda: attention(query, *cut_by_copies(keys, values, choice), scale=scale),
            EQUIP + method: lambda: attention(query, *cut_in_place_(*buffers, choice), scale=scale),
        }

    return {method: both(method, choice) for method, choice in choices.items()}
