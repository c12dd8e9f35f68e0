"""All visitors of this server: few, because each may hold pots, and none for ever.

Gradio's own session state is evicted without notice, which would leave pots in memory; hence this one.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

from ondevice.serving.visitor import Visitor, owner_of
from ondevice.serving.workspace import Workspace

MAX_VISITORS = 4  # more than these only while all of them are at work, or have a scan to save
TTL_SECONDS = 3600.0  # a visitor at rest for longer is dropped


class Registry:
    """Visitors by id; the least recently used ones give way.

    Args:
        clock: gives seconds, monotonic.
        rest_seconds: after which one at rest is dropped; None: TTL_SECONDS.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, rest_seconds: float | None = None) -> None:
        self._clock, self._rest_seconds = clock, rest_seconds
        self._by_id: dict[str, Visitor] = {}
        self._lock = threading.Lock()

    def others(self, beside: Workspace | None) -> list[Workspace]:
        """All open documents of all visitors, `beside` this one."""
        with self._lock:
            workspaces = [workspace for visitor in self._by_id.values() for workspace in visitor.workspaces]
        return [workspace for workspace in workspaces if workspace is not beside]

    def find(self, visitor_id: object) -> Visitor | None:
        """The visitor with this id, which counts as used now."""
        self.sweep(visitor_id)
        with self._lock:
            visitor = self._by_id.get(visitor_id) if isinstance(visitor_id, str) else None
            if visitor is not None:
                visitor.last_used = self._clock()
            return visitor

    def workspace(self, workspace_id: object) -> Workspace | None:
        """The open document with this id, of any visitor; its visitor counts as here now."""
        with self._lock:
            found = next((one.id for one in self._by_id.values() if one.find(workspace_id) is not None), None)
        visitor = self.find(found)
        return visitor.find(workspace_id) if visitor is not None else None

    def create(self, visitor_id: str = "", *, is_kept: bool = False) -> Visitor:
        """A visitor under an id that nobody can guess.

        Args:
            visitor_id: of one that was here before, which what is kept of it proves; "": a new one. No other id is
                taken from a browser.
            is_kept: its documents may be kept on disk.
        """
        visitor_id = visitor_id or secrets.token_hex(16)
        with self._lock:
            visitor = self._by_id.get(visitor_id)
            if visitor is None:  # else another page has just come back with it
                visitor = Visitor(visitor_id, owner_of(visitor_id) if is_kept else "", last_used=self._clock())
                self._by_id[visitor_id] = visitor
        self.sweep(visitor_id)
        return visitor

    def sweep(self, coming: object = None) -> None:
        """Drop who is too old, and who is beyond the limit: first those without a document, then the least recently
        used. Work in progress stays, and a scan that was not saved, and who is `coming` now, by its id, unless it is
        too old."""
        with self._lock:
            now, most = self._clock(), TTL_SECONDS if self._rest_seconds is None else self._rest_seconds
            for visitor in self._by_id.values():
                if not visitor.is_at_rest:
                    visitor.last_used = now  # its time begins when its work has ended
            resting = [visitor for visitor in self._by_id.values() if visitor.is_at_rest]
            dropped = [visitor for visitor in resting if now - visitor.last_used > most]
            others = [visitor for visitor in resting if visitor not in dropped and visitor.id != coming]
            others.sort(key=lambda visitor: (bool(visitor.documents), visitor.last_used))
            dropped += others[: max(len(self._by_id) - len(dropped) - MAX_VISITORS, 0)]
            for visitor in dropped:
                del self._by_id[visitor.id]
        for visitor in dropped:
            visitor.forget()

    def close(self) -> None:
        """Stop everything and drop it."""
        with self._lock:
            visitors = list(self._by_id.values())
            self._by_id.clear()
        for visitor in visitors:
            visitor.halt()
            visitor.forget()
