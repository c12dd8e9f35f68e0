"""What the programming interface does with a document: the screen's jobs, told as JSON instead of patches.

Every function that uses the model stands in the engine's lane, in line with the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, TypeVar

from ondevice.config import EngineConfig, GenerationConfig
from ondevice.engine import Engine
from ondevice.errors import OndeviceError, PotError
from ondevice.events import AnswerFinished, AnswerToken, Event
from ondevice.library import Entry, Library
from ondevice.ui.api_stream import event_json
from ondevice.ui.conversation import Answer
from ondevice.ui.opening import begin_reading, open_upload
from ondevice.ui.record import record_of, take_up
from ondevice.ui.registry import Registry
from ondevice.ui.room import free_device_memory, require_room_for
from ondevice.ui.running import problem_text
from ondevice.ui.uploads import Upload
from ondevice.ui.visitor import Visitor
from ondevice.ui.workspace import Phase, Workspace

_T = TypeVar("_T")
_TOLD_EVERY = 1.0  # seconds between two words to who stands in line


class Jobs:
    """The jobs of the programming interface, on documents of its own.

    Args:
        engine: the model.
        registry: all visitors; the interface is one of them.
        library: what is saved.
    """

    def __init__(self, engine: Engine, registry: Registry, library: Library) -> None:
        self.engine, self.library = engine, library
        self._registry = registry
        self._visitor_id = ""

    @property
    def documents(self) -> list[Workspace]:
        """All that is open here."""
        visitor = self._visitor()
        return visitor.documents if visitor is not None else []

    def find(self, workspace_id: str) -> Workspace | None:
        """An open document."""
        return next((workspace for workspace in self.documents if workspace.id == workspace_id), None)

    def new(self, name: str) -> Workspace:
        """A claimed workspace for the document of that name; raises as `Visitor.new`.

        The interface is a visitor, made by its first document, and anew by the first one after a long rest.
        """
        visitor = self._visitor() or self._registry.create()
        self._visitor_id = visitor.id
        workspace = visitor.new(name)
        workspace.claim()
        return workspace

    def close(self, workspace: Workspace) -> None:
        """Drop a document with its pot."""
        visitor = self._visitor()
        if visitor is not None:
            visitor.close(workspace)
        free_device_memory()

    def open(self, workspace: Workspace, upload: Upload, password: str) -> None:
        """Open an uploaded file in a claimed workspace, which goes where that fails or is stopped.

        Raises:
            DocumentError: as `extract`.
        """
        try:
            with (
                workspace.working(Phase.OPENING),
                closing(
                    open_upload(workspace, upload, password or None, self.engine.loaded.tokenizer.encode)  # type: ignore[type-var]
                ) as steps,
            ):
                for _ in steps:
                    pass
        finally:
            upload.discard()
            self._release_or_close(workspace)

    def read(self, workspace: Workspace, config: EngineConfig) -> Iterator[dict[str, Any]]:
        """Read the document of a claimed workspace from its beginning; a stopped reading goes on with `resume`."""

        def events() -> Iterator[Event]:
            session = begin_reading(self.engine, self._registry, workspace, config)
            assert workspace.document is not None
            yield from session.read(workspace.document)

        yield from self._in_turn(workspace, Phase.READING, lambda: self._follow_reading(workspace, events()))

    def resume(self, workspace: Workspace) -> Iterator[dict[str, Any]]:
        """Read on from where reading was stopped."""
        session = workspace.session
        assert session is not None
        yield from self._in_turn(workspace, Phase.READING, lambda: self._follow_reading(workspace, session.resume()))

    def ask(self, workspace: Workspace, question: str, generation: GenerationConfig) -> Iterator[dict[str, Any]]:
        """Answer a question from the pot of a claimed workspace."""

        def events() -> Iterator[dict[str, Any]]:
            session = workspace.session
            if session is None:
                raise PotError("There is no document in the pot yet", fix="Read the document first.")
            answer = Answer(workspace, question)
            try:
                with closing(session.ask(question, generation)) as steps:  # type: ignore[type-var]
                    for event in steps:
                        _pass_on_stop(workspace)
                        workspace.telemetry.apply(event)
                        if isinstance(event, AnswerToken):
                            answer.add(event)
                        elif isinstance(event, AnswerFinished):
                            answer.finish(event, workspace.telemetry.decode_tokens_per_second)
                        yield event_json(event)
            finally:
                answer.close()

        yield from self._in_turn(workspace, Phase.ANSWERING, events)

    def save(self, workspace: Workspace) -> Entry:
        """Keep the document of a claimed workspace in the library.

        Raises:
            PotError, LibraryError: as `Library.save`; or it was stopped before its turn.
        """

        def work() -> Entry:
            if workspace.session is None:
                raise PotError("There is no pot to save yet", fix="Read the document first.")
            entry = self.library.save(workspace.session, record_of(workspace), replaces=workspace.entry_id)
            workspace.entry_id = entry.id
            return entry

        try:
            return self._once(workspace, Phase.SAVING, work)
        finally:
            workspace.release()

    def reopen(self, workspace: Workspace, entry: Entry) -> None:
        """Open a saved document in a claimed workspace, which goes where that fails or is stopped.

        Raises:
            PotError, PotMismatch, LibraryError: as `Library.open`; or it was stopped before its turn.
        """

        def work() -> None:
            require_room_for(self.engine, entry, self._registry.others(workspace))
            session, record = self.library.open(self.engine, entry.id)
            take_up(workspace, session, record)
            workspace.entry_id = entry.id

        try:
            self._once(workspace, Phase.REOPENING, work)
        finally:
            self._release_or_close(workspace)

    def _follow_reading(self, workspace: Workspace, events: Iterator[Event]) -> Iterator[dict[str, Any]]:
        try:
            with closing(events):  # type: ignore[type-var]
                for event in events:
                    _pass_on_stop(workspace)
                    workspace.telemetry.apply(event)
                    workspace.note(event)
                    yield event_json(event)
        finally:
            workspace.note_rest()

    def _visitor(self) -> Visitor | None:
        return self._registry.find(self._visitor_id)

    def _release_or_close(self, workspace: Workspace) -> None:
        """The end of opening. What was stopped goes: nobody has been told its id."""
        workspace.release()
        if workspace.document is None or workspace.stop.is_set():
            self.close(workspace)

    def _once(self, workspace: Workspace, activity: Phase, work: Callable[[], _T]) -> _T:
        with self.engine.lane.ticket() as ticket:
            if not ticket.wait_unless(workspace.stop):
                raise PotError("It was stopped while it stood in line", fix="Try again.")
            with workspace.working(activity):
                return work()

    def _in_turn(
        self, workspace: Workspace, activity: Phase, steps: Callable[[], Iterator[dict[str, Any]]]
    ) -> Iterator[dict[str, Any]]:
        """Steps in the lane. A failure is the last line: the status of the response has long been sent."""
        try:
            with self.engine.lane.ticket() as ticket:
                seconds = 0.0
                while not ticket.wait_unless(workspace.stop, seconds):
                    if workspace.stop.is_set():
                        yield {"event": "stopped"}
                        return
                    yield {"event": "waiting", "num_ahead": ticket.num_ahead}
                    seconds = _TOLD_EVERY
                with workspace.working(activity):
                    yield from steps()
        except Exception as error:
            yield {"event": "error", "error": error_json(error)}
        finally:
            workspace.release()


def error_json(error: Exception) -> dict[str, str]:
    """What went wrong, where, and what to do about it."""
    if isinstance(error, OndeviceError):
        return error.to_dict()
    return {"code": "internal", "what": problem_text(error, "api"), "where": "", "fix": ""}


def _pass_on_stop(workspace: Workspace) -> None:
    """A stop may have come before the session listened, which forgets it when its work begins."""
    if workspace.stop.is_set() and workspace.session is not None:
        workspace.session.stop()
