"""Reads documents that begin alike without reading their common beginning more than once.

A trunk session reads one document step by step and waits; every other session takes over the trunk's pot just
before the texts part. Results are those of separate readings, bit for bit, in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Generator
from copy import deepcopy

import numpy as np

from ondevice.documents import Document
from ondevice.events import Event
from ondevice.pot.depths import Depths
from ondevice.pot.restoring import restore_
from ondevice.session.engine import Engine, Session


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

    def session(self, document: Document) -> Generator[Event, None, Session]:
        """An opened session that has read what `document` shares with the trunk, up to a whole step; events of the
        trunk while it reads for that."""
        session = self._engine.session()
        for _ in session.open(document):
            pass
        if session.context.speculator is not None:  # it reads past where they part
            return session
        trunk, shared = self._trunk.context, self._num_shared(session)
        longest_step = self._engine.config.pot.pass_size(self._engine.decoder.device.type)
        # The trunk itself comes last: what it has not read yet, nobody else needs.
        while trunk.num_read + longest_step <= shared < trunk.tokens.num_tokens:
            yield next(self._reading)
        if 0 < trunk.num_read <= shared:
            continue_from(session, self._trunk)
        return session

    def _num_shared(self, session: Session) -> int:
        documents = (session.context.tokens, self._trunk.context.tokens)
        mine, trunk = (tokens.ids(0, tokens.num_tokens) for tokens in documents)
        length = min(len(mine), len(trunk))
        differs = np.flatnonzero(mine[:length] != trunk[:length])
        return int(differs[0]) if differs.size else length


def continue_from(session: Session, other: Session) -> None:
    """Take over what another session has read, where both documents begin alike: nothing is read twice.

    `session` has opened its document and read nothing; the first `num_read` tokens of the two documents are equal,
    and so are their settings. From then on both give the same results as if each had read its document from the
    beginning.
    """
    mine, theirs = session.context, other.context
    start = theirs.num_read
    assert mine.num_read == 0, "this session has read something itself"
    assert mine.config == theirs.config, "the sessions differ in their settings"
    assert mine.speculator is None, "a speculator has read further than the model"
    assert np.array_equal(mine.tokens.ids(0, start), theirs.tokens.ids(0, start)), "the documents do not begin alike"
    mine.num_read, mine.num_cycles = start, theirs.num_cycles
    mine.spans = [(start, mine.spans[0][1])]  # first: what is restored must lie before the cursor
    mine.depths = Depths(theirs.depths.num_layers, theirs.depths.state)
    restore_(mine.pot, theirs.pot.state(), mine.extent)
    if mine.host is not None and theirs.host is not None:
        theirs.host.settle()
        mine.host.restore(theirs.host.state(), mine.extent)
    novelty, decoder = other.reader.novelty.state(), mine.decoder
    session.reader.novelty.restore(
        novelty,
        lambda first, stop: decoder.ids(mine.tokens.ids(first, stop)),
        start,
        decoder.parts.hidden_size,
        decoder.dtype,
    )
    session.reader.words = deepcopy(other.reader.words)
