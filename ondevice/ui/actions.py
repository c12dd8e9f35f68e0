"""What the buttons do: generators of patches to the screen, which drive the engine and can be closed at any time.

They know names of components, not Gradio's events; `wiring` connects the two. An error that a user can cause ends
an action with a sentence on the screen, and nothing that was there before is lost.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import closing
from importlib import resources
from pathlib import Path

import gradio as gr
import torch

from ondevice.engine import Engine
from ondevice.errors import OndeviceError, PasswordRequired, WrongPassword
from ondevice.events import AnswerFinished, AnswerToken, DocumentRead, Event, PotDistilled, QuestionRead
from ondevice.ui import render, words
from ondevice.ui.conversation import Answer
from ondevice.ui.opening import open_upload
from ondevice.ui.registry import Registry
from ondevice.ui.render import Patch
from ondevice.ui.room import require_room
from ondevice.ui.settings import Form
from ondevice.ui.throttle import Throttle
from ondevice.ui.uploads import Upload, Uploads
from ondevice.ui.workspace import Phase, Problem, Workspace

SAMPLE = "lighthouse.md"
_PASSWORD_NEEDED = "This file is locked. Type its password to open it."
_PASSWORD_WRONG = "This password does not open the file. Check it and try again; the file itself is fine."
_EXPIRED = "This page was idle for too long, so its document was dropped. Please choose it again."

log = logging.getLogger(__name__)


class Actions:
    """The actions of the screen.

    Args:
        engine: the model, one lane: `read`, `resume` and `ask` must not run at the same time.
        registry: all workspaces.
        uploads: where received files go.
    """

    def __init__(self, engine: Engine, registry: Registry, uploads: Uploads) -> None:
        self._engine, self._registry, self._uploads = engine, registry, uploads

    # -- the page --------------------------------------------------------------------------------

    def restore(self, workspace_id: object) -> Patch:
        """The page was loaded: show the workspace that this browser had, or a new one."""
        workspace = self._registry.find(workspace_id) or self._registry.create()
        return render.everything(workspace)

    def follow(self, workspace_id: object) -> Patch:
        """Show how an action goes on that another page of the same browser has started."""
        workspace = self._registry.find(workspace_id)
        return render.everything(workspace) if workspace is not None else {}

    # -- the document ----------------------------------------------------------------------------

    def open_received(self, workspace_id: object, path: str | None) -> Iterator[Patch]:
        """Open an uploaded file. The document before it stays until the new one has been opened."""
        workspace = self._at_rest(workspace_id)
        if path is None:
            return
        yield {"file": None}  # the drop zone is free again; the card shows the document
        try:
            upload = self._uploads.take(Path(path))
        except OndeviceError as error:
            workspace.problem = Problem(words.error(error))
            yield render.everything(workspace) | {"toast": workspace.problem.text}
            return
        yield from self._open(workspace, upload, None)

    def open_sample(self, workspace_id: object) -> Iterator[Patch]:
        """Open the sample document that comes with the program."""
        workspace = self._at_rest(workspace_id)
        with resources.as_file(resources.files("ondevice.assets") / SAMPLE) as path:
            upload = self._uploads.copy(path, SAMPLE)
        yield from self._open(workspace, upload, None)

    def unlock(self, workspace_id: object, password: str) -> Iterator[Patch]:
        """Open the file that asked for a password."""
        workspace = self._at_rest(workspace_id)
        if workspace.locked is None:
            yield render.everything(workspace)
            return
        yield {"password": ""}  # it stays in no field and in no state
        yield from self._open(workspace, workspace.locked, password)

    def forget(self, workspace_id: object) -> Patch:
        """Drop the document, the pot and the conversation."""
        workspace = self._at_rest(workspace_id)
        workspace.forget()
        _free_device_memory()
        return render.everything(workspace) | {"password": ""}

    def _open(self, workspace: Workspace, upload: Upload, password: str | None) -> Iterator[Patch]:
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

        yield from self._run(workspace, Phase.OPENING, steps())

    # -- reading and asking ----------------------------------------------------------------------

    def queue(self, workspace_id: object) -> Patch:
        """An action is about to stand in line for the model: show Stop at once."""
        workspace = self._workspace(workspace_id)
        if workspace.activity is None:
            workspace.stop.clear()
            workspace.is_waiting = True
        return render.controls(workspace) | {"status": render.status(workspace)}

    def stop(self, workspace_id: object) -> Iterator[Patch]:
        """End what is running, within one layer of the forward pass under way."""
        workspace = self._workspace(workspace_id)
        workspace.is_waiting = False
        workspace.request_stop()
        if not workspace.idle.is_set():
            yield {"stop": gr.update(value="Stopping…", interactive=False)}
        workspace.halt()
        yield render.everything(workspace)

    def read(self, workspace_id: object, form: Form) -> Iterator[Patch]:
        """Read the document from its beginning, with the settings of the form."""
        workspace = self._workspace(workspace_id)

        def steps() -> Iterator[Patch]:
            document, layout = workspace.document, workspace.layout
            if document is None or layout is None:
                return
            config = form.engine_config(self._engine.config)
            old = workspace.session.pot if workspace.session is not None else None
            require_room(self._engine, config, layout.num_tokens, reusable_bytes=old.nbytes if old else 0)
            del old
            workspace.drop_pot()  # the old pot goes before the new one comes
            _free_device_memory()
            workspace.session = session = self._engine.session(config)
            yield {"chat": []}
            yield from self._read(workspace, session.read(document))

        yield from self._run(workspace, Phase.READING, steps())

    def resume(self, workspace_id: object) -> Iterator[Patch]:
        """Read on from where reading was stopped."""
        workspace = self._workspace(workspace_id)

        def steps() -> Iterator[Patch]:
            session = workspace.session
            if session is not None and session.tokens is not None:
                yield from self._read(workspace, session.resume())

        yield from self._run(workspace, Phase.READING, steps())

    def ask(self, workspace_id: object, question: str, form: Form) -> Iterator[Patch]:
        """Answer a question from the pot."""
        workspace = self._workspace(workspace_id)

        def steps() -> Iterator[Patch]:
            session = workspace.session
            if session is None or workspace.document is None:
                return
            generation = form.generation(self._engine.config.generation)
            yield from self._answer(workspace, question, session.ask(question, generation))

        yield from self._run(workspace, Phase.ANSWERING, steps())

    def clear_conversation(self, workspace_id: object) -> Patch:
        """Drop the questions and answers; the pot has never held them."""
        workspace = self._workspace(workspace_id)
        workspace.messages.clear()
        return {"chat": []}

    def _read(self, workspace: Workspace, events: Iterator[Event]) -> Iterator[Patch]:
        throttle = Throttle()
        try:
            with closing(events):  # type: ignore[type-var]
                for event in events:
                    workspace.telemetry.apply(event)
                    workspace.note_fill(event)
                    if throttle.allows(urgent=isinstance(event, PotDistilled | DocumentRead)):
                        yield render.reading(workspace)
                    if workspace.stop.is_set():
                        return
        finally:
            workspace.note_rest()

    def _answer(self, workspace: Workspace, question: str, events: Iterator[Event]) -> Iterator[Patch]:
        throttle, answer = Throttle(), Answer(workspace, question)
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

    # -- common ----------------------------------------------------------------------------------

    def _run(self, workspace: Workspace, activity: Phase, steps: Iterator[Patch]) -> Iterator[Patch]:
        """Go through the steps of an action, and show where everything stands at its beginning and end."""
        workspace.problem, toast = None, {}
        if workspace.stop.is_set():  # stopped while it stood in line
            yield render.everything(workspace)
            return
        try:
            with workspace.working(activity), closing(steps):  # type: ignore[type-var]
                yield render.controls(workspace) | render.reading(workspace)
                yield from steps
        except OndeviceError as error:
            workspace.problem = Problem(words.error(error))
            toast = {"toast": workspace.problem.text}
        except (MemoryError, torch.OutOfMemoryError):
            workspace.problem = Problem("There was not enough memory for this. Choose a smaller pot and read again.")
            toast = {"toast": workspace.problem.text}
        except Exception as error:
            # The log names the place, never the text of a document or a question.
            reference = secrets.token_hex(4)
            log.error("%s failed [%s]: %s", activity.value, reference, type(error).__name__)
            log.debug("details [%s]", reference, exc_info=error)
            workspace.problem = Problem(f"Something went wrong inside the program (reference {reference}).")
            toast = {"toast": workspace.problem.text}
        yield render.everything(workspace) | toast

    def _workspace(self, workspace_id: object) -> Workspace:
        workspace = self._registry.find(workspace_id)
        if workspace is None:
            workspace = self._registry.create()
            workspace.problem = Problem(_EXPIRED)
        return workspace

    def _at_rest(self, workspace_id: object) -> Workspace:
        """The workspace, after whatever ran in it has been stopped."""
        workspace = self._workspace(workspace_id)
        workspace.halt()
        workspace.stop.clear()
        return workspace


def _free_device_memory() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
