"""Several documents as one more of a visitor's: asked the same way, from passages that a search finds in all of them.

Open ones need not be read for that, and saved ones are not opened. Of it, conversations alone are kept on disk.
"""

from __future__ import annotations

from collections.abc import Sequence

from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import OndeviceError, PotError
from ondevice.library.library import Entry
from ondevice.serving.jobs import Jobs
from ondevice.serving.record import restore_conversations
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
    session = collect(jobs.engine, [_text(jobs, member) for member in members])
    workspace.accept(session.context.tokens)
    workspace.session, workspace.member_ids = session, tuple(member.id for member in members)


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
        PotError: there is none, or they are being asked, or opened after a restart.
        OndeviceError: one of them cannot be opened.
    """
    if any(one.is_away for one in visitor.collections):
        raise PotError("They are being opened", fix="Wait until they are there.")
    if chosen is None and (busy := [one for one in visitor.collections if not one.idle.is_set()]):
        return busy[0]  # what was opened since joins them once it is answered
    there = {one.id: one for one in members(jobs, visitor)}
    opened = [one.id for one in there.values() if isinstance(one, Workspace)]
    before = [one for one in visitor.together if one in there]
    if chosen is None:
        chosen = [*before, *(one for one in opened if one not in visitor.seen_together)]
    ids = [*(one for one in before if one in chosen), *(one for one in chosen if one in there and one not in before)]
    visitor.seen_together.update(opened)
    if not ids:
        raise PotError("No document is chosen", fix="Tick one or more.")
    workspace = next(iter(visitor.collections), None) or visitor.new_collection(visitor.owner)
    if ids == visitor.together and workspace.tokens is not None:
        return workspace
    if not workspace.claim():
        raise PotError("They are being asked", fix="Wait for the answer, or stop it.")
    try:
        _lay(jobs, workspace, [there[one] for one in ids], visitor.together)
    finally:
        workspace.release()
    if workspace.listed:
        jobs.keeping.note(workspace)
    return workspace


def _lay(jobs: Jobs, workspace: Workspace, chosen: Sequence[Member], before: list[str]) -> None:
    """Lay these together in a workspace that was claimed; unless `before` only grew, sources of answers go."""
    lay_together(jobs, workspace, chosen)
    if [one.id for one in chosen][: len(before)] != before:  # their tokens are elsewhere now, or gone
        for conversation in workspace.conversations:
            conversation.drop_sources()
        workspace.begin_conversation()


def regather(jobs: Jobs, visitor: Visitor) -> None:
    """Leave out what was closed; the workspace goes where nothing of it is there any more."""
    for workspace in visitor.collections:
        if not workspace.idle.is_set() or workspace.is_away:  # an answer is on its way, or it is not there yet
            continue
        try:
            gather(jobs, visitor)
        except OndeviceError:
            # Kept conversations go with the last of the documents alone: what cannot be had now may be there again.
            known = {one.id for one in visitor.documents} | {one.id for one in jobs.library.entries()}
            if known.isdisjoint(visitor.together):
                jobs.close(visitor, workspace)
            else:
                visitor.close(workspace)


def take_up(jobs: Jobs, visitor: Visitor, workspace: Workspace) -> None:
    """Lay a kept collection together again, once its documents are open; it is closed where none of them is there.

    What is kept of it stays then: the documents may be there another time.
    """
    if any(one.is_away for one in visitor.documents) or not workspace.claim():  # another page is at it
        return
    try:
        kept = jobs.keeping.find(workspace, jobs.engine.loaded)
        restore_conversations(workspace, kept.record)
        there = {one.id: one for one in members(jobs, visitor)}
        visitor.seen_together = {one.id for one in visitor.documents}
        _lay(jobs, workspace, [there[one] for one in kept.members if one in there], list(kept.members))
        workspace.is_away = False
        workspace.retell()
    except OndeviceError:
        pass
    finally:
        workspace.release()
    if workspace.is_away:
        visitor.close(workspace)
