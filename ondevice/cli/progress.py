"""Progress on standard error: a bar in a terminal, a line now and then in a log; also while a model is loaded.

Every number comes from an event.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from ondevice import events, words
from ondevice.cli.terminal import printable, say
from ondevice.events import Event
from ondevice.telemetry.telemetry import Telemetry

if TYPE_CHECKING:
    from ondevice.config import EngineConfig
    from ondevice.session.engine import Engine

_LOG_SECONDS = 15.0  # between two lines of the same stage in a log


class ProgressDisplay(AbstractContextManager["ProgressDisplay"]):
    """Shows one stage at a time. Leave the block, or call `clear`, before writing anything else to the terminal.

    Args:
        console: where to show it.

    Attributes:
        telemetry: the events so far, folded.
    """

    def __init__(self, console: Console) -> None:
        self.telemetry = Telemetry()
        self._console = console
        self._stage = ""
        self._last_line = 0.0
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __exit__(self, *_: object) -> None:
        self.clear()

    def stage(self, stage: str, fraction: float | None, detail: str = "") -> None:
        """Show a stage with the fraction done; None if that is unknown, and then the bar says so."""
        if self._console.is_terminal:
            self._show_bar(stage, fraction, detail)
        else:
            self._write_line(stage, fraction, detail)

    def apply(self, event: Event) -> None:
        """Take an event into the telemetry and show what it means."""
        telemetry = self.telemetry
        telemetry.apply(event)
        match event:
            case events.PagesExtracted(done, total):
                self.stage("Extracting", _share(done, total), _counted(done, total, "pages"))
            case events.TextTokenized(done, total, num_tokens):
                self.stage("Tokenizing", _share(done, total), words.plural(num_tokens, "token"))
            case events.HeadsMeasured():
                self.stage("Measuring what each head of the model needs, once", None)
            case events.TokensRead() | events.PotDistilled():
                self.stage("Reading", _share(telemetry.num_passed, telemetry.num_total), reading_detail(telemetry))
            case events.DocumentOpened():
                self.stage(f"Opening {event.name}", None)

    def clear(self) -> None:
        """Take the bar off the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        self._stage = ""

    def _show_bar(self, stage: str, fraction: float | None, detail: str) -> None:
        stage, detail = printable(stage), printable(detail)
        if self._bar is None:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[detail]}", markup=False),
            )
            self._bar = Progress(*columns, console=self._console, transient=True, refresh_per_second=5)
            self._task = self._bar.add_task(stage, total=None, detail=detail)
            self._bar.start()
        total = None if fraction is None else 1.0
        self._bar.update(self._task, description=stage, total=total, completed=fraction or 0.0, detail=detail)

    def _write_line(self, stage: str, fraction: float | None, detail: str) -> None:
        now = time.monotonic()
        if stage == self._stage and now - self._last_line < _LOG_SECONDS:
            return
        self._stage, self._last_line = stage, now
        if not detail and fraction is not None:
            detail = f"{fraction:.0%}"
        self._console.print(Text(printable(f"{stage}: {detail}" if detail else stage)), soft_wrap=True)


def load_engine(config: EngineConfig, display: ProgressDisplay) -> Engine:
    """Load the model with its progress shown, and pass on what it has to say about itself, once."""
    from ondevice.session.engine import Engine

    engine = Engine.load(config, on_progress=display.stage)
    display.clear()
    if engine.loaded.notice:
        say(f"Note: {engine.loaded.notice}", "yellow")
    return engine


def reading_detail(telemetry: Telemetry) -> str:
    """Tokens read of how many, speed, time left; what is not known is not said."""
    parts = [_counted(telemetry.num_passed, telemetry.num_total, "tokens")]
    if telemetry.num_total:
        parts[0] += f" ({words.share(telemetry.num_passed, telemetry.num_total)})"
    if telemetry.num_skipped:
        parts.append(f"{words.count(telemetry.num_skipped)} skipped")
    if telemetry.tokens_per_second:
        parts.append(words.rate(telemetry.tokens_per_second))
    if telemetry.eta_seconds is not None:
        parts.append(f"{words.duration(telemetry.eta_seconds)} left")
    return ", ".join(parts)


def _share(done: int, total: int | None) -> float | None:
    return done / total if total else None


def _counted(done: int, total: int | None, unit: str) -> str:
    done_text = words.count(done)
    return f"{done_text} of {words.count(total)} {unit}" if total is not None else f"{done_text} {unit} so far"
