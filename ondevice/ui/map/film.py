"""Facts of a film of a document, beside the cells of its map: every selection in numbers, and the last answer.

The film itself is drawn and recorded in the browser, by assets/film.js; nothing of it comes here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ondevice import words
from ondevice.serving.exchanges import Exchange, one_line
from ondevice.serving.token_view import TokenView
from ondevice.serving.workspace import Workspace

MOST_PASSAGES = 4  # that are lit
Moment = tuple[int | None, int, int | None, int]


def film(workspace: Workspace, view: TokenView) -> dict[str, Any]:
    """The facts of a film; sizes and times are in words. `seconds` are 0 where the time of reading is not known."""
    session, seconds = workspace.session, workspace.telemetry.ingest_seconds
    most = 0 if session is None else session.plan.limit_bytes
    outside = 0 if session is None else session.context.host_bytes
    return {
        "name": one_line(workspace.name),
        "model": "" if session is None else session.context.loaded.name,
        "moments": moments(view),
        "pot_bytes": workspace.pot_bytes,
        "limit_bytes": most,
        "memory": words.size(workspace.pot_bytes),
        "limit": words.size(most) if most else "",
        "outside": words.size(outside) if outside else "",
        "seconds": seconds,
        "took": words.duration(seconds) if seconds else "",
        "answer": _answer(workspace, workspace.exchanges[-1]) if workspace.exchanges else None,
    }


def moments(view: TokenView) -> list[Moment]:
    """Every selection: its number, the tokens read, those held before and after it; last the present, without a number.

    Between two of them all that is read stays, so that the number held just before one follows; it is None where a
    selection in between is not known, or tokens were skipped. Empty before anything was read.
    """
    seen, history = view.seen, view.history
    if seen is None or not seen.num_positions:
        return []
    ended, reads, _ = history.state()
    gone = np.cumsum(np.bincount(ended[0], minlength=len(reads) + 1)[1:]).tolist()
    made: list[Moment] = []
    # What came before the first selection here is known if it is the first of all, or there was none.
    last = (0, 0) if history.first_cycle == 1 or not seen.num_cycles else None
    for at, (read, lost) in enumerate(zip(reads, gone, strict=True)):
        made.append((history.first_cycle + at, read, _before(view, last, read), read - lost))
        last = read, read - lost
    if history.num_cycles and history.last_cycle != seen.num_cycles:
        last = None
    if last is None or last[1] != view.num_held or last[0] != seen.num_positions or not made:
        made.append((None, seen.num_positions, _before(view, last, seen.num_positions), view.num_held))
    return made


def _before(view: TokenView, last: tuple[int, int] | None, read: int) -> int | None:
    assert view.seen is not None
    if last is None or view.seen.is_skipped(last[0], read).any():
        return None
    return last[1] + read - last[0]


def _answer(workspace: Workspace, exchange: Exchange) -> dict[str, Any]:
    """The answer with what marks it: the same that the chat says above and under it."""
    marks = ["First answer: not all was read yet"] if exchange.num_unread and not exchange.is_found else []
    marks += ["Not found in the document"] if exchange.record.get("stop_reason") == "not_found" else []
    marks += [f"{name}: {text}" for name, text, _ in exchange.marks]
    return {
        "question": one_line(exchange.question),
        "text": exchange.text or words.NO_WORDS,
        "marks": marks,
        "about": exchange.summary,
        "sources": [
            {"start": one.start_token, "stop": one.stop_token, "where": workspace.heading(one.page)}
            for one in exchange.sources[:MOST_PASSAGES]
        ],
    }
