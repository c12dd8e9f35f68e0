"""Several documents as one more of a visitor's: asked the same way, from passages that a search finds in all of them.

Open ones need not be read for that, and saved ones are not opened. Nothing of it is kept on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import OndeviceError, PotError
from ondevice.library.library import Entry
from ondevice.serving.jobs import Jobs
from ondevice.serving.visitor import Visitor
from ondevice.serving.workspace import Workspace
from ondevice.session.collection import collect

_LISTED = 60  # documents of the library, the newest


@dataclass(frozen=True, slots=True)
class Member:
    """A document that can be asked together with others: an open one, or one of the library."""

    id: str
    name: str
    workspace: Workspace | None = None
    entry: Entry | None = None

    @classmethod
    def of(cls, one: Workspace | Entry) -> Member:
        """An open or a saved document as a member."""
        if isinstance(one, Workspace):
            return cls(one.id, one.name, workspace=one)
        return cls(one.id, one.title, entry=one)

    def text(self, jobs: Jobs) -> DocumentTokens:
        """The text, whether it is read or not; that of a saved document without its pot.

        Raises:
            PotError: it is not open yet, or damaged.
            PotMismatch, LibraryError: as `Library.text`.
        """
        if self.entry is not None:
            return jobs.library.text(jobs.engine, self.entry.id)
        if self.workspace is None or self.workspace.tokens is None:
            raise PotError("The document is not open yet", where=self.name, fix="Wait until its text is there.")
        return self.workspace.tokens


def lay_together(jobs: Jobs, workspace: Workspace, members: Sequence[Member]) -> None:
    """Fill a collection's workspace with the texts of some documents, in this order.

    Raises:
        OndeviceError: there is none, or one cannot be opened.
    """
    collection = collect(jobs.engine, [member.text(jobs) for member in members])
    workspace.accept(collection.session.context.tokens)
    workspace.session = collection.session


def members(jobs: Jobs, visitor: Visitor) -> list[Member]:
    """The documents that can be asked together: open ones, then those of the library that are not open."""
    opened = [one for one in visitor.documents if one.tokens is not None]
    saved = [one for one in jobs.library.entries() if not one.misfit(jobs.engine.loaded)][:_LISTED]
    known = {one.entry_id for one in opened}
    return [*map(Member.of, opened), *(Member.of(entry) for entry in saved if entry.id not in known)]


def gather(jobs: Jobs, visitor: Visitor, chosen: Sequence[str] | None = None) -> Workspace:
    """The workspace of the chosen documents; what was asked stays where others only join them.

    Args:
        chosen: ids of `members`; None: those of the last time that are still there, and all that were opened since.

    Raises:
        PotError: there is none, or they are being asked.
        OndeviceError: one of them cannot be opened.
    """
    there = {one.id: one for one in members(jobs, visitor)}
    opened = [one.id for one in there.values() if one.workspace is not None]
    before = [one for one in visitor.together if one in there]
    if chosen is None:
        chosen = [*before, *(one for one in opened if one not in visitor.seen_together)]
    ids = [*(one for one in before if one in chosen), *(one for one in chosen if one in there and one not in before)]
    visitor.seen_together.update(opened)
    if not ids:
        raise PotError("No document is chosen", fix="Tick one or more.")
    workspace = next(iter(visitor.collections), None) or visitor.new_collection()
    if ids == visitor.together and workspace.tokens is not None:
        return workspace
    if not workspace.claim():
        raise PotError("They are being asked", fix="Wait for the answer, or stop it.")
    try:
        exchanges, last = list(workspace.exchanges), visitor.together
        lay_together(jobs, workspace, [there[one] for one in ids])
        visitor.together = ids
        if ids[: len(last)] == last:  # their tokens are where they were: what was said of them is still right
            workspace.exchanges = exchanges
    finally:
        workspace.release()
    return workspace


def regather(jobs: Jobs, visitor: Visitor) -> None:
    """Leave out what was closed; the workspace goes where nothing of it is there any more."""
    for workspace in visitor.collections:
        if not workspace.idle.is_set():  # an answer is on its way
            continue
        try:
            gather(jobs, visitor)
        except OndeviceError:
            visitor.close(workspace)
