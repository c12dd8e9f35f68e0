"""The first model of an app, which comes while the page is served already: where that stands, and why it failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ondevice import words
from ondevice.model.loading.progress import Progress
from ondevice.serving.failure import problem_text
from ondevice.session.engine import Engine


class Loading:
    """Loads the model of an engine that has none, in a thread of its own; jobs wait in the engine's lane meanwhile.

    Args:
        engine: from `Engine.without_model`.
        load: gives an engine with the model, and says how far it has come.

    Attributes:
        stage: what it is at.
        is_done: set once the model is there, or has failed to come.
        error: why it failed; None: it did not.
    """

    def __init__(self, engine: Engine, load: Callable[[Progress], Engine]) -> None:
        self._engine, self._load, self.stage, self._began = engine, load, "Starting", time.monotonic()
        self.is_done = threading.Event()
        self.error: Exception | None = None
        self._problem = ""

    def start(self) -> None:
        """Begin; whoever stands in line from now on comes after it."""
        self._began = time.monotonic()
        self._ticket = self._engine.lane.ticket().__enter__()
        threading.Thread(target=self._run, name="model", daemon=True).start()

    @property
    def line(self) -> str:
        """A line for the page: stage and seconds, or why there is no model; "" once there is one."""
        if not self.is_done.is_set():
            seconds = words.duration(time.monotonic() - self._began)
            return f"{self.stage}, {seconds} so far. Drop documents and ask meanwhile: both wait for the model."
        return "" if self._engine.has_model else self._problem

    def _run(self) -> None:
        try:
            self._engine.take(self._load(self._note))
        except Exception as error:
            self.error = error
            text = problem_text(error, "loading the model")
            self._problem = f"There is no model: choose another one in the list of models. {text}"
        finally:
            self.is_done.set()
            self._ticket.__exit__()

    def _note(self, stage: str, fraction: float | None) -> None:
        self.stage = words.stage(stage, fraction)
