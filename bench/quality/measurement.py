"""The interface of all that is measured: a module of `quality` or `speed` ends with its `MEASUREMENT`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

from ondevice.config import EngineConfig
from ondevice.documents import Document
from ondevice.events import Event
from ondevice.planning.calibrate import beginning
from ondevice.session.engine import Engine
from ondevice_bench.results.result import Row

Item = TypeVar("Item")


class Note(NamedTuple):
    """A sentence for the user, between two items; `style` as rich names it."""

    text: str
    style: str = "dim"


class Table(NamedTuple):
    """The item of a measurement that has but one."""

    rows: Sequence[Row]
    summary: dict[str, float]


@dataclass(frozen=True, slots=True)
class Setup:
    """Inputs of a measurement.

    Attributes:
        engine: loaded with the settings from `Measurement.config`.
        report: shows a stage, the share of it that is done (None: unknown) and, where it is given, a detail.
        open: opens a document, and asks for its password where it has one.
        settings: those in the result; a measurement may add what else decides.
        earlier: rows of the stopped run that this one goes on from.
        out_file: where the results go.
    """

    engine: Engine
    report: Callable[..., None]
    open: Callable[[Path], Document]
    settings: dict[str, Any]
    earlier: tuple[Row, ...]
    out_file: Path | None

    def beginning(self, text: Path, num_tokens: int | None) -> Document:
        """The first tokens of a document; None: all of it."""
        document = self.open(text)
        return document if num_tokens is None else beginning(document, num_tokens, self.engine.loaded.tokenizer)


@dataclass(frozen=True)
class Measurement(Generic[Item]):
    """One measurement; `options` has an attribute for each `Option` of its row in the registry.

    Attributes:
        run: from the setup and the options: items as they are measured, with events and notes between them.
        rows: of all items, under the engine's settings; unless the item is a `Table`.
        summary: of all items, the figures by key; likewise.
        config: makes the engine's settings from the options and from what makes those of the command line (with
            `question=`, those for reading a text for that question); refuses what cannot be measured.
        line: shows one item as soon as there is one.
        closing: a last sentence, from the summary.
        figures: the summary of rows, however they came together, and of the options; only where there is a grid.
    """

    run: Callable[[Setup, Any], Iterator[Event | Note | Item]]
    rows: Callable[[Sequence[Item], EngineConfig], Sequence[Row]] = lambda tables, _: cast(Table, tables[0]).rows
    summary: Callable[[Sequence[Item]], dict[str, float]] = lambda tables: cast(Table, tables[0]).summary
    config: Callable[[Callable[..., EngineConfig], Any], EngineConfig] = lambda given, options: given()
    line: Callable[[Item], str] | None = None
    closing: Callable[[Mapping[str, float]], str] | None = None
    figures: Callable[[Sequence[Row], Any], dict[str, float]] | None = None
