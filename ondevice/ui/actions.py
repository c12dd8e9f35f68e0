"""What the buttons do: generators of patches to the screen, which drive the engine and can be closed at any time.

They know names of components, not Gradio's events; `wiring` connects the two. An error that a user can cause ends
an action with a sentence on the screen, and nothing that was there before is lost.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from importlib import resources
from pathlib import Path

import gradio as gr

from ondevice.engine import Engine
from ondevice.errors import OndeviceError, PasswordRequired, WrongPassword
from ondevice.events import AnswerFinished, AnswerToken, DocumentRead, Event, PotDistilled, QuestionRead
from ondevice.ui import render, words
from ondevice.ui.conversation import Answer
from ondevice.ui.exchanges import as_json, as_markdown, turns
from ondevice.ui.opening import begin_reading, open_upload
from ondevice.ui.question_box import Asked
from ondevice.ui.registry import Registry
from ondevice.ui.render import Patch
from ondevice.ui.room import free_device_memory
from ondevice.ui.running import Runner, problem_text
from ondevice.ui.settings import Form
from ondevice.ui.throttle import Throttle
from ondevice.ui.uploads import Upload, Uploads
from ondevice.ui.visitor import Visitor
from ondevice.ui.workspace import Phase, Problem, Workspace

SAMPLE = "lighthouse.md"
_PASSWORD_NEEDED = "This file is locked. Type its password to open it."
_PASSWORD_WRONG = "This password does not open the file. Check it and try again; the file itself is fine."


class Actions:
    """The actions of the screen. `shown` is the id of the document that the page shows, as the page says.

    Args:
        runner: how actions run.
        uploads: where received files go.
    """

    def __init__(self, runner: Runner, uploads: Uploads) -> None:
        self._runner, self._uploads = runner, uploads
        self._engine: Engine = runner.engine
        self._registry: Registry = runner.registry

    # -- the page --------------------------------------------------------------------------------

    def restore(self, visitor_id: object) -> Patch:
        """The page was loaded: show what this browser had, or begin anew."""
        return self._runner.page(self._registry.find(visitor_id) or self._registry.create())

    def follow(self, visitor_id: object) -> Patch:
        """Show how an action goes on that another page of the same browser has started."""
        return self._runner.page(self._runner.visitor(visitor_id))

    # -- the documents ---------------------------------------------------------------------------

    def open_received(self, visitor_id: object, paths: list[str] | str | None) -> Iterator[Patch]:
        """Open uploaded files one after the other; those that fail are named, and do not stop the others."""
        visitor = self._runner.visitor(visitor_id)
        received = [Path(path) for path in ([paths] if isinstance(paths, str) else paths or [])]
        if not received:
            return
        yield {"file": None}  # the drop zone is free again; the card shows the document
        problems = self._runner.expiry(visitor)
        queued: list[tuple[Workspace, Upload]] = []
        try:
            for path in received:
                try:
                    upload = self._uploads.take(path)
                    queued.append((self._new_workspace(visitor, upload), upload))
                except OndeviceError as error:
                    problems.append(words.error(error))
            while queued:
                problems += yield from self._open(visitor, *queued[0])
                queued.pop(0)
        finally:  # where that has failed: nothing waits for ever
            for workspace, upload in queued:
                visitor.close(workspace)
                upload.discard()
        yield self._told(visitor, problems)

    def open_sample(self, visitor_id: object) -> Iterator[Patch]:
        """Open the sample document that comes with the program."""
        visitor = self._runner.visitor(visitor_id)
        with resources.as_file(resources.files("ondevice.assets") / SAMPLE) as path:
            upload = self._uploads.copy(path, SAMPLE)
        problems = self._runner.expiry(visitor)
        try:
            workspace = self._new_workspace(visitor, upload)
        except OndeviceError as error:
            yield self._told(visitor, [*problems, words.error(error)])
            return
        problems += yield from self._open(visitor, workspace, upload)
        yield self._told(visitor, problems)

    def unlock(self, visitor_id: object, password: str, shown: object = None) -> Iterator[Patch]:
        """Open the file that asked for a password."""
        visitor = self._runner.visitor(visitor_id)
        workspace = visitor.current
        yield {"password": ""}  # it stays in no field and in no state
        if not self._runner.is_shown(visitor, shown):
            yield self._runner.not_shown(visitor)
        elif workspace.locked is None:
            yield self._runner.page(visitor)
        else:
            problems = yield from self._open(visitor, workspace, workspace.locked, password)
            yield self._told(visitor, problems)

    def look_at(self, visitor_id: object, workspace_id: str) -> Patch:
        """Show another one of the open documents."""
        visitor = self._runner.visitor(visitor_id)
        visitor.look_at(visitor.find(workspace_id) or visitor.current)
        page = self._runner.page(visitor)
        return page | {"password": "", "question": page["question"] | {"value": ""}}

    def forget(self, visitor_id: object, shown: object = None) -> Patch:
        """Close the document: drop it with its pot and the conversation."""
        visitor = self._runner.visitor(visitor_id)
        if not self._runner.is_shown(visitor, shown):
            return self._runner.not_shown(visitor)
        visitor.close(visitor.current)
        free_device_memory()
        return self._runner.page(visitor) | {"password": ""}

    def _open(
        self, visitor: Visitor, workspace: Workspace, upload: Upload, password: str | None = None
    ) -> Generator[Patch, None, list[str]]:
        """Open a file in a workspace of its own, which vanishes where that fails; returns why it failed.

        Args:
            password: of a locked file, which has waited there; None: the file is new.
        """

        def steps() -> Iterator[Patch]:
            is_locked = False
            try:
                yield from open_upload(workspace, upload, password, self._engine.loaded.tokenizer.encode)
            except (PasswordRequired, WrongPassword) as error:
                is_locked = True
                workspace.problem = Problem(_PASSWORD_WRONG if isinstance(error, WrongPassword) else _PASSWORD_NEEDED)
            finally:
                workspace.keep_locked(upload if is_locked else None)
                if not is_locked:
                    upload.discard()

        before = visitor.current
        visitor.look_at(workspace)
        opening = self._runner.run(visitor, workspace, Phase.OPENING, steps(), needs_model=False)
        if not (yield from _without_toast(opening)):  # closed before its turn came, or being unlocked already
            if password is None:
                upload.discard()
            return []
        if workspace.document is not None or workspace.locked is not None:
            return []
        problem = workspace.problem
        visitor.close(workspace)
        visitor.look_at(before)
        yield self._runner.page(visitor)
        return [problem.text] if problem is not None else []

    def _new_workspace(self, visitor: Visitor, upload: Upload) -> Workspace:
        try:
            return visitor.new(upload.path.name)
        except OndeviceError:
            upload.discard()
            raise

    def _told(self, visitor: Visitor, problems: list[str]) -> Patch:
        """The files that could not be opened, if there are any."""
        if not problems:
            return {}
        text = "\n".join(problems)
        visitor.current.problem = Problem(text)
        return self._runner.page(visitor) | {"toast": text}

    # -- reading and asking ----------------------------------------------------------------------

    def stop(self, visitor_id: object, shown: object = None) -> Iterator[Patch]:
        """End what is running on the document that is shown, within one layer of the forward pass under way."""
        visitor = self._runner.visitor(visitor_id)
        workspace = visitor.find(shown) if shown else visitor.current
        if workspace is None:
            yield self._runner.not_shown(visitor)
            return
        workspace.request_stop()
        if not workspace.idle.is_set():
            yield {"stop": gr.update(value="Stopping…", interactive=False)}
        workspace.halt()
        yield self._runner.page(visitor)

    def read(self, visitor_id: object, form: Form, shown: object = None) -> Iterator[Patch]:
        """Read the document from its beginning, with the settings of the form."""
        visitor = self._runner.visitor(visitor_id)
        workspace = visitor.current
        if workspace.document is None or not self._runner.is_shown(visitor, shown):
            yield self._runner.not_shown(visitor)
            return

        def steps() -> Iterator[Patch]:
            if workspace.document is None:
                return
            session = begin_reading(self._engine, self._registry, workspace, form.engine_config(self._engine.config))
            yield {"chat": [], **render.conversation_tools(workspace)}
            yield from self._read(workspace, session.read(workspace.document))

        yield from self._runner.run(visitor, workspace, Phase.READING, steps())

    def resume(self, visitor_id: object, shown: object = None) -> Iterator[Patch]:
        """Read on from where reading was stopped."""
        visitor = self._runner.visitor(visitor_id)
        workspace = visitor.current
        if workspace.document is None or not self._runner.is_shown(visitor, shown):
            yield self._runner.not_shown(visitor)
            return

        def steps() -> Iterator[Patch]:
            session = workspace.session
            if session is not None and session.tokens is not None:
                yield from self._read(workspace, session.resume())

        yield from self._runner.run(visitor, workspace, Phase.READING, steps())

    def ask(self, visitor_id: object, question: str, form: Form, shown: object = None) -> Iterator[Patch]:
        """Answer a question from the pot; where the document is being read, reading answers it between two steps."""
        visitor = self._runner.visitor(visitor_id)
        workspace = visitor.current
        if workspace.document is None or not self._runner.is_shown(visitor, shown):
            yield self._runner.not_shown(visitor)
            return

        def asked() -> Asked:
            return Asked(question, form.generation(self._engine.config.generation), form.remembers)

        if workspace.asked.is_open:
            try:
                if workspace.asked.put(asked()):  # its text stays in the field until it is read
                    yield render.controls(workspace) | {"status": render.status(workspace)}
            except OndeviceError as error:
                yield self._told(visitor, [words.error(error)])
            return

        def steps() -> Iterator[Patch]:
            if workspace.session is not None and workspace.document is not None:
                yield from self._answer(workspace, asked())

        yield from self._runner.run(visitor, workspace, Phase.ANSWERING, steps())

    def clear_conversation(self, visitor_id: object, shown: object = None) -> Patch:
        """Drop the questions and answers; the pot has never held them."""
        visitor = self._runner.visitor(visitor_id)
        workspace = visitor.current
        if not self._runner.is_shown(visitor, shown):
            return self._runner.not_shown(visitor)
        if workspace.idle.is_set():  # else an answer may be growing at its end
            workspace.clear_conversation()
        return {"chat": list(workspace.messages), **render.conversation_tools(workspace)}

    def export(self, visitor_id: object, shown: object = None, *, kind: str) -> Patch:
        """The conversation as a file that the browser makes by itself: `kind` is `md` or `json`."""
        visitor = self._runner.visitor(visitor_id)
        workspace = visitor.find(shown) if shown else visitor.current
        if workspace is None:
            return self._runner.not_shown(visitor)
        if not workspace.exchanges:
            return {}
        text = as_markdown(workspace) if kind == "md" else as_json(workspace)
        return render.download(f"{Path(workspace.name).stem}-answers", kind, text)

    def _read(self, workspace: Workspace, events: Iterator[Event]) -> Iterator[Patch]:
        """Go through the events of reading; questions asked meanwhile are answered between two of them."""
        throttle, session = Throttle(), workspace.session
        workspace.asked.open()
        try:
            with closing(events):  # type: ignore[type-var]
                for event in events:
                    workspace.telemetry.apply(event)
                    workspace.note(event)
                    if throttle.allows(urgent=isinstance(event, PotDistilled | DocumentRead)):
                        yield render.reading(workspace)
                    if session is not None and session.num_read:
                        yield from self._answer_asked(workspace)
                    if workspace.stop.is_set():
                        break
            while not workspace.stop.is_set() and not workspace.asked.close_if_empty():
                yield from self._answer_asked(workspace)
        finally:
            workspace.asked.close()
            workspace.note_rest()

    def _answer_asked(self, workspace: Workspace) -> Iterator[Patch]:
        """Answer the question that waits, if one does, while reading stands still. A failure does not end reading."""
        asked = None if workspace.stop.is_set() else workspace.asked.take()
        if asked is None:
            return
        with workspace.working(Phase.ANSWERING):
            yield render.controls(workspace) | render.reading(workspace)
            try:
                yield from self._answer(workspace, asked)
            except Exception as error:
                workspace.problem = Problem(problem_text(error, Phase.ANSWERING.value))
                yield {"toast": workspace.problem.text}
        yield {
            **render.controls(workspace),
            **render.reading(workspace),
            **render.answering(workspace),
            **render.conversation_tools(workspace),
        }

    def _answer(self, workspace: Workspace, asked: Asked) -> Iterator[Patch]:
        assert workspace.session is not None
        history = turns(workspace) if asked.remembers else ()
        events = workspace.session.ask(asked.question, asked.generation, history)
        throttle, answer = Throttle(), Answer(workspace, asked.question)
        try:
            with closing(events):  # type: ignore[type-var]
                for event in events:
                    workspace.telemetry.apply(event)
                    match event:
                        case QuestionRead():
                            yield render.answering(workspace) | {"question": ""}
                        case AnswerToken():
                            answer.add(event)
                        case AnswerFinished():
                            answer.finish(event, workspace.telemetry.decode_tokens_per_second)
                    if throttle.allows():
                        yield render.answering(workspace)
                    if workspace.stop.is_set():
                        return
        finally:
            answer.close()


def _without_toast(patches: Generator[Patch, None, bool]) -> Generator[Patch, None, bool]:
    """The same, with what failed left to tell once, for all files; returns what `patches` does."""
    while True:
        try:
            patch = next(patches)
        except StopIteration as stop:
            return bool(stop.value)
        yield {name: value for name, value in patch.items() if name != "toast"}
