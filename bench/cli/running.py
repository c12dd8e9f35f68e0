"""Steps of every measuring command: go on from a stopped run, show and write the result."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ondevice.cli.running import command_line, empty_result
from ondevice.cli.terminal import out, print_json, say
from ondevice_bench.cli.cards import card

if TYPE_CHECKING:
    from ondevice.result import Result
    from ondevice.session.engine import Engine


def begin(engine: Engine, out_file: Path | None = None) -> Result:
    """An empty result of this command, or the unfinished one in `out_file` if it was measured in just the same way."""
    result, earlier = empty_result(engine, command_line(sys.argv[1:])), unfinished(out_file)
    if earlier is not None and not is_same_run(earlier, result):
        say(f"{out_file} holds an unfinished run with other settings or of another commit; starting over.", "yellow")
    return earlier if earlier is not None and is_same_run(earlier, result) else result


def unfinished(out_file: Path | None) -> Result | None:
    """The result of a run that was stopped, where a file holds one."""
    from ondevice_bench.results.files import read_result

    if out_file is None or not out_file.is_file():
        return None
    earlier = read_result(out_file)
    return None if earlier.complete else earlier


def is_same_run(earlier: Result, result: Result) -> bool:
    """True if an earlier result was measured in just the same way as one without rows."""
    return replace(earlier, date=result.date, command=result.command, rows=(), summary={}) == result


def finish(result: Result, out_file: Path | None, as_json: bool) -> None:
    """Write a complete result, show its card, and with `--json` print it in the last line."""
    from ondevice.result import write_result

    result = replace(result, complete=True)
    if out_file is not None:
        write_result(out_file, result)
    out().print(card(result))
    if as_json:
        print_json(result.to_dict())
