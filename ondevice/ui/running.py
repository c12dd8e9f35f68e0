"""Runs of actions: a job whose events become patches, with each failure in a sentence.

It knows nothing of what a job does, nor of Gradio's events.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import gradio as gr

from ondevice import events, words
from ondevice.config import on_screen
from ondevice.errors import OndeviceError
from ondevice.scan.scan import ChunkScanned
from ondevice.serving.job_events import Failed, JobEvent, NotKept, QuestionFailed, Saved, Waiting, Working
from ondevice.serving.jobs import Job, Jobs
from ondevice.serving.models import Models
from ondevice.serving.question_queue import Asked
from ondevice.serving.together import members
from ondevice.serving.visitor import Visitor
from ondevice.serving.workspace import Workspace
from ondevice.ui import render
from ondevice.ui.chat import conversation
from ondevice.ui.documents_list import documents_list, saved_list
from ondevice.ui.form import for_model
from ondevice.ui.layout import header
from ondevice.ui.progress import progress
from ondevice.ui.render import Patch
from ondevice.ui.scan_render import scan_panel
from ondevice.ui.throttle import Throttle

EXPIRED = (
    "This page was idle for too long, or the app was started again: its documents were dropped. "
    "Please choose them again."
)
_AWAY = (
    "This page was idle for too long, or the app was started again. Its documents were kept: load the page again, and "
    "they are opened."
)
_NOT_SHOWN = (
    "Nothing was done: what you saw was closed, or another document or conversation was chosen meanwhile, maybe on "
    "another page. Look at what is shown now, then try again."
)


class NotBegun(Exception):
    """An action that was asked for and is not begun; `patch` says so on the screen."""

    def __init__(self, patch: Patch) -> None:
        self.patch = patch


class Runner:
    """Runs jobs for the screen.

    Args:
        jobs: what can be run.
        models: what may be fetched meanwhile.
    """

    def __init__(self, jobs: Jobs, models: Models | None = None) -> None:
        self.jobs, self._models = jobs, models or Models(jobs)

    def visitor(self, visitor_id: object) -> Visitor:
        """The visitor of this id; a new one, with a problem that says so, where it has been dropped."""
        visitor = self.jobs.registry.find(visitor_id)
        if visitor is None:
            visitor = self.returning(visitor_id)
            visitor.current.problem = _AWAY if visitor.current.is_away else EXPIRED
        return visitor

    def returning(self, visitor_id: object) -> Visitor:
        """The visitor of this id, with what was kept of its documents; a new one where nothing is known of it."""
        visitor, away = self.jobs.registry.find(visitor_id), self.jobs.keeping.away(visitor_id)
        if visitor is None:
            known = str(visitor_id) if away else ""
            visitor = self.jobs.registry.create(known, is_kept=self.jobs.keeping.is_on)
        visitor.expect(away)
        return visitor

    def on_shown(self, visitor_id: object, shown: object, *, is_open: bool = False) -> tuple[Visitor, Workspace]:
        """The visitor of this id and its document that is shown, if a page that shows `shown` means that.

        What is shown belongs to the browser, and a page may be older than another one. A page that says nothing
        means what is shown.

        Raises:
            NotBegun: it means another one; or with `is_open` there is no open document.
        """
        visitor = self.visitor(visitor_id)
        workspace, is_lost = visitor.current, visitor.current.problem in (EXPIRED, _AWAY)
        if (
            is_lost
            or (shown and shown not in (workspace.id, workspace.shown))
            or (is_open and workspace.document is None)
        ):
            raise NotBegun(self.not_shown(visitor))
        return visitor, workspace

    def on_any(self, visitor_id: object, shown: object) -> tuple[Visitor, Workspace]:
        """The same for what may be done to any document of the visitor; raises NotBegun where `shown` is closed."""
        visitor = self.visitor(visitor_id)
        workspace = self.find(visitor, shown) if shown else visitor.current
        if workspace is None:
            raise NotBegun(self.not_shown(visitor))
        return visitor, workspace

    def find(self, visitor: Visitor, shown: object) -> Workspace | None:
        """The document that a page shows, whichever of its conversations; None where it is closed."""
        return visitor.find(str(shown).partition("/")[0])

    def not_shown(self, visitor: Visitor) -> Patch:
        """The page as it is now, for one that meant something else: nothing was done."""
        problem = visitor.current.problem
        text = problem if problem in (EXPIRED, _AWAY) else _NOT_SHOWN
        return self.page(visitor) | {"problem": {"text": text}, "toast": text}

    def failed(self, visitor: Visitor, problems: list[str]) -> Patch:
        """Patch of the last failure, if there is one."""
        if not problems:
            return {}
        text = "\n".join(problems)
        visitor.current.problem = text
        return self.page(visitor) | {"toast": text}

    @contextmanager
    def asking(self, visitor: Visitor) -> Iterator[None]:
        """Raise NotBegun, with a patch that says why, where the block finds an error in what is asked for."""
        try:
            yield
        except OndeviceError as error:
            raise NotBegun(self.failed(visitor, [on_screen(error)])) from error

    def page(self, visitor: Visitor) -> Patch:
        """All there is to show, for a page that was just loaded and for the end of an action."""
        # Asked before the rest is rendered: work that ends meanwhile is shown by one more tick of the timer.
        is_active = not visitor.is_idle
        # The page may have been made before the sizes of the model's slots were known.
        return {
            **render.everything(visitor.current),
            **self.documents(visitor),
            "library": saved_list(visitor, self.jobs),
            "header": self.header() | {"question": self._models.question(visitor)},
            "session_id": visitor.id,
            # At work although this page has nothing to do with it: another page has begun it, or it was reloaded.
            "follow": gr.update(active=is_active or self._models.fetching is not None or self._is_loading),
        } | (for_model(self.jobs.engine) if self.jobs.loading is not None and self.jobs.engine.has_model else {})

    def header(self) -> dict[str, str]:
        """The model, the first one on its way, and one that is being downloaded."""
        line, text = self.jobs.loading.line if self.jobs.loading is not None else "", ""
        if (fetching := self._models.fetching) is not None:
            text = f"{fetching.row.title}: {words.stage(fetching.stage, fetching.fraction, ', ')}"
        return header(self.jobs.engine) | ({"notice": line} if line else {}) | {"fetching": text}

    @property
    def _is_loading(self) -> bool:
        return self.jobs.loading is not None and not self.jobs.loading.is_done.is_set()

    def following(self) -> Patch:
        """The timer, where a download goes on that the page is to follow."""
        return {"follow": gr.update(active=True)} if self._models.fetching is not None else {}

    def documents(self, visitor: Visitor) -> Patch:
        """The list of open documents, and those that are asked together."""
        others = members(self.jobs, visitor) if visitor.current.is_collection else ()
        return documents_list(visitor, others, self.jobs.free_memory(self.jobs.engine.loaded.device))

    def run(self, visitor: Visitor, workspace: Workspace, job: Job) -> Generator[Patch, None, bool]:
        """Go through a job, and show where everything stands as it goes on and at its end.

        What belongs to a document that is not shown now is left out. A second action on the same document,
        begun by a double click or on another page, is left out as a whole, and so is one on a closed document;
        returns False then.
        """
        if not workspace.claim():
            return False
        yield from self._go(visitor, workspace, job)
        yield from self._answer_waiting(visitor, workspace)
        return True

    def ask(self, visitor: Visitor, workspace: Workspace, asked: Asked) -> Generator[Patch, None, None]:
        """Answer a question now, or let it wait for what it needs; where another one waits, nothing is done.

        Its answer belongs to the conversation that is shown now, whichever is shown when it comes.
        """
        asked = replace(asked, conversation=workspace.conversation)
        if workspace.can_answer and not workspace.asked.under_way:
            workspace.asked.under_way = asked.question  # before anything else: a second click finds it
            if workspace.claim():
                yield from self._answer(visitor, workspace, asked)
                yield from self._answer_waiting(visitor, workspace)
                return
            workspace.asked.under_way = ""
        is_early = workspace.session is None or not workspace.session.context.num_read
        if workspace.asked.put(replace(asked, is_early=is_early)):
            yield _taken(render.waiting(workspace), asked)
            yield from self._answer_waiting(visitor, workspace)  # what it was to wait for may just have ended

    def _answer_waiting(self, visitor: Visitor, workspace: Workspace) -> Generator[Patch, None, None]:
        """Answer the question that waits, if it can be answered now."""
        while workspace.asked.waiting is not None and workspace.can_answer and workspace.claim():
            asked = workspace.asked.take()
            if asked is None:  # it was taken back meanwhile
                workspace.release()
                return
            yield from self._answer(visitor, workspace, asked)

    def _answer(self, visitor: Visitor, workspace: Workspace, asked: Asked) -> Generator[Patch, None, None]:
        """Answer a question in a workspace that was claimed; without an answer it goes back into its field."""
        workspace.asked.under_way = asked.question
        exchanges = workspace.conversation_of(asked).exchanges
        last = exchanges[-1:]
        for patch in self._go(visitor, workspace, self.jobs.ask(workspace, asked), asked):
            is_lost = asked.at is None and workspace.idle.is_set() and exchanges[-1:] == last
            is_here = visitor.current is workspace
            yield render.with_question(patch, asked.question) if is_lost and is_here else patch
        workspace.asked.under_way = ""

    def _go(
        self, visitor: Visitor, workspace: Workspace, job: Job, asked: Asked | None = None
    ) -> Generator[Patch, None, None]:
        """Patches of a job; the first of them takes what was asked out of its field."""
        throttle, toast = Throttle(), {}
        with closing(job):
            for event in job:
                if isinstance(event, Failed):
                    toast = {"toast": event.text}
                patch = self._patch(event, visitor, workspace, throttle)
                if patch and visitor.current is workspace:
                    yield patch if asked is None else _taken(patch, asked)
                    asked = None
        yield self.page(visitor) | toast

    def _patch(self, event: JobEvent, visitor: Visitor, workspace: Workspace, throttle: Throttle) -> Patch:
        """Patch of an event, as far as the browser can take it now."""
        match event:
            case Waiting():
                status = {"status": render.status(workspace), "header": self.header()}
                return render.waiting(workspace) | status | self.documents(visitor)
            case Working():
                chat = {"chat": conversation(workspace)} if workspace.asked.waiting is not None else {}
                note = render.settings_changed(workspace, workspace.read_with) if workspace.read_with else {}
                return render.controls(workspace) | render.reading(workspace) | self.documents(visitor) | chat | note
            case events.DocumentOpened():
                return {"chat": render.chat(workspace), **render.conversation_tools(workspace)}
            case events.QuestionRead():
                return render.answering(workspace)
            case events.AnswerFinished():
                return render.answering(workspace) | render.conversation_tools(workspace)
            case QuestionFailed():
                return render.answering(workspace) | {"toast": event.text, "question": event.question}
            case NotKept():
                return {"toast": event.text}
            case Saved():
                return {"news": f"Saved to the library: {words.size(event.entry.size_bytes)}."}
        is_urgent = isinstance(event, events.HeadsMeasured | events.PotDistilled | events.DocumentRead)
        if not throttle.allows(urgent=is_urgent):
            return {}
        match event:
            case events.PagesExtracted():
                return {"progress": progress(workspace), "status": render.status(workspace)}
            case events.AnswerToken() | events.BlocksRead() | events.TokensRecalled():
                return render.answering(workspace)
            case ChunkScanned():
                return {"scan": scan_panel(workspace), "status": render.status(workspace)}
        return render.reading(workspace)


def _taken(patch: Patch, asked: Asked) -> Patch:
    """The patch, with the field of the question empty; one that is asked again did not come from there."""
    return patch if asked.at is not None else render.with_question(patch, "")
