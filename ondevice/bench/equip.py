"""All that `ondevice bench equip` measures, in order: the proofs, the update alone, decoding on two models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

import torch
from torch import Tensor

from ondevice.bench import equip_decode, equip_proof, equip_update
from ondevice.bench.equip_decode import DecodePlan, run_breakdown, run_decoding, run_validation
from ondevice.bench.equip_proof import greedy_tokens, perplexity, sdpa_deviation
from ondevice.bench.equip_sides import H2O, STREAMING, new_decoder
from ondevice.bench.equip_update import CutCase, UpdateCase, run_cuts, run_updates
from ondevice.bench.natural_text import paragraphs
from ondevice.bench.turns import LeftOut
from ondevice.model.load import LoadedModel
from ondevice.model.progress import Progress
from ondevice.model.random_model import random_model
from ondevice.model.tokenizer import Tokenizer
from ondevice.results import Row
from ondevice.rss import return_free_memory

_TEXT = "lighthouse.md"


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
        batches, caches, sequences, step_seconds: see `DecodePlan`; on that model and on the loaded one.
        breakdown: cache and batch size.
        validation: cache, batch size and tokens, on the loaded model.
    """

    deviation: tuple[int, int]
    greedy: tuple[int, dict[str, int]]
    perplexity: tuple[tuple[int, ...], int]
    updates: tuple[UpdateCase, ...]
    cuts: tuple[CutCase, ...]
    update_seconds: float
    model: str
    batches: tuple[int, ...]
    caches: tuple[int, ...]
    sequences: tuple[int, ...]
    step_seconds: float
    breakdown: tuple[int, int]
    validation: tuple[int, int, int]

    def decoding(self, name: str) -> DecodePlan:
        """The cases on one model."""
        return DecodePlan(name, self.batches, self.caches, self.sequences, self.step_seconds)


FULL = EquipPlan(
    deviation=(256, 352),
    greedy=(512, {STREAMING: 2000, H2O: 500}),
    perplexity=((512, 1024), 2048),
    updates=equip_update.UPDATES,
    cuts=equip_update.CUTS,
    update_seconds=4.0,
    model="llama-2-like",
    batches=(1, 4, 8, 16),
    caches=(256, 512, 1024),
    sequences=(1024, 2048, 4096),
    step_seconds=5.0,
    breakdown=(512, 8),
    validation=(128, 1, 384),
)
QUICK = EquipPlan(
    deviation=(32, 48),
    greedy=(48, {STREAMING: 48, H2O: 24}),
    perplexity=((32, 48), 80),
    updates=equip_update.QUICK_UPDATES,
    cuts=equip_update.QUICK_CUTS,
    update_seconds=0.2,
    model="llama-2-like-small",
    batches=(1, 8),
    caches=(64,),
    sequences=(96, 256),
    step_seconds=0.2,
    breakdown=(64, 8),
    validation=(32, 1, 64),
)


def run_equip(loaded: LoadedModel, plan: EquipPlan, seed: int, report: Progress) -> Iterator[list[Row] | LeftOut]:
    """Rows of one measurement after the other, or why one was left out.

    Args:
        loaded: the model of the proofs, and the one whose heads may be grouped.
        report: is told the stage and the share done.
    """
    decoder = new_decoder(loaded.model)
    yield from _prove(loaded, plan, seed, report)
    report("Updating keys and values", None)
    yield from run_updates(plan.updates, loaded.device, plan.update_seconds)
    yield from run_cuts(plan.cuts, loaded.device, plan.update_seconds)
    return_free_memory()
    report(f"Decoding with {loaded.name}", None)
    yield run_validation(decoder, loaded.name, *plan.validation)
    yield from run_decoding(decoder, plan.decoding(loaded.name))
    report(f"Decoding with {plan.model}", None)
    ungrouped = new_decoder(random_model(plan.model, device=loaded.device, dtype=loaded.dtype, seed=seed).model)
    yield from run_breakdown(ungrouped, plan.model, *plan.breakdown, plan.step_seconds)
    return_free_memory()
    yield from run_decoding(ungrouped, plan.decoding(plan.model))


def summary_of(rows: Sequence[Row], plan: EquipPlan) -> dict[str, float]:
    """The figures by which EQUIP is judged; those of decoding are of the model without grouped heads."""
    return {
        **equip_update.summary_of(rows),
        **equip_decode.summary_of(rows, plan.decoding(plan.model)),
        **equip_proof.summary_of(rows),
    }


def _prove(loaded: LoadedModel, plan: EquipPlan, seed: int, report: Progress) -> Iterator[list[Row]]:
    decoder, stage = new_decoder(loaded.model), ""

    def share(done: float) -> None:
        report(stage, done)

    capacity, num_tokens = plan.deviation
    report("Comparing attention", None)
    yield sdpa_deviation(loaded.model, own_text(loaded.tokenizer, num_tokens, seed).to(loaded.device), capacity)
    capacity, num_steps = plan.greedy
    stage = "Comparing tokens"
    prompt = own_text(loaded.tokenizer, capacity // 2, seed).to(loaded.device)
    yield greedy_tokens(decoder, prompt, capacity, num_steps, share)
    capacities, num_tokens = plan.perplexity
    stage = "Comparing perplexity"
    yield perplexity(decoder, own_text(loaded.tokenizer, num_tokens, seed).to(loaded.device), capacities, share)


def own_text(tokenizer: Tokenizer, num_tokens: int, seed: int) -> Tensor:
    """The first tokens (1, num_tokens) of the sample document, and of generated text where it ends."""
    text = (resources.files("ondevice.assets") / _TEXT).read_text(encoding="utf-8")
    more = paragraphs(seed)
    ids, _ = tokenizer.encode(text)
    while len(ids) < num_tokens:
        text = f"{text}\n\n{next(more)}"
        ids, _ = tokenizer.encode(text)
    return torch.as_tensor(ids[:num_tokens], dtype=torch.int64)[None]
