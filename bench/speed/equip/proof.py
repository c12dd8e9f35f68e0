"""That EQUIP changes nothing but the time: its attention, its tokens and its perplexity beside those of the copies.

Both sides run the same model over the same tokens, each with its own cache, far beyond its capacity.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ondevice.model.decoder import Decoder
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.equip.sides import (
    EQUIP,
    NUM_SINKS,
    PAIRS,
    STREAMING,
    Builder,
    Side,
    in_place,
    new_decoder,
    shift_append,
)

DEVIATION = "largest deviation of attention in float64"
SAME_TOKENS = "same greedy tokens"
PERPLEXITY = "perplexity"
PERPLEXITY_DIFFERENCE = "perplexity, relative difference"
_PREFILL_STEP = 64

Report = Callable[[float], None]  # takes the share done


def sdpa_deviation(model: Any, ids: Tensor, capacity: int) -> list[Row]:
    """The largest difference between attention outputs of both sides, over all layers and tokens, in float64.

    The angles of RoPE are computed in float64 too: what is left is the order of summation.

    Args:
        model: of transformers; a copy of it is used.
        ids: (1, n) tokens to read.
    """
    exact = copy.deepcopy(model).double()
    exact.model.rotary_emb = _ExactRotary(model.model.rotary_emb)
    decoder = new_decoder(exact)
    outputs = _record_attention(decoder)
    comparisons = [(method, "stored", *pair) for method, pair in PAIRS.items()]
    comparisons.append((STREAMING, "half-cache", shift_append, in_place("half-cache")))
    rows = []
    for method, keys, *pair in comparisons:
        both = [_attention_outputs(build, decoder, ids, capacity, outputs) for build in pair]
        largest = max(float((a - b).abs().max()) for a, b in zip(*both, strict=True))
        case = {"keys": keys, "cache": capacity, "tokens": ids.shape[1]}
        rows.append(row(EQUIP + method, case, DEVIATION, "", [largest]))
    return rows


def greedy_tokens(
    decoder: Decoder, prompt: Tensor, capacity: int, num_steps: Mapping[str, int], report: Report
) -> list[Row]:
    """Greedy decoding by both sides of some pairs, each of which reads what it wrote itself.

    Args:
        prompt: (1, n) with n at most the capacity.
        num_steps: for each method.
    """
    rows, done = [], 0
    for method, steps in num_steps.items():
        sides = [build(decoder, capacity, 1) for build in PAIRS[method]]
        last = [side.step(prompt)[:, -1:].argmax(dim=-1) for side in sides]
        same = []
        for _ in range(steps):
            same.append(float(torch.equal(*last)))
            last = [side.step(token).argmax(dim=-1) for side, token in zip(sides, last, strict=True)]
            done += 1
            report(done / sum(num_steps.values()))
        case = {"cache": capacity, "prompt": prompt.shape[1], "tokens": steps}
        rows.append(row(EQUIP + method, case, SAME_TOKENS, "share", [sum(same) / steps]))
    return rows


def perplexity(decoder: Decoder, ids: Tensor, capacities: Sequence[int], report: Report) -> list[Row]:
    """Perplexity of a text (1, n) under both sides of StreamingLLM."""
    rows = []
    for i, capacity in enumerate(capacities):
        case = {"cache": f"{NUM_SINKS}+{capacity - NUM_SINKS}", "tokens": ids.shape[1]}
        values = []
        for k, build in enumerate(PAIRS[STREAMING]):
            side, losses = build(decoder, capacity, 1), []
            for start, logits in _read(side, ids[:, :-1]):
                targets = ids[0, start + 1 : start + 1 + logits.shape[1]]
                losses.append(F.cross_entropy(logits[0].float(), targets, reduction="none"))
                report((2 * i + k + start / ids.shape[1]) / (2 * len(capacities)))
            values.append(float(torch.cat(losses).double().mean().exp()))
            rows.append(row(side.name, case, PERPLEXITY, "", values[-1:]))
        rows.append(row(EQUIP + STREAMING, case, PERPLEXITY_DIFFERENCE, "", [abs(values[1] / values[0] - 1)]))
    return rows


def summary_of(rows: Sequence[Row]) -> dict[str, float]:
    """The worst of each; nothing where nothing was proved."""

    def values(metric: str) -> list[float]:
        return [row.p50 for row in rows if row.metric == metric]

    if not values(DEVIATION):
        return {}
    return {
        "max_sdpa_deviation_float64": max(values(DEVIATION)),
        "greedy_tokens_equal": float(min(values(SAME_TOKENS)) == 1.0),
        "max_perplexity_difference": max(values(PERPLEXITY_DIFFERENCE)),
    }


def _read(side: Side, ids: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Read (1, n) tokens, one by one once the cache is full; the first token and the logits of each part."""
    capacity = side.capacity
    parts = [*ids[:, :capacity].split(_PREFILL_STEP, dim=1), *ids[:, capacity:].split(1, dim=1)]
    start = 0
    for part in parts:
        if part.shape[1]:
            yield start, side.step(part)
        start += part.shape[1]


def _attention_outputs(
    build: Builder, decoder: Decoder, ids: Tensor, capacity: int, outputs: list[Tensor]
) -> list[Tensor]:
    outputs.clear()
    for _ in _read(build(decoder, capacity, 1), ids):
        pass
    return list(outputs)


def _record_attention(decoder: Decoder) -> list[Tensor]:
    """A list that every layer of the decoder appends its attention's output to."""
    outputs: list[Tensor] = []

    def recording(project: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def projected(out: Tensor) -> Tensor:
            outputs.append(out)
            return project(out)

        return projected

    layers = tuple(replace(layer, out=recording(layer.out)) for layer in decoder.parts.layers)
    decoder.parts = replace(decoder.parts, all_layers=layers)
    return outputs


class _ExactRotary(nn.Module):
    """A model's RoPE with angles in float64; transformers computes them in float32 whatever the model's type."""

    def __init__(self, rotary: Any) -> None:
        super().__init__()
        self.rotary = rotary

    def forward(self, hidden_states: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        half = position_ids[..., None].double() * self.rotary.inv_freq.double()
        angle, scale = torch.cat((half, half), dim=-1), self.rotary.attention_scaling
        return angle.cos() * scale, angle.sin() * scale
