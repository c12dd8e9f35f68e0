"""Cost of pruning schedules: how much faster each reads than the same pot without, and how much of the text is lost.

Every schedule stands beside a reading without pruning just before it, so that its ratio is of neighbours in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ondevice.config import EngineConfig, SlimConfig
from ondevice.documents import Document
from ondevice.events import DocumentRead
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from ondevice_bench.quality.measurement import Measurement
from ondevice_bench.quality.recall import pot_loss, recall_config, span_starts
from ondevice_bench.results.names import contender_name
from ondevice_bench.results.result import Row, row


@dataclass(frozen=True, slots=True)
class Point:
    """One schedule: its reading speed over that without pruning, and nats per token of each span's continuation."""

    slim: SlimConfig
    num_tokens: int
    speed_ratio: float
    losses: tuple[float, ...]


def run_curve(engine: Engine, document: Document, schedules: Sequence[str], num_spans: int) -> Iterator[Point]:
    """Read a document with every schedule; `off` among them is measured against itself.

    Args:
        engine: with settings from `recall_config`.
    """
    _read(engine, document, replace(engine.config.slim, schedule="off"))  # what is slow only once is not counted
    for schedule in schedules:
        slim = replace(engine.config.slim, schedule=schedule)
        _, plain_speed = _read(engine, document, replace(slim, schedule="off"))
        session, speed = _read(engine, document, slim)
        starts = span_starts(session.context.num_read, num_spans)
        losses = tuple(pot_loss(session, start) for start in starts)
        yield Point(slim, session.context.num_read, speed / plain_speed, losses)


def rows_of(points: Sequence[Point], config: EngineConfig) -> tuple[Row, ...]:
    """Two rows for each schedule."""
    rows = []
    for point in points:
        case = {"tokens": point.num_tokens, "schedule": point.slim.schedule}
        name = contender_name(replace(config, slim=point.slim))
        rows.append(row(name, case, "reading speed ratio", "x", [point.speed_ratio]))
        rows.append(row(name, case, "mean loss", "nats", [float(np.mean(point.losses))]))
    return tuple(rows)


def _read(engine: Engine, document: Document, slim: SlimConfig) -> tuple[Session, float]:
    """A session that has read the document, and its tokens per second."""
    session = engine.session(replace(engine.config, slim=slim))
    *_, read = session.read(document)
    assert isinstance(read, DocumentRead)
    return session, session.context.num_read / read.seconds


MEASUREMENT = Measurement[Point](
    lambda setup, options: run_curve(
        setup.engine, setup.beginning(options.text, options.tokens), options.schedules.split(), options.spans
    ),
    rows_of,
    lambda points: {},
    config=lambda given, _: recall_config(given()),
    line=lambda point: (
        f"{point.slim.schedule}: {point.speed_ratio:.2f} times as fast, {np.mean(point.losses):.2f} nats"
    ),
)
