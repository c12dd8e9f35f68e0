"""Jobs on a document: in line for the model, stopped at any time, each failure in a sentence.

A job is a generator of events, the engine's own and those of `job_events`. It begins with a claimed workspace, keeps
everything that belongs to the workspace up to date, and releases it at its end; closing the generator ends the job.
The screen makes patches of the events, the programming interface lines of JSON.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from ondevice.config import EngineConfig
from ondevice.decode.denial import NOT_YET
from ondevice.errors import ModelError, PasswordRequired, PotError, WrongPassword
from ondevice.events import AnswerFinished, Event
from ondevice.library.library import Entry, Library
from ondevice.machine.memory import free_memory_bytes
from ondevice.scan.account import report
from ondevice.scan.scan import ChunkScanned, Scan
from ondevice.serving import job_events
from ondevice.serving.conversation import Answer
from ondevice.serving.exchanges import Exchange, turns
from ondevice.serving.failure import problem_text
from ondevice.serving.forecast import ReadingSpeeds, ends_soon
from ondevice.serving.job_events import JobEvent, Waiting
from ondevice.serving.keeping import Keeping
from ondevice.serving.loading import Loading
from ondevice.serving.opening import extracted, take_in
from ondevice.serving.page_file import PageFile
from ondevice.serving.question_queue import Asked
from ondevice.serving.record import record_of, restore_workspace
from ondevice.serving.registry import Registry
from ondevice.serving.room import FreeMemory, free_device_memory, require_room, require_room_for
from ondevice.serving.uploads import Upload
from ondevice.serving.visitor import Visitor
from ondevice.serving.workspace import Phase, Workspace
from ondevice.session.content_address import content_address
from ondevice.session.engine import Engine, Session
from ondevice.session.lane import Ticket
from ondevice.session.sizing import sized

_TELL_SECONDS = 1.0  # between two events of one job that waits
_TURN_SECONDS = 60.0  # that an answer may take while others wait

Job = Generator[JobEvent, None, None]


class Jobs:
    """All that the app can do with a document.

    Args:
        engine: the model; jobs stand in its lane.
        registry: all visitors; their pots take memory.
        library: what is saved.
        free_memory: bytes that are free on a device; None: in the main memory.
        keeping: what is kept of open documents; default: nothing.
        speeds: how fast was read before; default: nothing is known.
        loading: of a model that is still to come; None: it is there.
    """

    def __init__(
        self,
        engine: Engine,
        registry: Registry,
        library: Library,
        free_memory: FreeMemory = free_memory_bytes,
        keeping: Keeping | None = None,
        speeds: ReadingSpeeds | None = None,
        loading: Loading | None = None,
    ) -> None:
        self.engine, self.registry, self.library, self.free_memory = engine, registry, library, free_memory
        self.keeping = keeping or Keeping(is_on=False)
        self.speeds, self.loading = speeds or ReadingSpeeds(), loading

    def open(self, workspace: Workspace, upload: Upload, password: str = "", *, keeps_file: bool = False) -> Job:
        """Open an uploaded file, which is deleted then; `keeps_file`: a PDF stays here, to show its pages, and
        without its right password to be tried again."""

        def steps() -> Job:
            is_kept = is_open = False
            workspace.locked = None  # where it was this file, it is to be kept on
            try:
                document = yield from extracted(workspace, upload, password or None)
                if document is not None and (yield from self._until_tokens(workspace)):
                    take_in(workspace, document, self.engine.loaded.tokenizer.encode)
                    is_open = True
            except (PasswordRequired, WrongPassword):
                is_kept = keeps_file
                raise
            finally:
                workspace.keep_locked(upload if is_kept else None)
                if keeps_file and is_open and workspace.document is not None and workspace.document.kind == "pdf":
                    workspace.keep_pages(PageFile(upload.path, password or None, upload.discard))
                elif not is_kept:
                    upload.discard()
            if is_open:
                self._estimate(workspace, self.engine.config)
                self.keeping.keep_text(workspace, self.engine.loaded)
            yield job_events.Opened() if is_open else job_events.Stopped()

        return _run(workspace, _at_work(workspace, Phase.OPENING, steps()), Phase.OPENING)

    def read(self, workspace: Workspace, config: EngineConfig) -> Job:
        """Read the document from its beginning, in a new pot in place of the one before.

        Where a question to it waits, it comes before other readings up to the answer.
        """

        def steps() -> Job:
            tokens = workspace.tokens
            if tokens is None:
                raise PotError("There is no document to read", fix="Open one first.")
            session = self._begin(workspace, config)
            workspace.read_with = config
            self._estimate(workspace, config)
            try:
                self.keeping.begin(workspace)
                yield from self._read(workspace, session, session.open(tokens), session.resume())
            finally:
                self.speeds.note(self.engine.loaded, config, workspace.telemetry)

        hurries = lambda: workspace.asked.waiting is not None or workspace.stop.is_set()  # noqa: E731
        return self._in_turn(workspace, Phase.READING, steps(), hurries)

    def resume(self, workspace: Workspace) -> Job:
        """Read on from where reading was stopped."""

        def steps() -> Job:
            session = session_of(workspace)
            yield from self._read(workspace, session, session.resume())

        return self._in_turn(workspace, Phase.READING, steps())

    def ask(self, workspace: Workspace, asked: Asked) -> Job:
        """Answer a question from the pot."""
        return self._in_turn(workspace, Phase.ANSWERING, self._answer(workspace, asked), lambda: True)

    def scan(self, workspace: Workspace, question: str) -> Job:
        """Ask a question on every chunk of the document, read or not."""
        return self._in_turn(workspace, Phase.SCANNING, _scan(self.engine, workspace, question))

    def save(self, workspace: Workspace) -> Job:
        """Keep the document in the library, with its pot and the conversations."""

        def steps() -> Job:
            session, document, config, address = session_of(workspace), workspace.document, workspace.read_with, ""
            if document is not None and config is not None:
                address = content_address(self.engine.loaded, document, config)
            entry = self.library.save(session, record_of(workspace), replaces=workspace.entry_id, address=address)
            workspace.entry_id = entry.id
            self.keeping.note(workspace)
            yield job_events.Saved(entry)

        return self._in_turn(workspace, Phase.SAVING, steps())

    def held(self, workspace: Workspace, config: EngineConfig) -> Entry | None:
        """The library's entry for the open document, read with these settings; None: there is none."""
        document = workspace.document
        return self.library.read_alike(self.engine.loaded, document, config) if document is not None else None

    def reopen(self, workspace: Workspace, entry: Entry) -> Job:
        """Open a saved document."""

        def steps() -> Job:
            tier_bytes = 0 if entry.config is None else self.engine.plan(entry.config).tier_bytes(entry.num_tokens)
            self._require_room(workspace, entry.pot_bytes, tier_bytes)
            session, record = self.library.open(self.engine, entry.id)
            restore_workspace(workspace, session, record)
            workspace.entry_id = entry.id
            self.keeping.begin(workspace)
            self.keeping.keep(workspace)  # if that fails, it is in the library
            yield job_events.Opened()

        return self._in_turn(workspace, Phase.REOPENING, steps())

    def restore_workspace(self, workspace: Workspace) -> Job:
        """Go on with a document that was open before the app was started again."""

        def steps() -> Job:
            kept = self.keeping.find(workspace, self.engine.loaded)
            if kept.is_unread:
                take_in(workspace, self.keeping.text(kept), self.engine.loaded.tokenizer.encode)
                self._estimate(workspace, self.engine.config)
            else:
                self._require_room(workspace, kept.pot_bytes, kept.tier_bytes)
                session = self.keeping.open(self.engine, kept)
                restore_workspace(workspace, session, kept.record)
            workspace.entry_id = kept.entry_id
            workspace.keep_pages(self.keeping.pages(workspace))
            workspace.is_away = False
            yield job_events.Opened()

        return self._in_turn(workspace, Phase.REOPENING, steps())

    def close(self, visitor: Visitor, workspace: Workspace) -> None:
        """Drop a document with its pot and the conversations, whatever runs on it."""
        visitor.close(workspace)
        self.keeping.forget(workspace)
        free_device_memory()

    def _begin(self, workspace: Workspace, config: EngineConfig) -> Session:
        """A new session for the workspace's document, in place of the one before, where there is room for its pot."""
        num_tokens = workspace.num_tokens
        # Settings that cannot work must not cost the old pot, which has to go before there is room for the new one.
        plan = sized(self.engine.plan(config), num_tokens, self.free_memory(self.engine.loaded.device))
        others = self.registry.others(workspace)
        require_room(plan, num_tokens, others, self.free_memory, going=workspace)
        workspace.drop_pot()
        free_device_memory()
        workspace.session = session = Session(plan)
        return session

    def _require_room(self, workspace: Workspace | None, pot_bytes: int, tier_bytes: int) -> None:
        """Refuse what lies on disk where there is no room for it; raises PotError."""
        others, device = self.registry.others(workspace), self.engine.loaded.device
        require_room_for(device, pot_bytes, tier_bytes, others, free_memory=self.free_memory)

    def _estimate(self, workspace: Workspace, config: EngineConfig) -> None:
        """Set the seconds that reading the workspace's document takes; None where no speed is known."""
        workspace.forecast = self.speeds.seconds(self.engine.loaded, config, workspace.num_tokens)

    def _until_model(self, workspace: Workspace) -> Generator[Waiting, None, bool]:
        """Wait for the model, if it is still to come; returns False where the job was stopped before.

        Raises:
            ModelError: none has come.
        """
        if (loading := self.loading) is None:
            return True
        workspace.waits_for_model = not loading.is_done.is_set()
        try:
            while not loading.is_done.is_set():
                yield Waiting(1)
                loading.is_done.wait(_TELL_SECONDS)
                if workspace.stop.is_set():
                    return False
        finally:
            workspace.waits_for_model = False
        if problem := loading.line:
            raise ModelError(problem.rstrip("."))
        return True

    def _until_tokens(self, workspace: Workspace) -> Generator[Waiting, None, bool]:
        """Wait for the model whose tokens a document has: also while another one takes the place of the first."""
        if not (yield from self._until_model(workspace)):
            return False
        if self.engine.has_model:
            return True
        with self.engine.lane.ticket(lambda: True) as ticket:
            return (yield from _wait_for_turn(ticket, workspace.stop))

    def _in_turn(
        self, workspace: Workspace, activity: Phase, steps: Job, is_short: Callable[[], bool] = lambda: False
    ) -> Job:
        """The steps of a job in line for the model, from when the first one of the app is there."""

        def in_line() -> Job:
            with closing(steps), self.engine.lane.ticket(is_short) as ticket:
                if (yield from self._until_model(workspace)) and (yield from _wait_for_turn(ticket, workspace.stop)):
                    yield from _at_work(workspace, activity, steps)
                    return
            yield job_events.Stopped()

        return _run(workspace, in_line(), activity)

    def _read(self, workspace: Workspace, session: Session, *steps: Iterator[Event]) -> Job:
        """Follow the steps of a reading; questions that are asked meanwhile are answered between two of its events."""
        workspace.asked.open()
        try:
            for events in steps:
                for event in _followed(workspace, session, events):
                    workspace.note(event)
                    yield event
                    if self.engine.lane.let_through():  # questions about other documents were answered
                        session.clock.restart()
                    if session.context.spans:
                        yield from self._answer_asked(workspace, session)
                    if session.context.num_read:
                        yield from _report_problem(workspace, self.keeping.keep_if_due(workspace))
                    if workspace.pause.is_set():
                        workspace.request_stop()
                if session.context.spans:
                    yield from self._answer_asked(workspace, session)
            if not session.context.spans:
                for conversation in list(workspace.conversations):
                    asked = [one for one in workspace.asked.early if workspace.conversation_of(one) is conversation]
                    yield from self._answer_again(workspace, session, asked, conversation.exchanges)
            while workspace.asked.waiting is not None and not workspace.stop.is_set():
                yield from self._answer_asked(workspace, session, is_read=True)
        finally:
            workspace.asked.close()
            workspace.note_rest()
        yield from _report_problem(workspace, self.keeping.keep(workspace))

    def _answer_again(
        self, workspace: Workspace, session: Session, early: Sequence[Asked], exchanges: Sequence[Exchange]
    ) -> Job:
        """Answer from all of the document what was answered before it was read, if that is not done the same way."""
        first = len(exchanges) - len(early)
        given = exchanges[max(first, 0) :]
        is_there = [one.question for one in given] == [one.question.strip() for one in early]
        if not is_there or any(one.record.get("stop_reason") == "cancelled" for one in given):
            return  # an answer was taken back, or was stopped: nobody waits for it
        is_same = [
            session.searches(one.question, one.generation) and not before.text.startswith(NOT_YET)
            for one, before in zip(early, given, strict=True)
        ]
        if all(is_same):
            return
        for at, (asked, before) in enumerate(zip(early, given, strict=True), first):
            if not workspace.stop.is_set():
                other = None if is_same[at - first] else before  # the same passages confirm nothing
                again = replace(asked, at=at, keeps_others=True, begun=(), instead_of=other)
                yield from self._answer_within(workspace, session, again)

    def _answer_asked(self, workspace: Workspace, session: Session, *, is_read: bool = False) -> Job:
        """Answer the queued question between two chunks: at once where a search does, and reading takes longer.

        One for the pot waits for the first chunk. Asked before reading began it waits for the end (`is_read`), if that
        is near.
        """
        waiting = workspace.asked.waiting
        if waiting is None or not session.context.is_open:
            return
        waits = not session.context.num_read or (waiting.is_early and ends_soon(workspace.telemetry))
        given = waiting.question, waiting.generation
        if not is_read and ((waits and not session.searches(*given)) or session.reads_as_soon(*given)):
            return
        asked = None if workspace.stop.is_set() else workspace.asked.take()
        if asked is None:
            return
        if not is_read:
            workspace.asked.early.append(asked)
        yield from self._answer_within(workspace, session, asked)

    def _answer_within(self, workspace: Workspace, session: Session, asked: Asked) -> Job:
        """Answer a question in the course of a reading, which a failure does not end."""
        with workspace.working(Phase.ANSWERING):
            yield job_events.Working(Phase.ANSWERING)
            try:
                yield from self._answer(workspace, asked, session)
            except Exception as error:
                workspace.problem = problem_text(error, Phase.ANSWERING.value)
                yield job_events.QuestionFailed(error, workspace.problem, asked.question)
        yield job_events.Working(Phase.READING)

    def _answer(self, workspace: Workspace, asked: Asked, session: Session | None = None) -> Job:
        session = session or session_of(workspace)
        history = turns(workspace.conversation_of(asked).exchanges[: asked.at]) if asked.remembers else asked.history
        answer, began, gives_way = Answer(workspace, asked), time.monotonic(), False
        events = session.ask(asked.question, asked.generation, history, begun=asked.begun, attempt=asked.attempt)
        workspace.asked.under_way = asked.question
        workspace.answer_stop.clear()
        try:
            with closing(_followed(workspace, session, events)) as followed:
                for event in followed:
                    if gives_way and isinstance(event, AnswerFinished):
                        event = replace(event, stop_reason="turn")
                    answer.apply(event)
                    yield event
                    is_long = time.monotonic() - began > _TURN_SECONDS
                    if is_long and not workspace.is_reading and self.engine.lane.is_wanted:
                        gives_way = True
                        session.stop()
                    if workspace.answer_stop.is_set():  # the session itself is not asked to stop: it may be reading
                        break
        finally:
            answer.close()
            workspace.asked.under_way = ""
            self.keeping.note(workspace)


def _wait_for_turn(ticket: Ticket, stop: threading.Event) -> Generator[Waiting, None, bool]:
    """Say who comes first until the turn has come; returns False where `stop` was set before."""
    seconds = 0.0
    while not ticket.wait_unless(stop, seconds):
        if stop.is_set():
            return False
        yield Waiting(ticket.num_ahead)
        seconds = _TELL_SECONDS
    return True


def _run(workspace: Workspace, steps: Job, activity: Phase) -> Job:
    """Go through the steps of a job, whose failure is its last event, and release the workspace."""
    workspace.problem = ""
    try:
        with closing(steps):
            yield from steps
    except Exception as error:
        workspace.problem = problem_text(error, activity.value)
        yield job_events.Failed(error, workspace.problem)
    finally:
        workspace.release()


def _scan(engine: Engine, workspace: Workspace, question: str) -> Job:
    """Scan the document of a workspace; what it finds is in `workspace.scan`, also where it is stopped."""
    if workspace.tokens is None:
        raise PotError("There is no document to scan", fix="Open one first.")
    workspace.scan = scan = Scan(engine, workspace.tokens, question)
    with closing(scan.run()) as events:  # type: ignore[type-var]  # it is a generator
        for event in events:
            if isinstance(event, ChunkScanned):
                yield event
            if workspace.stop.is_set():  # maybe before the scan listened, which forgets it when its work begins
                scan.stop()
    yield job_events.ScanFinished(report(scan))


def _at_work(workspace: Workspace, activity: Phase, steps: Job) -> Job:
    with workspace.working(activity):
        yield job_events.Working(activity)
        yield from steps


def _report_problem(workspace: Workspace, problem: str) -> Iterator[job_events.NotKept]:
    """Report that a document is not kept, if there is a reason."""
    if problem:
        workspace.unkept = problem
        yield job_events.NotKept(problem)


def _followed(workspace: Workspace, session: Session, events: Iterator[Event]) -> Generator[Event, None, None]:
    """The events of a session, which the telemetry sees first."""
    with closing(events):  # type: ignore[type-var]  # the engine's iterators are generators
        for event in events:
            workspace.telemetry.apply(event)
            yield event
            if workspace.stop.is_set():  # maybe before the session listened, which forgets it when its work begins
                session.stop()


def session_of(workspace: Workspace) -> Session:
    """The session of a document that is read, or is being read; raises PotError where there is none."""
    session = workspace.session
    if session is None or not session.context.is_open:
        raise PotError("There is no document in the pot yet", fix="Read the document first.")
    return session
