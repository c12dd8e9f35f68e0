"""Steps of commands that work with an engine: load it, and name the command that repeats a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ondevice.cli.progress import ProgressDisplay
from ondevice.cli.terminal import say

if TYPE_CHECKING:
    from ondevice.config import EngineConfig
    from ondevice.result import Result
    from ondevice.session.engine import Engine


def load_engine(config: EngineConfig, display: ProgressDisplay) -> Engine:
    """Load the model with its progress shown, and pass on what it has to say about itself, once."""
    from ondevice.session.engine import Engine

    engine = Engine.load(config, on_progress=display.stage)
    display.clear()
    if engine.loaded.notice:
        say(f"Note: {engine.loaded.notice}", "yellow")
    return engine


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
    from ondevice.decode.calibration import thresholds
    from ondevice.result import new_result

    result = new_result(command, engine.config, engine.loaded.device)
    art = engine.config.art
    if art.enabled:  # what decides is not among the settings
        result.config["art"]["thresholds"] = thresholds(engine.loaded.fingerprint, art, engine.config.pot)
    return result
