"""Reads documents that begin alike without reading their common beginning more than once.

A trunk session reads one document step by step and waits; every other session takes over the trunk's pot just
before the texts part. Results are those of separate readings, bit for bit, in a fraction of the time.
"""

from __future__ import annotations

import numpy as np

from ondevice.documents import Document
from ondevice.engine import Engine, Session


class SharedPrefix:
    """Sessions over documents that begin like `trunk`; ask for them in the order in which they part from it.

    Args:
        engine: makes the sessions.
        trunk: the document whose beginning is shared; its `pages` are walked once.
    """

    def __init__(self, engine: Engine, trunk: Document) -> None:
        self._engine = engine
        self._trunk = engine.session()
        for _ in self._trunk.open(trunk):
            pass
        self._reading = self._trunk.resume()

    def session(self, document: Document) -> Session:
        """An opened session that has read what `document` shares with the trunk, up to a whole step."""
        session = self._engine.session()
        for _ in session.open(document):
            pass
        shared = self._num_shared(session)
        longest_step = self._engine.config.pot.step_size
        while session.skimmer is None and self._trunk.num_read + longest_step <= shared:
            next(self._reading)
        if 0 < self._trunk.num_read <= shared and session.skimmer is None:  # a speculator reads past where they part
            session.continue_from(self._trunk)
        return session

    def _num_shared(self, session: Session) -> int:
        mine, trunk = (s.tokens.ids(0, s.tokens.num_tokens) for s in (session, self._trunk) if s.tokens is not None)
        length = min(len(mine), len(trunk))
        differs = np.flatnonzero(mine[:length] != trunk[:length])
        return int(differs[0]) if differs.size else length
