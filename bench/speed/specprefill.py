"""SpecPrefill: the time to the first token of a prompt, beside the same prompt read whole, and beside its bound:
the estimate from FLOPs that the paper gives that name, see `ttft_bound`.

Both go through the decoder and the speculator as a session uses them, into pots that are there before the clock runs.
Weights are random where a pair of models is named by its shapes: what they say does not matter here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ondevice.config import PotConfig, SpecConfig
from ondevice.model.decoder import Decoder
from ondevice.model.families.parts import ModelParts
from ondevice.session.engine import Engine
from ondevice.speculator.choose import choose, importance
from ondevice.speculator.speculator import Speculator
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.random_model import SHAPES, random_model
from ondevice_bench.speed.turns import Seconds, take_turns

KEEPS = (10, 30, 50)
_WHOLE = "whole prompt"
_QUESTION_TOKENS = 8  # the end of the prompt, which is always read; as a part of the last pass


@dataclass(frozen=True, slots=True)
class Pair:
    """A main model and its speculator, and how wide their MLPs are."""

    name: str
    main: Decoder
    main_intermediate: int
    speculator: Decoder
    speculator_intermediate: int

    def bound(self, num_tokens: int, keep: float, *, num_logits: int | None) -> float:
        """So many times sooner by the paper's estimate; `num_logits` as for `prompt_flops`."""
        base = prompt_flops(self.main.parts, self.main_intermediate, num_tokens, num_logits=num_logits)
        none = None if num_logits is None else 0  # the speculator's attention is wanted, not what it predicts
        small = prompt_flops(self.speculator.parts, self.speculator_intermediate, num_tokens, num_logits=none)
        return ttft_bound(base, small, keep)


def prompt_flops(parts: ModelParts, intermediate_size: int, num_tokens: int, *, num_logits: int | None = None) -> float:
    """Multiply-accumulate operations of a prompt of `num_tokens` tokens, batch 1.

    The paper counts L S D (3 I + D (2 + 2 H'/H) + 2 S) + S D V: the MLP, the projections, the attention without its
    causal half, and the head of the language model for every token.

    Args:
        parts: of the model; cut off after some layers it counts those.
        intermediate_size: I, of its MLP.
        num_logits: tokens that go through the head; None: all, as in the paper. A prompt needs the last one's only.
    """
    heads = parts.num_heads * parts.head_dim  # D where the heads are as wide as the model, as in the paper
    groups = parts.num_kv_heads / parts.num_heads
    layer = parts.hidden_size * 3 * intermediate_size + parts.hidden_size * heads * (2 + 2 * groups)
    attention = 2 * num_tokens * heads
    head = parts.hidden_size * parts.vocab_size * (num_tokens if num_logits is None else num_logits)
    return len(parts.layers) * num_tokens * (layer + attention) + head


def ttft_bound(base: float, speculator: float, keep: float) -> float:
    """Speedup of the first token by the paper's estimate: FLOPS(base) / (FLOPS(spec) + keep *
    FLOPS(base)).

    The paper calls it the most that can be reached. It is that for all work but attention, which falls with the square
    of `keep`, as chosen tokens look at chosen tokens only: what is measured may exceed it.
    """
    return base / (speculator + keep * base)


def run_ttft(
    pair: Pair, num_tokens: int, *, num_lookahead: int, step_size: int, rounds: int, keeps: Sequence[int] = KEEPS
) -> list[Row]:
    """Rows of one prompt length; contenders take turns, each round gives one ratio for every share."""
    contenders: dict[str, Callable[[], object]] = {_WHOLE: _Whole(pair.main, num_tokens, step_size)}
    for keep in keeps:
        spec = SpecConfig(keep=keep / 100, model=pair.name, num_lookahead=num_lookahead)
        contenders[_name(keep)] = _Skimmed(pair, num_tokens, step_size, spec)
    seconds = take_turns(
        contenders, pair.main.device, min_rounds=rounds, max_rounds=rounds, budget_seconds=float("inf")
    )
    return _rows(pair, num_tokens, num_lookahead, seconds, keeps)


def summary_of(rows: Sequence[Row]) -> dict[str, float]:
    """The measured share of the bound: the geometric mean over the shares kept, and the worst of them.

    Of the first pair among the rows, without look-ahead, which the bound does not know of. The bound is that of the
    work really done, whose head sees one token; against the paper's own formula, in which it sees all, stands
    `ttft_share_of_paper_bound`.
    """
    rows = [one for one in rows if one.case.get("look-ahead", 0) == 0]
    first = next((one.case["models"] for one in rows if "models" in one.case), None)
    summary = {}
    for name, metric in (
        ("ttft_share_of_bound", "share of the bound"),
        ("ttft_share_of_paper_bound", "share of the bound with all logits"),
    ):
        shares = [one.p50 for one in rows if one.metric == metric and one.case["models"] == first]
        if shares:
            summary[name] = float(np.exp(np.mean(np.log(shares))))
            summary[f"{name}_worst"] = min(shares)
    return summary


class _Whole:
    """A prompt through the main model alone, up to its first token."""

    def __init__(self, decoder: Decoder, num_tokens: int, step_size: int) -> None:
        self._decoder, self._step_size = decoder, step_size
        self._ids, self._question = _prompt(decoder, num_tokens)
        self._pot = decoder.new_pot(num_tokens + _QUESTION_TOKENS)

    def __call__(self) -> None:
        *parts, last = self._ids.split(self._step_size, dim=1)
        for part in parts:
            self._decoder.forward(part, self._pot)
        out = self._decoder.forward(torch.cat((last, self._question), dim=1), self._pot)
        self._decoder.head.likeliest(out.hidden_states[:, -1])
        layers = self._pot.shape.num_layers
        self._pot.rewind_to_([0] * layers, [0] * layers)


class _Skimmed:
    """The same prompt, read by the speculator and then, as far as it lets it through, by the main model."""

    def __init__(self, pair: Pair, num_tokens: int, step_size: int, spec: SpecConfig) -> None:
        self._main, self._spec, self._step_size = pair.main, spec, step_size
        self._ids, self._question = _prompt(pair.main, num_tokens)
        reserve = _QUESTION_TOKENS + spec.num_lookahead
        pot = PotConfig(
            policy="full",  # nothing is evicted, and nothing is to be observed for it
            capacity=num_tokens + reserve,
            num_kept=num_tokens // 2,
            reserve=reserve,
            step_size=step_size,
        )
        self._speculator = Speculator(
            pair.speculator, pot, spec, prompt=self._question, prefix=(), eos_ids=frozenset(), seed=0
        )
        self._speculator.begin(num_tokens)
        self._pot = pair.main.new_pot(num_tokens + _QUESTION_TOKENS)

    def __call__(self) -> None:
        speculator, num_tokens = self._speculator, self._ids.shape[1]
        chosen = choose(importance(speculator.read(self._ids)), self._spec, is_first=True)
        parts, start = list(chosen.split(self._step_size)), 0
        for i, part in enumerate(parts):
            ids, is_last = self._ids[:, part], i + 1 == len(parts)
            stop = num_tokens + _QUESTION_TOKENS if is_last else int(parts[i + 1][0])
            if is_last:
                ids = torch.cat((ids, self._question), dim=1)
                part = torch.cat((part, torch.arange(num_tokens, stop, device=part.device)))
            origin = torch.arange(start, stop, dtype=torch.int32, device=self._main.device)
            out = self._main.forward(ids, self._pot, origin=origin, offsets=part - start, span=stop - start)
            start = stop
        self._main.head.likeliest(out.hidden_states[:, -1])
        for pot in (self._pot, speculator.opened_pot()):
            pot.rewind_to_([0] * pot.shape.num_layers, [0] * pot.shape.num_layers)
        speculator.num_seen = 0


def _prompt(decoder: Decoder, num_tokens: int) -> tuple[Tensor, Tensor]:
    """Ids of a prompt and of the question after it."""
    generator = torch.Generator().manual_seed(num_tokens)
    ids = torch.randint(0, 256, (1, num_tokens + _QUESTION_TOKENS), generator=generator).to(decoder.device)
    return ids[:, :num_tokens], ids[:, num_tokens:]


def _rows(pair: Pair, num_tokens: int, num_lookahead: int, seconds: Seconds, keeps: Sequence[int]) -> list[Row]:
    case = {"models": pair.name, "prompt tokens": num_tokens, "look-ahead": num_lookahead}
    rows = [row(_WHOLE, case, "time to first token", "s", seconds[_WHOLE])]
    for keep in keeps:
        name, contender = _name(keep), f"SpecPrefill {keep} %"
        ratios = [whole / ours for whole, ours in zip(seconds[_WHOLE], seconds[name], strict=True)]
        bound = pair.bound(num_tokens, keep / 100, num_logits=1)
        paper = pair.bound(num_tokens, keep / 100, num_logits=None)
        rows += [
            row(contender, case, "time to first token", "s", seconds[name]),
            row(contender, case, "time to first token, speedup", "x", ratios),
            row(contender, case, "bound of the speedup", "x", [bound]),
            row(contender, case, "bound with all logits", "x", [paper]),
            row(contender, case, "share of the bound", "share", [float(np.median(ratios)) / bound]),
            row(contender, case, "share of the bound with all logits", "share", [float(np.median(ratios)) / paper]),
        ]
    return rows


def _name(keep: int) -> str:
    return f"keep {keep}"


def random_pair(main: str, speculator: str, *, device: torch.device | str, dtype: torch.dtype) -> Pair:
    """Models with random weights of two shapes of `SHAPES`."""
    big, small = (Decoder(random_model(name, device=device, dtype=dtype).model) for name in (main, speculator))
    sizes = [SHAPES[name].intermediate_size for name in (main, speculator)]
    return Pair(f"{main} / {speculator}", big, sizes[0], small, sizes[1])


def own_pair(decoder: Decoder, intermediate_size: int, name: str, num_layers: int) -> Pair:
    """A model and its own first layers."""
    cut = decoder.first_layers(num_layers)
    return Pair(f"{name} / its first {num_layers} layers", decoder, intermediate_size, cut, intermediate_size)


def _pairs(engine: Engine) -> list[Pair]:
    device, dtype = engine.decoder.device, engine.decoder.dtype
    pairs = [random_pair("llama-3.1-8b-small", "llama-3.2-1b-small", device=device, dtype=dtype)]
    if not engine.config.spec.model:
        speculator = engine.speculator(replace(engine.config.spec, keep=0.5))
        assert speculator is not None
        width, depth = engine.loaded.model.config.intermediate_size, len(speculator.parts.layers)
        pairs.append(own_pair(engine.decoder, width, engine.loaded.name, depth))
    return pairs


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    engine, quick, rows = setup.engine, options.quick, list[Row]()
    num_tokens, rounds = options.tokens or (256 if quick else 2048), 1 if quick else options.rounds
    for pair in _pairs(engine):
        for num_lookahead in (0,) if quick else (0, 8):
            setup.report(f"Reading prompts with {pair.name}", None)
            step_size = engine.config.pot.pass_size(engine.decoder.device.type)
            rows += run_ttft(pair, num_tokens, num_lookahead=num_lookahead, step_size=step_size, rounds=rounds)
    yield Table(rows, summary_of(rows))


MEASUREMENT = Measurement[Table](_measure)
