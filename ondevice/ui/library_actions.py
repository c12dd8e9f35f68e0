"""Actions of the library: save, open, rename and delete, and forget what is kept."""

from __future__ import annotations

from collections.abc import Iterator

from ondevice.ui.render import Patch
from ondevice.ui.running import Runner


class LibraryActions:
    """The actions of the library, run by `runner`."""

    def __init__(self, runner: Runner) -> None:
        self._runner, self._jobs, self._library = runner, runner.jobs, runner.jobs.library

    def save(self, visitor_id: object, shown: object = None) -> Iterator[Patch]:
        """Keep the document that the page shows (its id is `shown`), with its pot and its conversation."""
        visitor, workspace = self._runner.on_shown(visitor_id, shown, is_open=True)
        yield from self._runner.run(visitor, workspace, self._jobs.save(workspace))

    def open(self, visitor_id: object, entry_id: object) -> Iterator[Patch]:
        """Open a saved document beside those that are open, and go to it."""
        visitor = self._runner.visitor(visitor_id)
        opened = next((w for w in visitor.workspaces if entry_id and w.entry_id == entry_id), None)
        if opened is not None:
            visitor.look_at(opened)
            yield self._runner.page(visitor)
            return
        with self._runner.asking(visitor):
            entry = self._library.find(entry_id)
            workspace = visitor.new(entry.title)
        before = visitor.current
        visitor.look_at(workspace)
        has_begun = yield from self._runner.run(visitor, workspace, self._jobs.reopen(workspace, entry))
        if has_begun and (problem := visitor.close_unopened(workspace, before)) is not None:
            visitor.current.problem = problem or "Opening it was stopped."
            yield self._runner.page(visitor)

    def rename(self, visitor_id: object, entry_id: object, title: object) -> Patch:
        """Give a saved document another name."""
        visitor = self._runner.visitor(visitor_id)
        with self._runner.asking(visitor):
            self._library.rename(entry_id, str(title or ""))
        return self._runner.page(visitor)

    def delete(self, visitor_id: object, entry_id: object) -> Patch:
        """Delete a saved document; where it is open it stays so, unsaved."""
        visitor = self._runner.visitor(visitor_id)
        with self._runner.asking(visitor):
            left = self._library.delete(entry_id)
        for workspace in visitor.workspaces:
            if workspace.entry_id == entry_id:
                workspace.entry_id = ""
        return self._runner.failed(visitor, [left]) if left else self._runner.page(visitor)

    def forget_all(self, visitor_id: object) -> Patch:
        """Close all documents of this browser, and delete what is kept of them; that of other visitors stays."""
        visitor = self._runner.visitor(visitor_id)
        for workspace in list(visitor.workspaces):
            self._jobs.close(visitor, workspace)
        self._jobs.keeping.forget_all(visitor.id)
        return self._runner.page(visitor)
