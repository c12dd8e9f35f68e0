"""Steps of every measuring command: go on from a stopped run, show and write the result."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ondevice.cli.terminal import out, print_json, say
from ondevice_bench.cli.cards import card

if TYPE_CHECKING:
    from ondevice.session.engine import Engine
    from ondevice_bench.results.result import Result


def begin(engine: Engine, out_file: Path | None = None) -> Result:
    """An empty result of this command, or the unfinished one in `out_file` if it was measured in just the same way."""
    result, earlier = empty_result(engine, command_line(sys.argv[1:])), unfinished(out_file)
    if earlier is not None and not is_same_run(earlier, result):
        say(f"{out_file} holds an unfinished run with other settings or of another commit; starting over.", "yellow")
    if earlier is None or not is_same_run(earlier, result):
        return result
    return replace(earlier, command=result.command)  # it may have other contenders by now


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
    from ondevice_bench.results.result import write_result

    result = replace(result, complete=True)
    if out_file is not None:
        write_result(out_file, result)
    out().print(card(result))
    if as_json:
        print_json(result.to_dict())


def command_line(arguments: Sequence[str]) -> str:
    """The command that repeats a run: without --out, and of absolute paths only the name."""
    kept: list[str] = []
    for before, argument in zip(("", *arguments), arguments, strict=False):
        if "--out" in (before, argument) or argument.startswith("--out="):
            continue
        option, equals, value = argument.partition("=") if argument.startswith("-") else ("", "", argument)
        kept.append(f"{option}{equals}{Path(value).name if Path(value).is_absolute() else value}")
    return shlex.join(["ondevice", *kept])


def empty_result(engine: Engine, command: str) -> Result:
    """A result of a command without rows."""
    from ondevice_bench.quality.art_curve import thresholds
    from ondevice_bench.results.result import new_result

    result = new_result(command, engine.config, engine.loaded.device)
    art = engine.config.art
    if art.enabled:  # what decides is not among the settings
        result.config["art"]["thresholds"] = thresholds(engine.loaded.fingerprint, art, engine.config.pot)
    return result
