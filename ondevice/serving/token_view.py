"""Tokens of one document for the screen: the pot as it is, and as it was after every distillation.

The thread that drives the engine writes it between two events; requests of the browser read it at any time, from other
threads. What is written replaces what was there as a whole, so a reader may be one event late and never sees half.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ondevice import words
from ondevice.config import PotConfig
from ondevice.documents.tokens import DocumentTokens
from ondevice.events import Event, PotDistilled, TokensRead
from ondevice.serving.token_map import Cells, Look, make_cells
from ondevice.session.session import Session
from ondevice.telemetry.provenance import Provenance, take_provenance
from ondevice.telemetry.retention_history import RetentionHistory, history_record

_documents = count(1)  # of all views, so that no two documents of this server share a number
_revisions = count(1)  # of all views, so that no two states of the screen share a number
_MAX_STRETCHES = 64  # that are lit at once


class TokenView:
    """The tokens of one document under one reading.

    Attributes:
        tokens: of the document.
        document: its number; a view of another reading of it keeps that.
        history: the distillations of this reading; empty for a pot from disk.
        seen: the pot as of the last event; None before anything was read.
        num_held: document tokens that some head holds there.
        number: of this view; a new reading gets a new one.
        method: by which the pot is thinned out; the usual one before anything was read.
        revision: changes whenever cells may have changed.
        lit: stretches [start, stop) of the document that came back for the answer that is being written.
    """

    def __init__(self, tokens: DocumentTokens, document: int | None = None) -> None:
        self.tokens = tokens
        self.document = next(_documents) if document is None else document
        self.history = RetentionHistory()
        self.seen: Provenance | None = None
        self.num_held = 0
        self.method = PotConfig().method
        self.lit: tuple[tuple[int, int], ...] = ()
        self._at_rest: Provenance | None = None  # before the answer that is being written
        self._replay: tuple[int, dict[str, Any]] = 0, {}
        self.number = next(_revisions)
        self.revision = next(_revisions)

    def replay(self) -> dict[str, Any]:
        """The history as `history_record`, made again only if a distillation has come in between."""
        if self._replay[0] != self.history.last_cycle:
            self._replay = self.history.last_cycle, history_record(self.history)
        return self._replay[1]

    def recall(self, stretches: npt.NDArray[np.int32], session: Session) -> None:
        """Light these stretches (n, 2), which came back for an answer, and show the pot as it is now."""
        self.lit = merged([*self.lit, *map(tuple, stretches.tolist())])
        self._at_rest = self._at_rest or self.seen
        if self._at_rest is not None:
            self._show(self._at_rest.answering(session.context), session)

    def put_back(self) -> None:
        """The answer has ended, and the pot is as it was before."""
        self.lit = ()
        if self._at_rest is not None:
            self._see(self._at_rest)
            self._at_rest = None

    def apply(self, event: Event, session: Session) -> None:
        """Take in an event of a reading, while the engine waits for the next one to be asked for."""
        if isinstance(event, PotDistilled):
            self.history.apply(event)
            self._show(take_provenance(session.context), session)
        elif isinstance(event, TokensRead) and session.context.is_open:
            if session.context.last_distilled is not None and session.context.last_distilled.num_read == event.num_read:
                return  # the distillation that this step led to comes next
            seen = take_provenance(session.context) if self.seen is None else self.seen.moved_to(session.context)
            self._show(seen, session)

    def settle(self, session: Session) -> None:
        """Reading has ended, or a pot came from disk. A stopped reading may have missed its last distillation."""
        last = session.context.last_distilled
        if last is not None and last.cycle > self.history.last_cycle:
            self.history.apply(last)
        self._show(take_provenance(session.context), session)

    def cells(self, start: int, stop: int, size: int, look: Look) -> Cells:
        """Cells as `make_cells`; a moment that is not known becomes the present."""
        return make_cells(self.tokens.num_tokens, self.seen, self.history, start, stop, size, self.known(look))

    def known(self, look: Look) -> Look:
        """The same look, within what is known of this reading."""
        history, seen, cycle = self.history, self.seen, look.cycle
        if cycle is not None and history.num_cycles and history.first_cycle <= cycle <= history.last_cycle:
            return Look(cycle=cycle)
        if seen is None:
            return Look()
        layer = look.layer if look.layer is not None and 0 <= look.layer < seen.num_layers else None
        head = look.head if look.head is not None and 0 <= look.head < seen.num_heads else None
        return Look(layer=layer, head=head)

    def summary(self) -> dict[str, Any]:
        """Facts that the browser needs before it asks for cells; under 1 kB while no answer is written."""
        seen, history, tokens = self.seen, self.history, self.tokens
        return {
            "document": self.document,
            "reading": self.number,
            "revision": self.revision,
            "num_tokens": tokens.num_tokens,
            "num_pages": tokens.num_pages,
            "unit": tokens.document.unit,
            "num_read": 0 if seen is None else seen.num_positions,
            "num_layers": 0 if seen is None else seen.num_layers,
            "num_heads": 0 if seen is None else seen.num_heads,
            "first_cycle": history.first_cycle,
            "last_cycle": history.last_cycle,
            "num_held": self.num_held,
            "layers": {} if seen is None else seen.num_special(),
            "lit": self.lit,
            "replay": self._replay_note(),
        }

    def _replay_note(self) -> str:
        """Why there is nothing, or not everything, to replay; empty where there is."""
        seen, history = self.seen, self.history
        if seen is None or not seen.num_cycles:
            return "Nothing to replay yet: the pot has not been full."
        if not history.num_cycles:
            return "This pot was opened from the library: how it came about is not known here."
        if not history.is_complete:
            return f"The replay ends at selection {words.count(history.last_cycle)}: it would take too much memory."
        return ""

    def _show(self, seen: Provenance, session: Session) -> None:
        self.method = session.context.config.pot.method
        self._see(seen)

    def _see(self, seen: Provenance) -> None:
        self.seen, self.num_held = seen, len(seen.held(0, seen.num_positions)[0])
        self.revision = next(_revisions)


def merged(stretches: Sequence[tuple[int, int]], most: int = _MAX_STRETCHES) -> tuple[tuple[int, int], ...]:
    """The same tokens in rising stretches that do not touch; those nearest to each other as one where they are many."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(stretches):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        else:
            joined.append((start, stop))
    if len(joined) > most:
        gaps = np.array([after[0] - before[1] for before, after in pairwise(joined)])
        ends = np.sort(np.argsort(gaps)[len(gaps) - most + 1 :]).tolist()
        firsts, lasts = [0, *(end + 1 for end in ends)], [*ends, len(joined) - 1]
        joined = [(joined[first][0], joined[last][1]) for first, last in zip(firsts, lasts, strict=True)]
    return tuple(joined)
