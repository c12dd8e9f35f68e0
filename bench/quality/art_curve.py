"""Cost of run-time termination: how much of the pot each rule leaves unread, and how much of the text is lost.

A document is read once; then its spans are continued token by token with one rule after the other, the rule of the
settings without each of its parts among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from ondevice.kernels.termination import Termination

from ondevice.config import ArtConfig, EngineConfig, PotConfig
from ondevice.decode.calibration import calibrated
from ondevice.decode.termination import DEFAULT, RunTimeTermination, rules_of
from ondevice.documents import Document
from ondevice.planning.recorded_queries import evenly
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Measurement
from ondevice_bench.quality.recall import pot_loss, recall_config, span_starts
from ondevice_bench.results.names import contender_name
from ondevice_bench.results.result import Row, row

OFF = "everything is read"


@dataclass(frozen=True, slots=True)
class Point:
    """One rule: nats per token of each span's continuation, and the share of blocks read for it."""

    name: str
    num_tokens: int
    losses: tuple[float, ...]
    share_read: float


Rules = tuple[Termination, ...]


def rules(chosen: Rules, taus: Sequence[float]) -> Iterator[tuple[str, Rules | None]]:
    """The rules that are compared, by name: none, those of the settings, the ablations of the paper's Table 2 that
    change something (calibrated rules have no bound for the direction), and one threshold for all heads after another.
    """
    yield OFF, None
    yield "settings", chosen
    for part, without in (
        ("scale", {"tau": math.inf}),
        ("direction", {"phi": math.inf}),
        ("patience", {"patience": 1}),
    ):
        if (ablated := tuple(replace(rule, **without) for rule in chosen)) != chosen:
            yield f"settings without {part}", ablated
    for tau in taus:
        yield f"tau {tau:g}", (replace(DEFAULT, tau=tau),) * len(chosen)


def thresholds(fingerprint: str, art: ArtConfig, pot: PotConfig) -> str:
    """Origin of an answer's thresholds: `named` by the settings, `calibrated` for the model, or `usual`."""
    if art.published or art.tau is not None:
        return "named"
    return "calibrated" if calibrated(fingerprint, art, pot) is not None else "usual"


def run_art_curve(engine: Engine, document: Document, taus: Sequence[float], num_spans: int) -> Iterator[Point]:
    """Read a document, then a point for each rule.

    Args:
        engine: with settings from `recall_config`.
    """
    art = replace(engine.config.art, enabled=True)
    chosen = rules_of(
        art, calibrated(engine.loaded.fingerprint, art, engine.config.pot), len(engine.decoder.parts.layers)
    )
    session = engine.session()
    for _ in session.read(document):
        pass
    starts = span_starts(session.context.num_read, num_spans)
    for name, some in rules(chosen, taus):
        reading = RunTimeTermination(session.context.pot, art, some)
        losses = tuple(pot_loss(session, start, reading) for start in starts)
        yield Point(name, session.context.num_read, losses, reading.account().share)


def rows_of(points: Sequence[Point], config: EngineConfig) -> tuple[Row, ...]:
    """Two rows for each rule."""
    rows, name = [], contender_name(replace(config, art=ArtConfig()))
    for point in points:
        case = {"tokens": point.num_tokens, "rule": point.name}
        rows.append(row(name, case, "share of blocks not read", "share", [1 - point.share_read]))
        rows.append(row(name, case, "mean loss", "nats", [float(np.mean(point.losses))]))
    return tuple(rows)


def art_config(config: EngineConfig) -> EngineConfig:
    """The settings with run-time termination."""
    return evenly(replace(config, art=replace(config.art, enabled=True)))


MEASUREMENT = Measurement[Point](
    lambda setup, options: run_art_curve(
        setup.engine, setup.beginning(options.text, options.tokens), options.taus, options.spans
    ),
    rows_of,
    lambda points: {},
    config=lambda given, _: art_config(recall_config(given())),
    line=lambda point: f"{point.name}: {1 - point.share_read:.0%} not read, {np.mean(point.losses):.3f} nats",
)
