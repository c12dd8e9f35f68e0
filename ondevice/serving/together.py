"""Several documents as one more of a visitor's: asked the same way, from passages that a search finds in all of them.

Open ones need not be read for that, and saved ones are not opened. Nothing of it is kept on disk.
"""

from __future__ import annotations

from collections.abc import Sequence

from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import OndeviceError, PotError
from ondevice.library.library import Entry
from ondevice.serving.jobs import Jobs
from ondevice.serving.visitor import Visitor
from ondevice.serving.workspace import Workspace
from ondevice.session.collection import collect

_LISTED = 60  # documents of the library, the newest
Member = Workspace | Entry  # a document that can be asked together with others


def _text(jobs: Jobs, one: Member) -> DocumentTokens:
    """The text, whether it is read or not; that of a saved document without its pot, and raises as `Library.text`."""
    if not isinstance(one, Workspace):
        return jobs.library.text(jobs.engine, one.id)
    if one.tokens is None:
        raise PotError("The document is not open yet", where=one.name, fix="Wait until its text is there.")
    return one.tokens


def lay_together(jobs: Jobs, workspace: Workspace, members: Sequence[Member]) -> None:
    """Fill a collection's workspace with some texts, in this order; raises OndeviceError where one cannot be had."""
    workspace.member_ids = frozenset(member.id for member in members)
    collection = collect(jobs.engine, [_text(jobs, member) for member in members])
    workspace.accept(collection.session.context.tokens)
    workspace.session = collection.session


def members(jobs: Jobs, visitor: Visitor) -> list[Member]:
    """The documents that can be asked together: open ones, then those of the library that are not open."""
    opened = [one for one in visitor.documents if one.tokens is not None]
    saved = [one for one in jobs.library.entries() if not one.misfit(jobs.engine.loaded)][:_LISTED]
    known = {one.entry_id for one in opened}
    return [*opened, *(entry for entry in saved if entry.id not in known)]


def gather(jobs: Jobs, visitor: Visitor, chosen: Sequence[str] | None = None) -> Workspace:
    """The workspace of the chosen documents.

    Its conversations stay. If others do not only join those of before, a new one begins, and earlier ones lose sources.

    Args:
        chosen: ids of `members`; None: those of the last time that are still there, and all that were opened since.

    Raises:
        PotError: there is none, or they are being asked.
        OndeviceError: one of them cannot be opened.
    """
    there = {one.id: one for one in members(jobs, visitor)}
    opened = [one.id for one in there.values() if isinstance(one, Workspace)]
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
        last = visitor.together
        lay_together(jobs, workspace, [there[one] for one in ids])
        visitor.together = ids
        if ids[: len(last)] != last:  # their tokens are elsewhere now, or gone
            for conversation in workspace.conversations:
                conversation.drop_sources()
            workspace.begin_conversation()
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
