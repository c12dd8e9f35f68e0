"""`ondevice eval NAME --address`: each row of a grid measured on an engine of its own, and put together here."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ondevice.cli.terminal import say
from ondevice.config import EngineConfig
from ondevice_batch.command import Cluster
from ondevice_bench.cli.running import command_line, empty_result, is_same_run, unfinished
from ondevice_bench.quality.entry import Entry

if TYPE_CHECKING:
    from ondevice_bench.results.result import Result


class Cell:
    """An engine that measures rows of a grid, in a process of a cluster.

    Args:
        entry: what is measured.
        config: of the engine.
        cells: the options of each row.
        command: that the result is of.
        earlier: rows of a run that was stopped, as JSON; "" where there is none.
        threads: that compute.
    """

    def __init__(
        self,
        entry: Entry,
        config: EngineConfig,
        cells: Sequence[SimpleNamespace],
        command: str,
        earlier: str,
        threads: int,
    ) -> None:
        import torch

        from ondevice.session.engine import Engine
        from ondevice_bench.results.files import parse_result

        torch.set_num_threads(threads)
        self._entry, self._cells, self._engine = entry, cells, Engine.load(config)
        self._empty = empty_result(self._engine, command)
        found = parse_result(json.loads(earlier)) if earlier else None
        self._earlier = found.rows if found is not None and is_same_run(found, self._empty) else ()

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The `result` of one cell as JSON, with its new rows alone, and whether it `goes_on` with earlier ones."""
        from ondevice.documents.extract import read
        from ondevice.events import Event
        from ondevice_bench.quality.measurement import Note, Setup

        measurement, items, notes = self._entry.measurement(), list[Any](), list[str]()
        result = self._empty
        setup = Setup(self._engine, lambda *_: None, read, result.config, self._earlier, None)
        for item in measurement.run(setup, self._cells[row["cell"]]):
            if isinstance(item, Note):
                notes.append(item.text)
            elif not isinstance(item, Event):
                items.append(item)
        rows = tuple(measurement.rows(items, self._engine.config)) if items else ()
        done = replace(result, rows=rows).to_dict()
        return {
            "cell": row["cell"],
            "result": json.dumps(done),
            "goes_on": bool(self._earlier),
            "notes": json.dumps(notes),
        }


def measure_grid(
    entry: Entry, config: EngineConfig, options: SimpleNamespace, cluster: Cluster, out_file: Path | None
) -> tuple[Result, str]:
    """The result, and what is to be said after it; a stopped run goes on from `out_file`."""
    from ondevice_batch.cluster import running
    from ondevice_bench.results.result import write_result

    measurement, earlier, cells = entry.measurement(), unfinished(out_file), cells_of(entry, options)
    known = "" if earlier is None else json.dumps(earlier.to_dict())
    found: dict[int, Result] = {}
    result: Result | None = None
    with running(cluster.address, cluster.share(config)) as share:
        from ondevice_bench.cli.grid import in_cells
        from ondevice_bench.results.files import parse_result

        arguments = (entry, config, cells, command_line(sys.argv[1:]), known, share.cpus)
        for row in in_cells(Cell, arguments, len(cells), share):
            one = found[row["cell"]] = parse_result(json.loads(row["result"]))
            for note in json.loads(row["notes"]):
                say(note)
            before = earlier.rows if earlier is not None and row["goes_on"] else ()
            rows = (*before, *(each for cell in sorted(found) for each in found[cell].rows))
            figures = measurement.figures(rows, options) if measurement.figures and rows else {}
            result = replace(one, rows=rows, summary=figures)
            if out_file is not None:
                write_result(out_file, result)
            say(f"{len(found)} of {len(cells)} rows of the grid are done.")
    assert result is not None, "a grid has a row"
    return result, measurement.closing(result.summary) if measurement.closing else ""


def cells_of(entry: Entry, options: SimpleNamespace) -> list[SimpleNamespace]:
    """The options of each row: those given, with one value of what spans the grid."""
    from ondevice_bench.quality.contenders import chosen

    values = getattr(options, entry.grid)
    each = chosen(values) if isinstance(values, str) else [(value,) for value in values]
    return [SimpleNamespace(**{**vars(options), entry.grid: value}) for value in each]
