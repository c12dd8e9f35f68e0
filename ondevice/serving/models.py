"""The models that the screen offers: which are here, which fit, one fetched beside the work, one used instead.

State of one app, shared by all its visitors.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ondevice import words
from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import ConfigError, OndeviceError
from ondevice.machine.memory import free_memory_bytes, usable_bytes
from ondevice.model.loading import stored
from ondevice.model.loading.catalogue import CATALOGUE, CatalogueModel, find
from ondevice.model.loading.load import outline_model
from ondevice.serving.failure import problem_text
from ondevice.serving.jobs import Jobs
from ondevice.serving.together import regather
from ondevice.serving.visitor import Visitor
from ondevice.serving.workspace import Workspace


class _Cancelled(Exception):
    """The user wants the download no more."""


@dataclass(slots=True)
class Fetching:
    """A download that goes on beside the work.

    Attributes:
        row: what is fetched.
        stage: what it is at; `fraction` of it is done, None if that is unknown.
        is_cancelled: set to end it at its next step; what has come stays, and is not fetched again.
    """

    row: CatalogueModel
    stage: str = "Starting"
    fraction: float | None = None
    is_cancelled: threading.Event = field(default_factory=threading.Event)

    def note(self, stage: str, fraction: float | None) -> None:
        """Take its progress."""
        if self.is_cancelled.is_set():
            raise _Cancelled
        self.stage, self.fraction = stage, fraction


class Models:
    """The catalogue on this machine, for the engine of `jobs`, whose model is changed."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self.fetching: Fetching | None = None
        self.problem = ""
        self._weight_bytes: dict[str, int | None] = {}
        self._changing = threading.Lock()

    # -- what there is -------------------------------------------------------------------------------

    @property
    def current(self) -> CatalogueModel | None:
        """The row of the model in use; None: it is none of the catalogue."""
        return find(self._jobs.engine.loaded.source)

    def rows(self, *, at_once: bool = False) -> list[dict[str, Any]]:
        """The catalogue, as the panel shows it; the model in use stands first where it is none of it.

        Args:
            at_once: what is too large is said only if that is known: reckoning it the first time takes seconds.
        """
        loaded, current = self._jobs.engine.loaded, self.current
        rows = [self._row(row, is_current=row is current, at_once=at_once) for row in CATALOGUE.values()]
        if current is None and loaded.source:
            rows.insert(0, {"name": loaded.source, "title": loaded.name, "facts": "in use", "state": "current"})
        return rows

    def _row(self, row: CatalogueModel, *, is_current: bool, at_once: bool) -> dict[str, Any]:
        is_here = stored.stored(row) is not None
        facts = [words.size(row.fetch_bytes), row.licence, f"window {words.count(row.window)}"]
        is_known = row.name in self._weight_bytes or not at_once
        reason = self._too_large(row) if is_known and not is_current else ""
        facts += ["here"] if is_here and not is_current else []
        facts += [] if row.was_run else ["not run by us: only its family is tested"]
        if speed := self._speed(row):
            facts.append(speed)
        state = "current" if is_current else "too large" if reason else "here" if is_here else "away"
        return {"name": row.name, "title": row.title, "facts": " · ".join(facts), "state": state, "reason": reason}

    def _speed(self, row: CatalogueModel) -> str:
        """Its measured reading speed, or one estimated from the model in use by size; "" if neither has read."""
        speeds, loaded = self._jobs.speeds, self._jobs.engine.loaded
        if speed := speeds.of_model(row.name):
            return f"read {words.rate(speed)} here"
        speed = speeds.of_model(loaded.source)
        if speed is None or self.current is None:
            return ""
        return f"roughly {words.rough_rate(speed * self.current.num_read_parameters / row.num_read_parameters)}"

    def _too_large(self, row: CatalogueModel) -> str:
        """Why the machine cannot carry it; "" where it can."""
        if row.name not in self._weight_bytes:
            try:
                config, device = self._jobs.engine.config, self._jobs.engine.loaded.device
                outline = outline_model(row.name, device, dtype=config.dtype, quantization=config.quantization)
                self._weight_bytes[row.name] = outline.weight_bytes
            except OndeviceError:
                self._weight_bytes[row.name] = None
        needed = self._weight_bytes[row.name]
        loaded = self._jobs.engine.loaded
        free = usable_bytes(self._jobs.free_memory(loaded.device) + loaded.weight_bytes)
        if needed is None or needed <= free:
            return ""
        return f"its weights take {words.size(needed)} of memory, and {words.size(free)} would be free for it"

    # -- fetching ------------------------------------------------------------------------------------

    def fetch(self, name: object) -> None:
        """Begin to fetch a model, beside all else; raises ConfigError where there is no such one, or one comes."""
        row = _named(name)
        with self._changing:
            if self.fetching is not None:
                raise ConfigError(f"{self.fetching.row.title} is being fetched", fix="Wait for it, or cancel it.")
            self.fetching, self.problem = Fetching(row), ""
        threading.Thread(target=self._fetch, args=(self.fetching,), name="fetch", daemon=True).start()

    def cancel(self) -> None:
        """Let the download end at its next step."""
        if (fetching := self.fetching) is not None:
            fetching.stage = "Cancelling"
            fetching.is_cancelled.set()

    def _fetch(self, fetching: Fetching) -> None:
        try:
            stored.ensure(fetching.row, fetching.note)
        except _Cancelled:
            pass
        except Exception as error:
            self.problem = problem_text(error, "fetching the model")
        finally:
            self.fetching = None

    # -- using another one ---------------------------------------------------------------------------

    def question(self, visitor: Visitor) -> str:
        """The question that warns of what another model does to the open documents; "" where there are none."""
        number = len(visitor.documents)
        if not number:
            return ""
        which = "The open document is" if number == 1 else f"The {number} open documents are"
        return f"{which} read again with it; conversations stay."

    def require_free(self, visitor: Visitor) -> None:
        """Refuse to change the model at work, or while others have a document open; raises ConfigError, with who."""
        mine = {workspace.id for workspace in visitor.workspaces}
        others = [one for one in self._jobs.registry.others(None) if one.id not in mine and not one.is_unused]
        if others:
            what = "Another browser, or a program, has documents open with this model"
            raise ConfigError(what, fix="Close them there first.")
        if not visitor.is_idle:
            raise ConfigError("The model is at work", fix="Pause reading, or wait for the answer, then choose it.")

    def use(self, visitor: Visitor, name: object, report: Callable[[str, float | None], None]) -> None:
        """Load another model in place of the one in use; the documents of this visitor wait to be read with it.

        Where it cannot be loaded, the one before is loaded again.

        Raises:
            ConfigError: as `require_free`, or it is not on this machine.
            ModelError: it cannot be loaded.
        """
        row = _named(name)
        engine, config = self._jobs.engine, replace(self._jobs.engine.config, model=row.name)
        if row is self.current:
            return
        if stored.stored(row) is None:
            raise ConfigError(f"{row.title} is not on this machine", fix="Download it first.")
        if reason := self._too_large(row):
            raise ConfigError(f"{row.title} is too large for this machine: {reason}", fix="Choose a smaller one.")
        self.require_free(visitor)
        for collection in visitor.collections:  # its tokens are the other model's
            collection.forget()
        claimed = [workspace for workspace in visitor.documents if workspace.claim()]
        try:
            with engine.lane.ticket() as ticket:
                if not ticket.wait(0.0):
                    raise ConfigError("The model is at work", fix="Wait until it is done, then choose it.")
                for workspace in claimed:
                    workspace.drop_pot()
                try:
                    engine.load_another(config, report)
                finally:
                    for workspace in claimed:
                        _tokenize(workspace, engine.loaded.tokenizer.encode)
        finally:
            for workspace in claimed:
                workspace.release()
            if engine.has_model:
                regather(self._jobs, visitor)
                for collection in visitor.collections:
                    collection.retell()


def _named(name: object) -> CatalogueModel:
    row = find(name) if isinstance(name, str) else None
    if row is None:
        raise ConfigError("There is no such model in the catalogue", fix="Choose one of the list.")
    return row


def _tokenize(workspace: Workspace, encode: Callable[..., Any]) -> None:
    """A document's tokens are those of the model."""
    document = workspace.document
    if document is None:
        return
    tokens = DocumentTokens(document, encode, free_memory_bytes)
    tokens.ensure(sys.maxsize)
    file, workspace.page_file = workspace.page_file, None  # it is the same document, whose pages can still be shown
    workspace.accept(tokens)
    workspace.page_file = file
    workspace.retell()
