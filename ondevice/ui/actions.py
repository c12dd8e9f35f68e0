"""Actions of the buttons: generators of patches to the screen, which can be closed at any time.

They know names of components, not Gradio's events; `wiring` connects the two. An error that a user can cause ends
an action with a sentence on the screen, or with NotBegun, and nothing that was there before is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from importlib import resources
from pathlib import Path

import gradio as gr

from ondevice.config import EngineConfig, on_screen
from ondevice.errors import OndeviceError
from ondevice.serving.export import as_json, as_markdown
from ondevice.serving.question_queue import Asked
from ondevice.serving.together import gather, regather, take_up
from ondevice.serving.uploads import Upload, Uploads
from ondevice.serving.visitor import Visitor
from ondevice.serving.workspace import Phase, Workspace
from ondevice.ui import render
from ondevice.ui.documents_list import TOGETHER
from ondevice.ui.form import Form
from ondevice.ui.progress import progress
from ondevice.ui.render import Patch
from ondevice.ui.running import EXPIRED, Runner
from ondevice.ui.scan_render import scan_panel, to_csv

SAMPLE = "lighthouse.md"


class Actions:
    """The actions of the screen. `shown` is `Workspace.shown` of what the page shows, as the page says, or an id alone.

    Args:
        runner: how actions run.
        uploads: where received files go.
    """

    def __init__(self, runner: Runner, uploads: Uploads) -> None:
        self._runner, self._jobs, self._uploads = runner, runner.jobs, uploads

    # -- the page --------------------------------------------------------------------------------

    def restore(self, visitor_id: object) -> Patch:
        """The page was loaded: show what this browser had, or begin with nothing."""
        return self._runner.page(self._runner.returning(visitor_id))

    def restore_workspaces(self, visitor_id: object) -> Iterator[Patch]:
        """Open again what was open before the app was started again, the one that is shown first."""
        visitor, problems = self._runner.visitor(visitor_id), []
        away = [workspace for workspace in visitor.documents if workspace.is_away]
        for workspace in sorted(away, key=lambda one: one is not visitor.current):
            job = self._jobs.restore_workspace(workspace)
            if not (yield from _without_toast(self._runner.run(visitor, workspace, job))) or not workspace.is_away:
                continue  # another page is at it
            problems.append(workspace.problem or "It was not opened.")
            visitor.close(workspace)
            yield self._runner.page(visitor)
        for workspace in [one for one in visitor.collections if one.is_away]:
            take_up(self._jobs, visitor, workspace)
            yield self._runner.page(visitor)
        yield self._runner.failed(visitor, problems)

    def follow(self, visitor_id: object) -> Patch:
        """Show how an action goes on that another page of the same browser has started."""
        return self._runner.page(self._runner.visitor(visitor_id))

    def pulse(self, visitor_id: object) -> Patch:
        """Patch of what moves while a step of reading goes on; nothing where none does."""
        workspace = self._runner.visitor(visitor_id).current
        return {"progress": progress(workspace)} if workspace.activity is Phase.READING else {}

    # -- the documents ---------------------------------------------------------------------------

    def open_received(self, visitor_id: object, paths: list[str] | str | None) -> Iterator[Patch]:
        """Open uploaded files one after the other; those that fail are named, and do not stop the others."""
        visitor = self._runner.visitor(visitor_id)
        received = [Path(path) for path in ([paths] if isinstance(paths, str) else paths or [])]
        if not received:
            return
        yield {"file": None}  # the drop zone is free again; the card shows the document
        yield from self._open_new(visitor, [partial(self._uploads.take, path) for path in received])

    def open_sample(self, visitor_id: object) -> Iterator[Patch]:
        """Open the sample document that comes with the program."""
        visitor = self._runner.visitor(visitor_id)
        with resources.as_file(resources.files("ondevice.assets") / SAMPLE) as path, path.open("rb") as content:
            yield from self._open_new(visitor, [partial(self._uploads.receive, content, SAMPLE)])

    def _open_new(self, visitor: Visitor, given: Sequence[Callable[[], Upload]]) -> Iterator[Patch]:
        problems = [EXPIRED] if visitor.current.problem == EXPIRED else []  # the page has lost all that it had
        queued: list[tuple[Workspace, Upload]] = []
        try:
            for take in given:
                upload = None
                try:
                    upload = take()
                    queued.append((visitor.new(upload.path.name), upload))
                except OndeviceError as error:
                    if upload is not None:
                        upload.discard()
                    problems.append(on_screen(error))
            while queued:
                problems += yield from self._open(visitor, *queued[0])
                queued.pop(0)
        finally:  # if that has failed: nothing waits for ever
            for workspace, upload in queued:
                visitor.close(workspace)
                upload.discard()
        yield self._runner.failed(visitor, problems)

    def unlock(self, visitor_id: object, password: str, shown: object = None) -> Iterator[Patch]:
        """Open the file that asked for a password."""
        yield {"password": ""}  # it stays in no field and in no state
        visitor, workspace = self._runner.on_shown(visitor_id, shown)
        if workspace.locked is None:
            yield self._runner.page(visitor)
        else:
            problems = yield from self._open(visitor, workspace, workspace.locked, password)
            yield self._runner.failed(visitor, problems)

    def look_at(self, visitor_id: object, workspace_id: str) -> Patch:
        """Show another one of the open documents, or several together."""
        visitor = self._runner.visitor(visitor_id)
        if workspace_id == TOGETHER:
            with self._runner.asking(visitor):
                visitor.look_at(gather(self._jobs, visitor))
        else:
            visitor.look_at(visitor.find(workspace_id) or visitor.current)
        page = self._runner.page(visitor)
        return page | {"password": "", "question": page["question"] | {"value": ""}}

    def choose_members(self, visitor_id: object, chosen: list[str]) -> Patch:
        """Ask these documents together, from now on."""
        visitor = self._runner.visitor(visitor_id)
        with self._runner.asking(visitor):
            gather(self._jobs, visitor, chosen)
        return self._runner.page(visitor)

    def forget(self, visitor_id: object, shown: object = None) -> Patch:
        """Close the document: drop it with its pot and the conversations."""
        visitor, workspace = self._runner.on_shown(visitor_id, shown)
        self._jobs.close(visitor, workspace)
        regather(self._jobs, visitor)
        return self._runner.page(visitor) | {"password": ""}

    def _open(
        self, visitor: Visitor, workspace: Workspace, upload: Upload, password: str | None = None
    ) -> Generator[Patch, None, list[str]]:
        """Open a file in a workspace of its own, which vanishes if that fails; returns why it failed.

        A locked file, which has waited there, has a `password`; a new one has None.
        """
        before = visitor.current
        visitor.look_at(workspace)
        job = self._jobs.open(workspace, upload, password or "", keeps_file=True)
        if not (yield from _without_toast(self._runner.run(visitor, workspace, job))):
            # closed before its turn came, or being unlocked already
            if password is None:
                upload.discard()
            return []
        problem = visitor.close_unopened(workspace, before)
        if problem is not None:
            yield self._runner.page(visitor)
        return [problem] if problem else []

    # -- reading and asking ----------------------------------------------------------------------

    def stop(self, visitor_id: object, shown: object = None) -> Iterator[Patch]:
        """End what is running, or waits in line, on the document that is shown."""
        visitor, workspace = self._runner.on_any(visitor_id, shown)
        workspace.request_stop()
        if not workspace.idle.is_set():
            yield {"stop": gr.update(value="Cancelling…", interactive=False)}
        workspace.halt()
        yield self._runner.page(visitor)

    def pause(self, visitor_id: object, shown: object = None) -> Patch:
        """End reading where it is, within one layer of the forward pass under way; an answer is completed first."""
        visitor, workspace = self._runner.on_any(visitor_id, shown)
        if workspace.is_reading:
            workspace.request_pause()
        return self._runner.page(visitor)

    def stop_answer(self, visitor_id: object, shown: object = None) -> Patch:
        """End the answer that is being written, and reading that waits for it goes on; or else take back the question
        that waits.
        """
        _, workspace = self._runner.on_any(visitor_id, shown)
        if workspace.phase is not Phase.ANSWERING and (asked := workspace.asked.take()) is not None:
            return render.with_question(render.waiting(workspace), asked.question)
        workspace.answer_stop.set()
        if workspace.phase is Phase.ANSWERING and not workspace.is_reading:
            workspace.request_stop()  # not only at its next word: the question may still be read
        return {}

    def read(self, visitor_id: object, form: Form, shown: object = None) -> Iterator[Patch]:
        """Read the document from its beginning, with the settings of the form."""
        visitor, workspace = self._runner.on_shown(visitor_id, shown, is_open=True)
        try:
            config = form.engine_config(self._jobs.engine.config)
        except OndeviceError as error:
            yield self._runner.failed(visitor, [on_screen(error)]) | render.settings_error(error)
            return
        yield from self._runner.run(visitor, workspace, self._jobs.read(workspace, config))

    def read_opened(self, visitor_id: object, form: Form) -> Iterator[Patch]:
        """Read the documents that are open and wait for it, one after the other, or open what the library has of them
        with these settings; what is wrong with the form waits for the button.
        """
        visitor = self._runner.visitor(visitor_id)
        with self._runner.asking(visitor):
            config = form.engine_config(self._jobs.engine.config)
        for workspace in [one for one in visitor.workspaces if one.asked.waiting is not None]:
            yield from self._read_unread(visitor, workspace, config)
        visitor.must_read = True
        while visitor.must_read and visitor.reading_all.acquire(blocking=False):
            try:
                visitor.must_read = False
                for workspace in list(visitor.workspaces):
                    yield from self._read_unread(visitor, workspace, config)
            finally:
                visitor.reading_all.release()

    def read_asked(self, visitor_id: object, form: Form, shown: object = None) -> Iterator[Patch]:
        """Read the document that is shown, where a question waits for that: it comes before those of no question."""
        visitor = self._runner.visitor(visitor_id)
        workspace = self._runner.find(visitor, shown) or visitor.current
        if workspace.asked.waiting is not None:
            with self._runner.asking(visitor):
                config = form.engine_config(self._jobs.engine.config)
            yield from self._read_unread(visitor, workspace, config)

    def _read_unread(self, visitor: Visitor, workspace: Workspace, config: EngineConfig) -> Iterator[Patch]:
        """Read a document that waits for it, or open what the library has of it."""
        if workspace.phase is not Phase.READY:  # by now
            return
        entry = self._jobs.held(workspace, config)
        job = self._jobs.read(workspace, config) if entry is None else self._jobs.reopen(workspace, entry)
        yield from self._runner.run(visitor, workspace, job)
        if entry is not None and workspace.entry_id == entry.id:
            yield {"news": f"Opened from the library, where {entry.title} was saved. “Read again” reads the text."}

    def check(self, visitor_id: object, form: Form) -> Patch:
        """Say what is wrong with the settings, or that they are other than those of the reading."""
        try:
            config = form.engine_config(self._jobs.engine.config)
        except OndeviceError as error:
            return render.settings_error(error)
        return render.settings_changed(self._runner.visitor(visitor_id).current, config)

    def resume(self, visitor_id: object, shown: object = None) -> Iterator[Patch]:
        """Read on from where reading was paused."""
        visitor, workspace = self._runner.on_shown(visitor_id, shown, is_open=True)
        yield from self._runner.run(visitor, workspace, self._jobs.resume(workspace))

    def ask(self, visitor_id: object, question: str, form: Form, shown: object = None) -> Iterator[Patch]:
        """Answer a question from the pot, or let it wait: for a document, for its reading, or for the answer before."""
        visitor, workspace = self._runner.on_shown(visitor_id, shown)
        if not question.strip():
            return
        with self._runner.asking(visitor):
            asked = Asked(question, form.generation(self._jobs.engine.config.generation), form.remembers)
        yield from self._runner.ask(visitor, workspace, asked)

    def ask_example(self, visitor_id: object, example: object, form: Form, shown: object = None) -> Iterator[Patch]:
        """Ask one of the questions that are offered, as the page names it."""
        text = example.get("text") if isinstance(example, dict) else None
        yield from self.ask(visitor_id, str(text or ""), form, shown)

    def export(self, visitor_id: object, shown: object = None, *, kind: str) -> Patch:
        """The conversation as a file that the browser makes by itself: `kind` is `md` or `json`."""
        _, workspace = self._runner.on_any(visitor_id, shown)
        if not workspace.exchanges:
            return {}
        text = as_markdown(workspace) if kind == "md" else as_json(workspace)
        return render.download(f"{Path(workspace.name).stem}-answers", kind, text)

    # -- a scan ----------------------------------------------------------------------------------

    def scan(self, visitor_id: object, question: object, shown: object = None) -> Iterator[Patch]:
        """Ask a question on every chunk of the document."""
        visitor, workspace = self._runner.on_shown(visitor_id, shown, is_open=True)
        yield from self._runner.run(visitor, workspace, self._jobs.scan(workspace, str(question or "")))

    def stop_scan(self, visitor_id: object, shown: object = None) -> Patch:
        """End the scan; what it found stays, and so does all else."""
        visitor, workspace = self._runner.on_any(visitor_id, shown)
        if workspace.scan is not None and workspace.scan.is_running:
            workspace.halt()
        return self._runner.page(visitor)

    def close_scan(self, visitor_id: object, shown: object = None) -> Patch:
        """Put away what a scan that has ended has found."""
        _, workspace = self._runner.on_any(visitor_id, shown)
        if workspace.scan is not None and not workspace.scan.is_running:
            workspace.scan = None
        return {"scan": scan_panel(workspace)}

    def save_found(self, visitor_id: object, shown: object = None) -> Patch:
        """The findings so far, as a file that the browser makes by itself."""
        _, workspace = self._runner.on_any(visitor_id, shown)
        if workspace.scan is None:
            return {}
        workspace.scan.is_saved = not workspace.scan.is_running
        return render.download(f"{Path(workspace.name).stem}-findings", "csv", to_csv(workspace.scan))


def _without_toast(patches: Generator[Patch, None, bool]) -> Generator[Patch, None, bool]:
    """The same, with failures collected, to be shown once for all files; returns what `patches` does."""
    while True:
        try:
            patch = next(patches)
        except StopIteration as stop:
            return bool(stop.value)
        yield {name: value for name, value in patch.items() if name != "toast"}
