"""Actions of the tab “Collection”: ask, stop, and the way from a passage to its document."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing

import gradio as gr

from ondevice.decode.prompt import Turn
from ondevice.errors import PotError
from ondevice.events import AnswerToken
from ondevice.serving.failure import problem_text
from ondevice.serving.job_events import ShelfSearched, Waiting
from ondevice.serving.shelf_state import ShelfAnswered
from ondevice.serving.shelving import WHOLE_LIBRARY, Member, Request, ask_several, member_of
from ondevice.serving.visitor import Visitor
from ondevice.ui.form import Form
from ondevice.ui.layout import EACH
from ondevice.ui.library_actions import LibraryActions
from ondevice.ui.render import Patch, download
from ondevice.ui.running import Runner
from ondevice.ui.shelf_render import shelf_controls, shelf_payload, to_csv, to_markdown
from ondevice.ui.throttle import Throttle

_LISTED = 60  # documents of the library, the newest


class ShelfActions:
    """The actions of the shelf.

    Args:
        runner: who knows the visitors and the engine.
        library: opens a saved document.
    """

    def __init__(self, runner: Runner, library: LibraryActions) -> None:
        self._runner, self._jobs, self._library = runner, runner.jobs, library

    def show(self, visitor_id: object, chosen: Sequence[str] | None = None) -> Patch:
        """The documents to choose from; chosen ones stay so, at first all that is open."""
        visitor = self._runner.visitor(visitor_id)
        members = self._members(visitor)
        kept = [one.id for one in members if one.id in (chosen or ())] or [one.id for one in members if one.workspace]
        choices = [(f"{one.name} (library)" if one.entry is not None else one.name, one.id) for one in members]
        return {"shelf_choices": gr.update(choices=choices, value=kept)}

    def ask(self, visitor_id: object, question: str, chosen: Sequence[str], mode: str, form: Form) -> Iterator[Patch]:
        """Ask the chosen documents, together or each by itself."""
        visitor = self._runner.visitor(visitor_id)
        work = visitor.shelf
        if not work.claim():
            return
        try:
            members = [member for member in self._members(visitor) if member.id in (chosen or ())]
            is_each = mode == EACH
            history = _turns(visitor) if form.remembers and not is_each else ()
            config = form.engine_config(self._jobs.engine.config)
            yield shelf_controls(visitor)  # opening a saved document may take seconds
            request = Request(question, is_each, config, form.generation(config.generation), history)
            yield from self._asked(visitor, members, request)
        except Exception as error:  # nothing was begun
            work.problem = problem_text(error, "ask")
        finally:
            work.release()
        yield self._runner.page(visitor)

    def stop(self, visitor_id: object) -> Patch:
        """End the question; what was said stays."""
        visitor = self._runner.visitor(visitor_id)
        visitor.shelf.halt()
        return self._runner.page(visitor)

    def clear(self, visitor_id: object) -> Patch:
        """Drop what was asked."""
        visitor = self._runner.visitor(visitor_id)
        if visitor.shelf.idle.is_set():
            visitor.shelf.turns.clear()
        return {"shelf": shelf_payload(visitor)}

    def export(self, visitor_id: object, kind: object) -> Patch:
        """All that was asked as a file that the browser makes by itself: `kind` is `md` or `csv`."""
        turns = self._runner.visitor(visitor_id).shelf.turns
        if kind == "csv":
            return download("several-documents", "csv", to_csv(turns))
        return download("several-documents", "md", to_markdown(turns))

    def open_passage(self, visitor_id: object, document: object, start: object, stop: object) -> Iterator[Patch]:
        """Go to a document, opened from the library where need be, and to tokens [start, stop) of its text."""
        visitor = self._runner.visitor(visitor_id)
        workspace = visitor.find(document)
        if workspace is not None:
            visitor.look_at(workspace)
            yield self._runner.page(visitor) | {"tabs": gr.update(selected="read")}
        elif all(entry.id != document for entry in self._jobs.library.entries()):
            gone = PotError("The document has been closed, or deleted from the library", fix="Open it again.")
            yield self._runner.failed(visitor, [problem_text(gone, "ask")]) | {"tabs": gr.update(selected="read")}
        else:
            yield from self._library.open(visitor_id, document)
            workspace = visitor.current if visitor.current.entry_id == document else None
        if workspace is not None and isinstance(start, int) and isinstance(stop, int):
            place = {"workspace": workspace.id, "start": start, "stop": stop}
            yield {"jump": {**place, "id": secrets.token_hex(4)}}  # the browser has to see that it was pressed again

    def _asked(self, visitor: Visitor, members: Sequence[Member], request: Request) -> Iterator[Patch]:
        throttle = Throttle()
        with closing(ask_several(self._jobs, visitor.shelf, members, request)) as events:
            for event in events:
                is_news = isinstance(event, Waiting | ShelfSearched | ShelfAnswered)
                if (is_news or isinstance(event, AnswerToken)) and throttle.allows(urgent=is_news):
                    yield {"shelf": shelf_payload(visitor), **shelf_controls(visitor)}

    def _members(self, visitor: Visitor) -> list[Member]:
        """The documents that can be asked: open ones, then those of the library that are not open."""
        opened_ones = [one for one in visitor.documents if one.tokens is not None]
        loaded, opened = self._jobs.engine.loaded, {one.entry_id for one in opened_ones}
        saved = [entry for entry in self._jobs.library.entries() if not entry.misfit(loaded)][:_LISTED]
        members = [*map(member_of, opened_ones), *(member_of(entry) for entry in saved if entry.id not in opened)]
        return [*members, WHOLE_LIBRARY] if saved else members


def _turns(visitor: Visitor) -> list[Turn]:
    """Earlier questions to several documents together, with their answers."""
    return [
        Turn(turn.question, said.text)
        for turn in visitor.shelf.turns
        if not turn.is_each
        for said in turn.answers
        if said.text
    ]
