"""Perplexity over a stream: how well a model predicts the next tokens of a text from what it keeps of those before.

Reading stops at places that lie evenly over the text, the same for every contender; there the next tokens are read,
their cross-entropy taken, and the pot is put back as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ondevice.config import EngineConfig, GenerationConfig
from ondevice.documents import Document
from ondevice.errors import ConfigError
from ondevice.events import Event
from ondevice.session.session import Session
from ondevice_bench.quality.contenders import CONTENDERS, budget_of, chosen, config_of, fits_whole
from ondevice_bench.quality.measurement import Measurement, Note, Setup
from ondevice_bench.quality.trials import key_of
from ondevice_bench.results.result import Row, row

AHEAD = 128  # tokens that are predicted at each place
USUAL = ("pot", "streaming-llm", "full")


@dataclass(frozen=True, slots=True)
class Place:
    """Nats per token of the next tokens, once `num_read` of the text were read."""

    contender: str
    num_read: int
    loss: float


def run_perplexity(
    setup: Setup, document: Document, names: Sequence[str], budget: int, num_places: int
) -> Iterator[Event | Note | Place]:
    """Events while each contender reads, and its places.

    Raises:
        ConfigError: the text is too short for that many places.
    """
    num_tokens = sum(len(setup.engine.loaded.tokenizer.encode(page.text)[0]) for page in document.pages)
    places = [round((i + 1) * (num_tokens - AHEAD) / num_places) for i in range(num_places)]
    if places[0] < AHEAD:
        raise ConfigError(
            f"The text has {num_tokens:,} tokens, too few for {num_places} places of {AHEAD}",
            where=document.name,
            fix="Name a longer file, or lower --places.",
        )
    for name in names:
        contender = CONTENDERS[name]
        config = config_of(setup.engine, name, setup.engine.config, budget)
        if contender.is_full and not fits_whole(setup.engine, config, num_tokens):
            yield Note(f"{name}: {num_tokens:,} tokens do not fit into the model's window, or into memory.")
            continue
        session = setup.engine.session(config)
        yield from session.open(document)
        total = session.context.tokens.num_tokens
        for place in places:
            yield from _read_to(session, place, total)
            yield Place(name, place, _loss_ahead(session, place))
        del session  # its memory goes before another one takes as much


def rows_of(places: Sequence[Place], _: EngineConfig | None = None) -> list[Row]:
    """A row for each contender and place."""
    return [row(one.contender, {"tokens": one.num_read}, "loss", "nats", [one.loss]) for one in places]


def summary_of(places: Sequence[Place]) -> dict[str, float]:
    """Perplexity over all places of each contender."""
    return {
        f"perplexity_{key_of(name)}": math.exp(np.mean([one.loss for one in places if one.contender == name]))
        for name in dict.fromkeys(one.contender for one in places)
    }


def _read_to(session: Session, place: int, total: int) -> Iterator[Event]:
    context = session.context
    context.spans = [(context.spans[0][0], place), (place, total)]
    for event in session.resume():
        yield event
        if context.num_read >= place:
            session.stop()


def _loss_ahead(session: Session, place: int) -> float:
    """The first of the tokens ahead is read and not scored: its prediction is gone with the pass before."""
    context = session.context
    ids = context.decoder.ids(context.tokens.ids(place, place + AHEAD))
    with context.pot.savepoint():
        states = context.decoder.forward(ids, context.pot).hidden_states
        return float(context.decoder.head.token_loss(states[:, :-1], ids[:, 1:]).mean())


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    config = given()
    names = _chosen(options)
    for name in names:
        if CONTENDERS[name].reads != "text":
            raise ConfigError(f"--contenders holds {name}, which does not read on", fix="Name policies, pot or full.")
    budget_of(config, options.budget)
    if config.pot.reserve < AHEAD:
        raise ConfigError(f"--reserve is {config.pot.reserve}, and {AHEAD} tokens are read ahead", fix="Raise it.")
    return replace(config, generation=GenerationConfig(max_new_tokens=1, chat=False, num_sources=0))


def _chosen(options: Any) -> tuple[str, ...]:
    return chosen(options.contenders) if options.contenders.strip() else USUAL


def _measure(setup: Setup, options: Any) -> Iterator[Event | Note | Place]:
    budget = budget_of(setup.engine.config, options.budget)
    yield from run_perplexity(
        setup, setup.beginning(options.text, options.tokens), _chosen(options), budget, options.places
    )


MEASUREMENT = Measurement[Place](
    _measure,
    rows_of,
    summary_of,
    config=_config,
    line=lambda place: f"{place.contender}, {place.num_read:,} tokens read: {place.loss:.3f} nats a token",
)
