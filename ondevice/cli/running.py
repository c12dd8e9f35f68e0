"""The step of all commands that work with an engine: load it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ondevice.cli.progress import ProgressDisplay
from ondevice.cli.terminal import say

if TYPE_CHECKING:
    from ondevice.config import EngineConfig
    from ondevice.session.engine import Engine


def load_engine(config: EngineConfig, display: ProgressDisplay) -> Engine:
    """Load the model with its progress shown, and pass on what it has to say about itself, once."""
    from ondevice.session.engine import Engine

    engine = Engine.load(config, on_progress=display.stage)
    display.clear()
    if engine.loaded.notice:
        say(f"Note: {engine.loaded.notice}", "yellow")
    return engine
