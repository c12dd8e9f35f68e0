"""One browser's state on the server: its open documents, and which of them it shows.

It lives under a random id; the browser knows nothing but that id.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ondevice.errors import DocumentError
from ondevice.serving.workspace import Workspace

MAX_DOCUMENTS = 8


@dataclass(slots=True)
class Visitor:
    """The open documents of one browser.

    Attributes:
        id: random; who knows it may use all of this.
        owner: of its workspaces, as what is kept of them on disk names it; "": nothing is.
        workspaces: one for each open document, in the order of opening; at least one, which may be empty.
        current: the one that is shown.
        seen_together: ids of the documents that were there to be chosen as those that are asked together.
        must_read: documents were opened since one action began to read all that are.
        reading_all: held by that action, so that not each of many takes a thread to wait in.
        last_used: for the registry, seconds.
    """

    id: str
    owner: str = ""
    workspaces: list[Workspace] = field(default_factory=list)
    current: Workspace = field(init=False)
    seen_together: set[str] = field(default_factory=set)
    must_read: bool = False
    reading_all: threading.Lock = field(default_factory=threading.Lock)
    last_used: float = 0.0
    _changing: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.current = self._add()

    @property
    def is_idle(self) -> bool:
        """True if nothing runs, and nothing is in line."""
        return all(workspace.idle.is_set() for workspace in self.workspaces)

    @property
    def is_at_rest(self) -> bool:
        """True if it is idle, and nothing would be lost with it: what a scan has found is kept nowhere else."""
        return self.is_idle and all(one.scan is None or one.scan.is_saved for one in self.workspaces)

    @property
    def documents(self) -> list[Workspace]:
        """The workspaces that hold a document, or are about to."""
        return [workspace for workspace in self.workspaces if not (workspace.is_unused or workspace.is_collection)]

    @property
    def collections(self) -> list[Workspace]:
        """The workspaces of several documents together."""
        return [workspace for workspace in self.workspaces if workspace.is_collection]

    @property
    def together(self) -> list[str]:
        """Ids of the documents that are asked together, in the order of their texts."""
        return list(self.collections[0].member_ids) if self.collections else []

    def new_collection(self, owner: str = "") -> Workspace:
        """A workspace for several documents, with what is kept of it; raises DocumentError where there are too many."""
        with self._changing:
            if len(self.collections) >= MAX_DOCUMENTS:
                raise DocumentError(f"{MAX_DOCUMENTS} collections are open already", fix="Close one of them.")
            self.workspaces.append(Workspace(secrets.token_hex(16), owner, is_collection=True))
            return self.workspaces[-1]

    def find(self, workspace_id: object) -> Workspace | None:
        return next((workspace for workspace in self.workspaces if workspace.id == workspace_id), None)

    def new(self, name: str) -> Workspace:
        """A workspace for the document of that name: the empty one, or one more. No other upload is given the same.

        Raises:
            DocumentError: there are too many beside those that wait on disk.
        """
        with self._changing:
            if sum(not workspace.is_away for workspace in self.documents) >= MAX_DOCUMENTS:
                raise DocumentError(f"{MAX_DOCUMENTS} documents are open already", where=name, fix="Close one of them.")
            unused = next((workspace for workspace in self.workspaces if workspace.is_unused), None)
            workspace = unused or self._add()
            workspace.opening_name = name
            return workspace

    def expect(self, away: Iterable[Workspace]) -> None:
        """Take those that wait on disk to be taken up, but for what it has already."""
        with self._changing:
            self.workspaces += [one for one in away if self.find(one.id) is None]
            if self.current.is_unused and self.documents:
                self.workspaces.remove(self.current)
                self.current = self.documents[-1]

    def look_at(self, workspace: Workspace) -> None:
        """Look at a document, unless it has been closed meanwhile."""
        with self._changing:
            if workspace in self.workspaces:
                self.current = workspace

    def close(self, workspace: Workspace) -> None:
        """Drop a document with its pot; the one beside it is shown then."""
        workspace.end()
        with self._changing:
            if workspace in self.workspaces:  # else it is closed twice at once
                place = self.workspaces.index(workspace)
                self.workspaces.remove(workspace)
                if not self.workspaces or all(one.is_collection for one in self.workspaces):
                    self._add()
                if self.current is workspace:
                    self.current = self.workspaces[min(place, len(self.workspaces) - 1)]
        workspace.halt()
        workspace.forget()

    def close_unopened(self, workspace: Workspace, before: Workspace) -> str | None:
        """Close what nothing was opened in, and look at `before` again; returns why, or None where something was."""
        if workspace.document is not None or workspace.locked is not None:
            return None
        problem, asked = workspace.problem, workspace.asked.take()
        self.close(workspace)
        self.look_at(before)
        if asked is not None and self.current.is_unused:
            self.current.asked.put(replace(asked, conversation=None))  # it waits for the next document
        return problem

    def halt(self) -> None:
        """Stop everything, and wait until it has ended."""
        for workspace in self.workspaces:
            workspace.request_stop()
        for workspace in self.workspaces:
            workspace.halt()

    def forget(self) -> None:
        """Drop all documents."""
        for workspace in self.workspaces:
            workspace.forget()

    def _add(self) -> Workspace:
        workspace = Workspace(secrets.token_hex(16), self.owner)
        self.workspaces.append(workspace)
        return workspace


def owner_of(visitor_id: str) -> str:
    """The name of a visitor in files: nobody can tell the id from it."""
    return hashlib.sha256(f"ondevice visitor {visitor_id}".encode()).hexdigest()
