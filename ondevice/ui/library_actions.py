"""Actions of the library: save, open, rename and delete, and the list as the screen shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import gradio as gr

from ondevice import words
from ondevice.config import on_screen
from ondevice.errors import OndeviceError
from ondevice.library.library import Entry
from ondevice.ui.form import in_words
from ondevice.ui.render import Patch
from ondevice.ui.running import Runner


class LibraryActions:
    """The actions of the library, run by `runner`."""

    def __init__(self, runner: Runner) -> None:
        self._runner, self._jobs, self._library = runner, runner.jobs, runner.jobs.library

    def show(self, visitor_id: object, problem: str = "") -> Patch:
        """The list as it is on the disk now, and how many open documents are kept of this visitor."""
        entries, total = self._library.entries(), words.size(self._library.size_bytes())
        text = f"{words.plural(len(entries), 'document')}, {total} on disk, in {self._library.folder}"
        shown = {"entries": [self._shown(entry) for entry in entries], "text": text if entries else ""}
        return {"library": shown | {"problem": problem, "kept": self._kept(visitor_id)}}

    def save(self, visitor_id: object, shown: object = None) -> Iterator[Patch]:
        """Keep the document that the page shows (its id is `shown`), with its pot and its conversation."""
        visitor, workspace = self._runner.on_shown(visitor_id, shown, is_open=True)
        yield from self._runner.run(visitor, workspace, self._jobs.save(workspace))
        yield self.show(visitor_id)

    def open(self, visitor_id: object, entry_id: object) -> Iterator[Patch]:
        """Open a saved document beside those that are open, and go to it."""
        visitor = self._runner.visitor(visitor_id)
        opened = next((w for w in visitor.workspaces if entry_id and w.entry_id == entry_id), None)
        if opened is not None:
            visitor.look_at(opened)
            yield self._runner.page(visitor) | {"tabs": gr.update(selected="read")}
            return
        try:
            entry = self._library.find(entry_id)
            workspace = visitor.new(entry.title)
        except OndeviceError as error:
            yield self._failed(visitor_id, error)
            return
        before = visitor.current
        visitor.look_at(workspace)
        yield {"tabs": gr.update(selected="read")}
        has_begun = yield from self._runner.run(visitor, workspace, self._jobs.reopen(workspace, entry))
        if has_begun and workspace.document is None:
            problem = workspace.problem
            visitor.close(workspace)
            visitor.look_at(before)
            visitor.current.problem = problem or "Opening it was stopped."
            yield self._runner.page(visitor)

    def rename(self, visitor_id: object, entry_id: object, title: object) -> Patch:
        """Give a saved document another name."""
        return self._changed(visitor_id, lambda: self._library.rename(entry_id, str(title or "")))

    def delete(self, visitor_id: object, entry_id: object) -> Patch:
        """Delete a saved document; where it is open it stays so, unsaved."""
        visitor = self._runner.visitor(visitor_id)

        def change() -> None:
            self._library.delete(entry_id)
            for workspace in visitor.workspaces:
                if workspace.entry_id == entry_id:
                    workspace.entry_id = ""

        changed = self._changed(visitor_id, change)
        return self._runner.page(visitor) | changed

    def forget_all(self, visitor_id: object) -> Patch:
        """Close all documents of this browser, and delete what is kept of them; that of other visitors stays."""
        visitor = self._runner.visitor(visitor_id)
        for workspace in list(visitor.workspaces):
            self._jobs.close(visitor, workspace)
        self._jobs.keeping.forget_all(visitor.id)
        return self._runner.page(visitor) | self.show(visitor.id)

    def _kept(self, visitor_id: object) -> str:
        number = len(self._jobs.keeping.of(visitor_id))
        kept = f"{words.plural(number, 'open document')} {'is' if number == 1 else 'are'} kept for the next start"
        kept = f"{kept}, with the conversation, in {self._jobs.keeping.folder}."
        return f"{kept} Closing a document deletes what is kept of it." if number else ""

    def _changed(self, visitor_id: object, change: Callable[[], object]) -> Patch:
        try:
            change()
        except OndeviceError as error:
            return self._failed(visitor_id, error)
        return self.show(visitor_id)

    def _failed(self, visitor_id: object, error: OndeviceError) -> Patch:
        text = on_screen(error)
        return self.show(visitor_id, text) | {"toast": text}

    def _shown(self, entry: Entry) -> dict[str, Any]:
        reason = entry.misfit(self._jobs.engine.loaded)
        facts: list[list[str]] = []
        if entry.document:
            facts = [
                ["File", entry.document],
                ["Text", f"{words.plural(entry.num_pages, entry.unit)}, {words.count(entry.num_tokens)} tokens"],
                ["Model", entry.model],
                ["Settings", in_words(entry.config) if entry.config is not None else "not known"],
                ["Memory when open", words.size(entry.pot_bytes)],
                ["Saved", _date(entry.saved)],
            ]
        return {
            "id": entry.id,
            "title": entry.title,
            "facts": [*facts, ["Size on disk", words.size(entry.size_bytes)]],
            "reason": f"{reason}. It can be deleted." if reason else "",
            "can_rename": not entry.problem,
        }


def _date(saved: str) -> str:
    """A date of the computer's own time zone, to the minute."""
    try:
        return f"{datetime.fromisoformat(saved).astimezone():%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):  # also of a year that has no time zones
        return "not known"
