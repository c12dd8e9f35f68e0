"""All that `ondevice bench equip` measures, in order: the proofs, the update alone, decoding on two models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ondevice.config import EngineConfig
from ondevice.errors import ConfigError
from ondevice.files import asset
from ondevice.machine.process import return_free_memory
from ondevice.model.decoder import Decoder
from ondevice.model.loading.load import LoadedModel
from ondevice.model.loading.progress import Progress
from ondevice.model.tokenizer import Tokenizer
from ondevice_bench.quality.measurement import Measurement, Note, Setup, Table
from ondevice_bench.results.result import Row
from ondevice_bench.speed.equip import decoding, proof, updating
from ondevice_bench.speed.equip.decoding import DecodePlan, run_breakdown, run_decoding, run_validation
from ondevice_bench.speed.equip.kept_memory import kept_memory
from ondevice_bench.speed.equip.proof import greedy_tokens, perplexity, sdpa_deviation
from ondevice_bench.speed.equip.sides import H2O, STREAMING, new_decoder
from ondevice_bench.speed.equip.updating import CutCase, UpdateCase, run_cuts, run_updates
from ondevice_bench.speed.natural_text import paragraphs
from ondevice_bench.speed.random_model import random_model
from ondevice_bench.speed.turns import LeftOut

KEPT = ", freed memory kept"  # after the contender's name
_TEXT = "lighthouse.md"
_SMALL = "llama-2-like-small"


@dataclass(frozen=True, slots=True)
class EquipPlan:
    """Sizes of everything.

    Attributes:
        deviation: capacity, and tokens read in float64.
        greedy: capacity, and the tokens to decode for each method.
        perplexity: capacities, and the tokens of text to read.
        updates, cuts: the cases of tables 6 and 7.
        update_seconds: for each of those.
        model: one of `SHAPES`, without grouped heads; it gets random weights.
        batches, grouped_batches: sizes on that model, and on the loaded one.
        caches, sequences, step_seconds: see `DecodePlan`; on both.
        breakdown: cache and batch size.
        kept: caches and batch sizes on `model` that are measured once more with freed memory kept.
        validation: one of `SHAPES`, cache, batch size and tokens.
    """

    deviation: tuple[int, int]
    greedy: tuple[int, dict[str, int]]
    perplexity: tuple[tuple[int, ...], int]
    updates: tuple[UpdateCase, ...]
    cuts: tuple[CutCase, ...]
    update_seconds: float
    model: str
    batches: tuple[int, ...]
    grouped_batches: tuple[int, ...]
    caches: tuple[int, ...]
    sequences: tuple[int, ...]
    step_seconds: float
    breakdown: tuple[int, int]
    kept: tuple[tuple[int, ...], tuple[int, ...]]
    validation: tuple[str, int, int, int]

    @property
    def ungrouped(self) -> DecodePlan:
        """The cases on `model`."""
        return DecodePlan(self.model, self.batches, self.caches, self.sequences, self.step_seconds)


FULL = EquipPlan(
    deviation=(128, 160),
    greedy=(512, {STREAMING: 2000, H2O: 500}),
    perplexity=((512, 1024), 1536),
    updates=updating.UPDATES,
    cuts=updating.CUTS,
    update_seconds=1.0,
    model="llama-2-like",
    batches=(1, 4, 8, 16),
    grouped_batches=(1, 4, 8, 16),
    caches=(256, 512, 1024),
    sequences=(1024, 2048, 4096),
    step_seconds=2.0,
    breakdown=(512, 8),
    kept=((512, 1024), (8,)),
    validation=("llama-2-like-attention", 128, 36, 192),
)
QUICK = EquipPlan(
    deviation=(12, 14),
    greedy=(12, {STREAMING: 16, H2O: 8}),
    perplexity=((12, 16), 24),
    updates=updating.QUICK_UPDATES,
    cuts=updating.QUICK_CUTS,
    update_seconds=0.2,
    model=_SMALL,
    batches=(8,),
    grouped_batches=(1,),
    caches=(32,),
    sequences=(64, 256),
    step_seconds=0.2,
    breakdown=(64, 8),
    kept=((32,), (8,)),
    validation=(_SMALL, 64, 8, 128),
)


PARTS = ("proofs", "updates", "decoding")


def run_equip(
    loaded: LoadedModel, plan: EquipPlan, seed: int, report: Progress, parts: Sequence[str] = PARTS
) -> Iterator[list[Row] | LeftOut]:
    """Rows of one measurement after the other, or why one was left out.

    Args:
        loaded: the model of the proofs, and the one whose heads may be grouped.
        report: takes the stage and the share done.
        parts: some of `PARTS`.
    """
    decoder = new_decoder(loaded.model)
    if "proofs" in parts:
        yield from _prove(decoder, loaded, plan, seed, report)
    if "updates" in parts:
        report("Updating keys and values", None)
        yield from run_updates(plan.updates, loaded.device, plan.update_seconds)
        yield from run_cuts(plan.cuts, loaded.device, plan.update_seconds)
        yield from _with_memory_kept(run_updates(plan.updates, loaded.device, plan.update_seconds), loaded.device)
        return_free_memory()
    if "decoding" in parts:
        yield from _decode(decoder, loaded, plan, seed, report)


def _decode(
    decoder: Decoder, loaded: LoadedModel, plan: EquipPlan, seed: int, report: Progress
) -> Iterator[list[Row] | LeftOut]:
    report(f"Decoding with {loaded.name}", None)
    yield from run_decoding(decoder, replace(plan.ungrouped, name=loaded.name, batches=plan.grouped_batches))
    name, *sizes = plan.validation
    report(f"Decoding with {name}", None)
    yield run_validation(_random(name, loaded, seed), name, *sizes)
    report(f"Decoding with {plan.model}", None)
    ungrouped = _random(plan.model, loaded, seed)
    yield from run_breakdown(ungrouped, plan.model, *plan.breakdown, plan.step_seconds)
    yield from run_decoding(ungrouped, plan.ungrouped)
    caches, batches = plan.kept
    again = run_decoding(ungrouped, replace(plan.ungrouped, caches=caches, batches=batches))
    yield from _with_memory_kept(again, loaded.device)


def summary_of(rows: Sequence[Row], plan: EquipPlan) -> dict[str, float]:
    """The figures by which EQUIP is judged; those of decoding are of the model without grouped heads."""
    figures = dict(proof.summary_of(rows))
    for suffix, key in (("", ""), (KEPT, "_memory_kept")):
        means = updating.means_of(rows, suffix) | decoding.means_of(rows, plan.ungrouped, suffix)
        # What was left out has no figure.
        figures |= {f"{name}{key}_geomean": mean for name, mean in means.items() if mean is not None}
    return figures


def _with_memory_kept(items: Iterator[list[Row] | LeftOut], device: torch.device) -> Iterator[list[Row] | LeftOut]:
    """A measurement once more, where new tensors cost the baselines nothing but the copies themselves.

    torch has no store of freed memory on a CPU: every large tensor is mapped again. That is what copies cost as they
    are usually made, and is no part of the methods.
    """
    if device.type != "cpu":
        return
    with kept_memory() as is_kept:
        if not is_kept:
            yield LeftOut("Measuring with freed memory kept left out: the C library does not offer it.")
            return
        for item in items:
            if isinstance(item, LeftOut):
                yield item
            else:
                yield [replace(row, contender=row.contender + KEPT) for row in item]


def _prove(decoder: Decoder, loaded: LoadedModel, plan: EquipPlan, seed: int, report: Progress) -> Iterator[list[Row]]:
    def text(num_tokens: int) -> Tensor:
        return own_text(loaded.tokenizer, num_tokens, seed).to(loaded.device)

    report("Comparing attention", None)
    capacity, num_tokens = plan.deviation
    yield sdpa_deviation(loaded.model, text(num_tokens), capacity)
    capacity, num_steps = plan.greedy
    yield greedy_tokens(decoder, text(capacity // 2), capacity, num_steps, partial(report, "Comparing tokens"))
    capacities, num_tokens = plan.perplexity
    yield perplexity(decoder, text(num_tokens), capacities, partial(report, "Comparing perplexity"))


def _random(name: str, like: LoadedModel, seed: int) -> Decoder:
    return new_decoder(random_model(name, device=like.device, dtype=like.dtype, seed=seed).model)


def own_text(tokenizer: Tokenizer, num_tokens: int, seed: int) -> Tensor:
    """The first tokens (1, num_tokens) of the sample document, and of generated text where it ends."""
    text = asset(_TEXT)
    more = paragraphs(seed)
    ids, _ = tokenizer.encode(text)
    while len(ids) < num_tokens:
        text = f"{text}\n\n{next(more)}"
        ids, _ = tokenizer.encode(text)
    return torch.as_tensor(ids[:num_tokens], dtype=torch.int64)[None]


def _chosen(parts: str) -> Sequence[str]:
    return parts.split(",") if parts else PARTS


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    if unknown := set(_chosen(options.parts)) - set(PARTS):
        raise ConfigError(f"--parts names {', '.join(sorted(unknown))}", fix=f"Name some of {', '.join(PARTS)}.")
    return given()


def _measure(setup: Setup, options: Any) -> Iterator[Note | Table]:
    engine, plan, rows = setup.engine, QUICK if options.quick else FULL, list[Row]()
    for item in run_equip(engine.loaded, plan, engine.config.seed, setup.report, _chosen(options.parts)):
        if isinstance(item, LeftOut):
            yield Note(item.reason, "yellow")
        else:
            rows += item
    yield Table(rows, summary_of(rows, plan))


MEASUREMENT = Measurement[Table](_measure, config=_config)
