"""All workspaces of this server: few, because each may hold a pot, and none for ever.

Gradio's own session state is evicted without telling us, which would leave pots in memory; hence this one.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

from ondevice.ui.workspace import Workspace

MAX_WORKSPACES = 4
TTL_SECONDS = 3600.0


class Registry:
    """Workspaces by id; the least recently used ones give way.

    Args:
        max_workspaces: more than these only while all of them are at work.
        ttl_seconds: a workspace at rest for longer is dropped.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        max_workspaces: int = MAX_WORKSPACES,
        ttl_seconds: float = TTL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_workspaces, self._ttl_seconds, self._clock = max_workspaces, ttl_seconds, clock
        self._by_id: dict[str, Workspace] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, workspace_id: object) -> Workspace | None:
        """The workspace with this id, which counts as used now."""
        self.sweep()
        with self._lock:
            workspace = self._by_id.get(workspace_id) if isinstance(workspace_id, str) else None
            if workspace is not None:
                workspace.last_used = self._clock()
            return workspace

    def create(self) -> Workspace:
        """A new workspace under an id that nobody can guess; ids are never taken from the browser."""
        workspace = Workspace(secrets.token_hex(16), last_used=self._clock())
        with self._lock:
            self._by_id[workspace.id] = workspace
        self.sweep()
        return workspace

    def sweep(self) -> None:
        """Drop what is too old, then the least recently used beyond the limit. Work in progress stays."""
        with self._lock:
            now = self._clock()
            resting = sorted((w for w in self._by_id.values() if w.idle.is_set()), key=lambda w: w.last_used)
            num_beyond = len(self._by_id) - self._max_workspaces
            dropped = [
                workspace
                for i, workspace in enumerate(resting)
                if i < num_beyond or now - workspace.last_used > self._ttl_seconds
            ]
            for workspace in dropped:
                del self._by_id[workspace.id]
        for workspace in dropped:
            workspace.forget()

    def close(self) -> None:
        """Stop everything and drop it."""
        with self._lock:
            workspaces = list(self._by_id.values())
            self._by_id.clear()
        for workspace in workspaces:
            workspace.halt()
            workspace.forget()
