"""A recording of a reading: the map and a few numbers at moments spread over it, for the empty page to play.

Everything in it was measured while the document was read. The player is assets/recording.js.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from ondevice.events import Event
from ondevice.serving.token_map import Look, State
from ondevice.serving.token_view import TokenView
from ondevice.session.session import Session
from ondevice.telemetry.telemetry import Telemetry

MAX_FRAMES = 200
_MOST_CELLS = 960  # of one frame


@dataclass(frozen=True, slots=True)
class Frame:
    """One moment.

    Attributes:
        read: document tokens up to the cursor.
        kept: those of them that some head holds.
        seconds: that reading had taken.
        pot_bytes: memory of the pot, and of the tiers outside it where there are any.
        process_bytes: resident memory of the program.
        cells: the map's cells up to the cursor, two bytes each as in `Cells.to_bytes`, in base64.
    """

    read: int
    kept: int
    seconds: float
    pot_bytes: int
    process_bytes: int
    cells: str


class Recorder:
    """Takes a frame now and then while a session reads; the first and the last moment are among them.

    Args:
        session: that reads.

    Attributes:
        frames: so far.
    """

    def __init__(self, session: Session) -> None:
        self.frames: list[Frame] = []
        self._session, self._telemetry = session, Telemetry()
        self._view = TokenView(session.context.tokens)

    def apply(self, event: Event) -> None:
        """Take in an event of the reading, before the next one is asked for."""
        revision = self._view.revision
        self._telemetry.apply(event)
        self._view.apply(event, self._session)
        seen, last = self._view.seen, self.frames[-1].read if self.frames else -1
        if seen is None or self._view.revision == revision or seen.num_positions == last:
            return
        is_due = seen.num_positions - max(last, 0) >= self._num_tokens / MAX_FRAMES
        if is_due or last < 0 or seen.num_positions == self._num_tokens:
            self.frames.append(self._frame(seen.num_positions))

    def to_dict(self, title: str) -> dict[str, Any]:
        """All of it as JSON has it, after the last event."""
        context = self._session.context
        return {
            "title": title,
            "model": context.loaded.name,
            "slots": context.ledger.slots_capacity,
            "tokens": self._num_tokens,
            "cell_tokens": self._cell_tokens,
            "seconds": round(self._telemetry.ingest_seconds, 1),
            "selections": context.num_cycles,
            "frames": [asdict(frame) for frame in self.frames],
        }

    @property
    def _num_tokens(self) -> int:
        return self._view.tokens.num_tokens

    @property
    def _cell_tokens(self) -> int:
        return -(-self._num_tokens // _MOST_CELLS)

    def _frame(self, num_read: int) -> Frame:
        context, size = self._session.context, self._cell_tokens
        cells = self._view.cells(0, self._num_tokens, size, Look())
        reached = -(-num_read // size)
        return Frame(
            read=num_read,
            kept=int(cells.counts[:, State.KEPT :].sum()),
            seconds=round(self._telemetry.ingest_seconds, 2),
            pot_bytes=context.pot.nbytes + context.host_bytes + context.speculator_bytes,
            process_bytes=psutil.Process().memory_info().rss,
            cells=b64encode(cells.to_bytes()[: 2 * reached]).decode(),
        )
