"""The share of a question's attended tokens that a pot keeps (InfiniPot, Figures 2 and 3).

A full cache says which tokens the last token of a question attends to most, head by head: as many as the pot holds in
that head. Of these, the share that the pot holds is its hit rate, after every distillation. The overlap is the share of
what one pot holds that another one, distilled by the catalyst alone, holds at the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ondevice.config import EngineConfig
from ondevice.documents import Document
from ondevice.errors import ConfigError
from ondevice.events import Event, PotDistilled
from ondevice.pot.memory_pot import MemoryPot
from ondevice.session.engine import Engine, Session
from ondevice_bench.quality.contenders import CONTENDERS, budget_of, chosen
from ondevice_bench.quality.measurement import Measurement, Setup
from ondevice_bench.quality.recall import CUE_TOKENS, recall_config, span_starts
from ondevice_bench.quality.trials import key_of
from ondevice_bench.results.result import Row, row
from ondevice_bench.results.tables import fold_trials

HIT_RATE, OVERLAP = "hit rate", "overlap with the catalyst alone"
ALONE = "published-alpha-0"  # the catalyst without novelty
ASKED = "published-asked"  # the catalyst is the question itself


@dataclass(frozen=True, slots=True)
class Cycle:
    """Hit rates of a contender after a distillation, by the number of the question, and its overlap with `ALONE`.

    None: it is not compared with that.
    """

    contender: str
    num_read: int
    hit_rates: dict[int, float]
    overlap: float | None = None

    @property
    def hit_rate(self) -> float:
        """The mean over questions."""
        return float(np.mean([*self.hit_rates.values()]))


def most_attended(session: Session, ids: Sequence[int]) -> Tensor:
    """Attention (pairs, num_tokens) float32 that the last of `ids` pays to the document in a full cache."""
    context = session.context
    with context.pot.savepoint():
        mass = context.decoder.forward(context.decoder.ids(ids), context.pot, num_observed=1).mass
    own = torch.stack(mass).flatten(0, 2)
    origin = context.pot.origin[0].reshape(-1)[: own.shape[-1]]
    return own[:, : origin.shape[0]][:, origin >= 0]


def held(pot: MemoryPot, num_tokens: int) -> Tensor:
    """The document tokens that each (layer, head) pair holds: (pairs, num_tokens) bool."""
    origin = pot.origin.flatten(0, 2).long()
    found = torch.zeros((origin.shape[0], num_tokens + 1), dtype=torch.bool, device=origin.device)
    return found.scatter_(1, origin.clamp(min=-1) + 1, True)[:, 1:]


def hit_rate(kept: Tensor, attended: Tensor) -> float:
    """Share of the most attended tokens that are held, as many of them in each pair as it holds, mean over pairs.

    Args:
        kept: (pairs, n) bool.
        attended: (pairs, n or more) float; what lies behind was not read yet.
    """
    ranks = attended[:, : kept.shape[1]].argsort(dim=-1, descending=True).argsort(dim=-1)
    counts = kept.sum(dim=-1, keepdim=True)
    hits = (kept & (ranks < counts)).sum(dim=-1, keepdim=True)
    return float((hits / counts.clamp(min=1)).mean())


def run_hit_rate(
    engine: Engine, document: Document, names: Sequence[str], budget: int, num_spans: int
) -> Iterator[Event | Cycle]:
    """Events while the contenders read, and their cycles.

    Args:
        engine: with settings from `recall_config`.

    Raises:
        ConfigError: the text does not fit into the model's window.
    """
    full = engine.session(CONTENDERS["full"].config(engine.config, budget))
    yield from full.open(document)
    tokens = full.context.tokens
    if tokens.num_tokens + CUE_TOKENS > engine.loaded.max_positions:
        raise ConfigError(
            f"The text has {tokens.num_tokens:,} tokens, and the model's window {engine.loaded.max_positions:,}",
            where=document.name,
            fix="Give a smaller --tokens.",
        )
    yield from full.resume()
    cues = [tokens.ids(start, start + CUE_TOKENS).tolist() for start in span_starts(tokens.num_tokens, num_spans)]
    attended = {number: most_attended(full, cue) for number, cue in enumerate(cues)}
    del full
    alone: dict[int, Tensor] = {}
    for name in dict.fromkeys((ALONE, *names)):
        for config, own in _readings(engine, name, budget, cues, attended):
            session = engine.session(config)
            yield from session.open(document)
            for event in session.resume():
                yield event
                if isinstance(event, PotDistilled):
                    kept = held(session.context.pot, event.num_read)
                    if name == ALONE:
                        alone[event.num_read] = kept
                    rates = {number: hit_rate(kept, one) for number, one in own.items()}
                    yield Cycle(name, event.num_read, rates, _overlap(kept, alone.get(event.num_read)))


def _readings(
    engine: Engine, name: str, budget: int, cues: Sequence[list[int]], attended: Mapping[int, Tensor]
) -> Iterator[tuple[EngineConfig, Mapping[int, Tensor]]]:
    """The settings of each reading, and the questions that it is held against: one that knows its own for each."""
    if name != ASKED:
        yield CONTENDERS[name].config(engine.config, budget), attended
        return
    config = CONTENDERS["infinipot-published"].config(engine.config, budget)
    for number, cue in enumerate(cues):
        pot = replace(config.pot, catalyst="question", catalyst_text=engine.loaded.tokenizer.decode(cue))
        yield replace(config, pot=pot), {number: attended[number]}


def _overlap(kept: Tensor, other: Tensor | None) -> float | None:
    if other is None or other.shape != kept.shape:
        return None
    return float(((kept & other).sum(dim=-1) / kept.sum(dim=-1).clamp(min=1)).mean())


def rows_of(cycles: Sequence[Cycle], _: EngineConfig | None = None) -> list[Row]:
    """A row for each contender, number of tokens read and question; overlaps are means over readings."""
    groups: dict[tuple[str, int], list[Cycle]] = {}
    for one in cycles:
        groups.setdefault((one.contender, one.num_read), []).append(one)
    rows = []
    for (name, num_read), of in groups.items():
        rates = {number: rate for one in of for number, rate in one.hit_rates.items()}
        for number, rate in rates.items():
            rows.append(row(name, {"tokens": num_read, "trial": number}, HIT_RATE, "share", [rate]))
        if overlaps := [one.overlap for one in of if one.overlap is not None]:
            rows.append(row(name, {"tokens": num_read}, OVERLAP, "share", [float(np.mean(overlaps))]))
    return rows


def summary_of(cycles: Sequence[Cycle]) -> dict[str, float]:
    """Hit rate of each contender after its last distillation."""
    rows = fold_trials([one for one in rows_of(cycles) if one.metric == HIT_RATE])
    return {f"hit_rate_{key_of(one.contender)}": one.p50 for one in rows}


def _names(options: Any) -> tuple[str, ...]:
    names = tuple(name.strip() for name in options.contenders.split(","))
    chosen(",".join(name for name in names if name != ASKED) or ALONE)
    return names


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    config = given()
    for name in _names(options):
        if name != ASKED and (CONTENDERS[name].reads != "text" or name == "full"):
            raise ConfigError(f"--contenders holds {name}, which distils nothing", fix="Name policies or pot.")
    budget_of(config, options.budget)
    return recall_config(config)


def _measure(setup: Setup, options: Any) -> Iterator[Event | Cycle]:
    document = setup.beginning(options.text, options.tokens)
    budget = budget_of(setup.engine.config, options.budget)
    yield from run_hit_rate(setup.engine, document, _names(options), budget, options.spans)


MEASUREMENT = Measurement[Cycle](
    _measure,
    rows_of,
    summary_of,
    config=_config,
    line=lambda one: f"{one.contender}, {one.num_read:,} tokens read: {one.hit_rate:.1%} of what is looked at is held",
)
