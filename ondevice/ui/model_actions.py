"""Actions of the list of models in the header: show it, fetch one, use another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from ondevice import words
from ondevice.config import on_screen
from ondevice.errors import OndeviceError
from ondevice.serving.failure import problem_text
from ondevice.serving.models import Models
from ondevice.serving.visitor import Visitor
from ondevice.ui.form import for_model
from ondevice.ui.render import Patch
from ondevice.ui.running import Runner

_POLL_SECONDS = 0.25


class ModelActions:
    """The actions of the list.

    Args:
        runner: how actions run.
        models: the catalogue on this machine.
    """

    def __init__(self, runner: Runner, models: Models) -> None:
        self._runner, self._models, self._engine = runner, models, runner.jobs.engine

    def show(self, visitor_id: object) -> Iterator[Patch]:
        """The list as it is now, then with what is too large for this machine."""
        visitor = self._runner.visitor(visitor_id)
        yield self._list(visitor, at_once=True) | self._runner.following()
        yield self._list(visitor)

    def fetch(self, visitor_id: object, name: object) -> Patch:
        """Begin to fetch a model; the page follows it."""
        visitor = self._runner.visitor(visitor_id)
        try:
            self._models.fetch(name)
        except OndeviceError as error:
            return self._list(visitor, problem=on_screen(error))
        return self._list(visitor) | self._runner.following()

    def cancel(self, visitor_id: object) -> Patch:
        """End the download at its next step."""
        self._models.cancel()
        return self._list(self._runner.visitor(visitor_id)) | self._runner.following()

    def use(self, visitor_id: object, name: object) -> Iterator[Patch]:
        """Use another model; the documents wait to be read with it."""
        visitor, stages, failed = self._runner.visitor(visitor_id), ["Loading the model"], list[Exception]()

        def note(stage: str, fraction: float | None) -> None:
            stages.append(words.stage(stage, fraction))

        def work() -> None:
            try:
                self._models.use(visitor, name, note)
            except Exception as error:
                failed.append(error)

        worker = threading.Thread(target=work, name="model", daemon=True)
        worker.start()
        while worker.is_alive():
            yield self._list(visitor, busy=stages[-1])
            worker.join(_POLL_SECONDS)
        problem = "".join(problem_text(error, "loading the model") for error in failed)
        yield self._runner.page(visitor) | self._list(visitor, problem=problem) | for_model(self._engine)

    def _list(self, visitor: Visitor, *, busy: str = "", problem: str = "", at_once: bool = False) -> Patch:
        shown: dict[str, Any] = {**self._runner.header(), "question": self._models.question(visitor), "busy": busy}
        if not busy:
            shown["models"] = self._models.rows(at_once=at_once)
        return {"header": shown | {"problem": problem or self._models.problem}}
