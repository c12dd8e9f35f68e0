"""The documents of the programming interface, which is a visitor of its own, beside the screen.

What ends with its response is done here to its end, reading and asking stream their events. As those of the screen they
are kept on disk once they are read, and are there again after a restart or a long rest.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from ondevice.api.failures import ApiError
from ondevice.errors import OndeviceError, PotError
from ondevice.serving.job_events import Failed, Opened
from ondevice.serving.jobs import Job, Jobs
from ondevice.serving.together import Member, lay_together
from ondevice.serving.visitor import Visitor
from ondevice.serving.workspace import Workspace

_T = TypeVar("_T")


class Documents:
    """Documents that programs have opened; `jobs` is what can be done with one."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._visitor_id = ""

    def all(self) -> list[Workspace]:
        """All that is open here."""
        visitor = self._visitor()
        return [*visitor.documents, *visitor.collections] if visitor is not None else []

    def find(self, workspace_id: str) -> Workspace | None:
        """An open document."""
        return next((workspace for workspace in self.all() if workspace.id == workspace_id), None)

    def required(self, workspace_id: str) -> Workspace:
        """The same; raises ApiError where there is none."""
        workspace = self.find(workspace_id)
        if workspace is None:
            raise ApiError(404, "not-found", "There is no such document", "It may have been closed, or idle too long.")
        return workspace

    def new(self, name: str) -> Workspace:
        """A claimed workspace for the document of that name; raises as `Visitor.new`.

        The visitor is made by its first document, and again by the first one after a long rest.
        """
        visitor = self._visitor() or self._create()
        workspace = visitor.new(name)
        workspace.claim()
        return workspace

    def collect(self, documents: Sequence[str], entries: Sequence[str]) -> Workspace:
        """Several documents as one: open ones by their ids, and those of these entries of the library.

        Raises:
            ApiError: one of the open ones is not there, or is busy.
            OndeviceError: there is none, or one cannot be opened.
        """
        members = list[Member]()
        for workspace in map(self.required, dict.fromkeys(documents)):
            if workspace.is_away:  # it was open before a restart
                claim(workspace)
                end_of(self._jobs.restore_workspace(workspace), Opened)
            members.append(workspace)
        members += map(self._jobs.library.find, dict.fromkeys(entries))
        visitor = self._visitor() or self._create()
        workspace = visitor.new_collection()
        try:
            lay_together(self._jobs, workspace, members)
        except OndeviceError:
            visitor.close(workspace)
            raise
        return workspace

    def close(self, workspace: Workspace) -> None:
        """Drop a document with its pot, and the collections that hold its text."""
        visitor = self._visitor()
        if visitor is not None:
            self._jobs.close(visitor, workspace)
        self._close_collections(workspace.id)

    def delete(self, entry_id: str) -> None:
        """Delete an entry of the library, and drop the collections that hold its text; raises as `Library.delete`."""
        self._jobs.library.delete(entry_id)
        self._close_collections(entry_id)

    def _close_collections(self, member_id: str) -> None:
        if (visitor := self._visitor()) is not None:
            for collection in [one for one in visitor.collections if member_id in one.member_ids]:
                self.close(collection)  # which may itself be in one

    def open(self, workspace: Workspace, job: Job) -> None:
        """Go through a job that opens a document in a claimed workspace, which is closed if that fails or is stopped.

        Raises:
            DocumentError, PotError, PotMismatch, LibraryError: as the job.
            ApiError: it was stopped.
        """
        try:
            end_of(job, object)
        finally:
            is_gone = workspace.document is None or workspace.stop.is_set()
            if is_gone:  # no client knows its id
                self.close(workspace)
        if is_gone:
            raise ApiError(499, "stopped", "Opening was stopped")

    def scan(self, workspace: Workspace, question: str) -> Job:
        """Scan a claimed document; its last event tells the program all that was found, and nothing is held of it."""
        try:
            yield from self._jobs.scan(workspace, question)
        finally:
            workspace.scan = None

    def _visitor(self) -> Visitor | None:
        """The visitor, with what is kept of its documents; None: it has none."""
        visitor = self._jobs.registry.find(self._visitor_id)
        if visitor is not None:
            return visitor
        own_id = self._own_id()
        return self._create() if own_id and self._jobs.keeping.of(own_id) else None

    def _create(self) -> Visitor:
        own_id, keeping = self._own_id(), self._jobs.keeping
        visitor = self._jobs.registry.create(own_id, is_kept=bool(own_id))
        visitor.expect(keeping.away(visitor.id))
        self._visitor_id = visitor.id
        return visitor

    def _own_id(self) -> str:
        """The same after a restart, and known to nobody who cannot read what is kept; "" where nothing is."""
        secret = self._jobs.keeping.secret()
        return hashlib.sha256(f"ondevice programs {secret}".encode()).hexdigest()[:32] if secret else ""


def claim(workspace: Workspace) -> None:
    """Claim a document; raises ApiError where something runs on it."""
    if not workspace.claim():
        raise ApiError(409, "busy", "The document is busy", "Wait for what is running, or stop it.")


def end_of(
    job: Job, kind: type[_T], what: str = "It was stopped while it stood in line", fix: str = "Try again."
) -> _T:
    """Go through a job; its last event, of that kind. Raises its failure, or PotError where it ends otherwise."""
    end = next(iter(deque(job, maxlen=1)), None)
    if isinstance(end, Failed):
        raise end.error if isinstance(end.error, OndeviceError) else ApiError(500, "internal", end.text)
    if not isinstance(end, kind):
        raise PotError(what, fix=fix)
    return end
