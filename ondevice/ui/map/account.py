"""Account of a token, or of a cell of several: its place, its state with the reason, and the heads that hold it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ondevice import words
from ondevice.serving.token_map import Look, State
from ondevice.serving.token_view import TokenView
from ondevice.ui.map.reading_view import excerpt

STATE_WORDS = {
    State.UNREAD: "not read yet",
    State.SKIPPED: "skipped",
    State.EVICTED: "evicted",
    State.PRUNED: "pruned on the way",
    State.IN_HOST: "evicted, waits in host memory",
    State.NOVEL: "kept for being new",
    State.RECENT: "recent: not selected yet",
    State.SINK: "always kept: the document begins here",
}
_LEVEL_WORDS = ("none", "up to 1 %", "1 to 10 %", "10 to 50 %", "over 50 %")


def account(view: TokenView, start: int, stop: int, look: Look) -> dict[str, Any]:
    """For the tokens [start, stop): lines to read, the text with a little around it, and for one token its holders.

    `holders` is a row for each layer with a number for each head: 0 not held, 1 held, 2 held because it was new;
    empty for several tokens, for a moment in the past, and before anything was read.
    """
    look, tokens = view.known(look), view.tokens
    cells = view.cells(start, stop, stop - start, look)
    state, share, counts = State(int(cells.states[0])), float(cells.shares[0]), cells.counts[0]
    pages = sorted({tokens.page_of(start), tokens.page_of(stop - 1)})
    unit = tokens.document.unit
    where = f"{unit} {pages[0]}" if len(pages) == 1 else f"{unit}s {pages[0]}–{pages[1]}"  # noqa: RUF001
    one = stop - start == 1
    title = f"Token {words.count(start + 1)}" if one else f"Tokens {words.count(start + 1)}–{words.count(stop)}"  # noqa: RUF001
    return {
        "start": start,
        "stop": stop,
        "title": f"{title} · {where}",
        "state": int(state),
        "step": int(cells.steps[0]),
        "lines": _one(view, start, state, share, look) if one else _several(view, counts, share, look),
        "holders": view.seen.holders(start).tolist() if one and view.seen is not None and look.cycle is None else [],
        **excerpt(view, start, stop),
    }


def reason(view: TokenView, state: State) -> str:
    """Why a token is where it is, under the rule of this reading."""
    return view.method.kept if state is State.KEPT else STATE_WORDS[state]


def _one(view: TokenView, token: int, state: State, share: float, look: Look) -> list[str]:
    why, seen = reason(view, state), view.seen
    lines = [why[:1].upper() + why[1:]]
    if seen is None or not share:
        return lines
    if look.cycle is not None:
        level = int(view.history.levels(token, token + 1, look.cycle)[0])
        return [*lines, f"Then held by {_LEVEL_WORDS[level]} of all heads"]
    if look.layer is None and look.head is None:
        num_held = round(share * seen.num_pairs)
        of = f"{words.count(num_held)} of {words.count(seen.num_pairs)} heads"
        lines.append(f"Held by {of} ({words.share(num_held, seen.num_pairs)})")
    elif look.layer is not None and look.head is None:
        lines.append(f"Held by {round(share * seen.num_heads)} of {seen.num_heads} heads of this layer")
    score = seen.score(token)
    if score is not None:
        is_guided = view.method.observes == "catalyst"
        what = "most attention that the guiding prompt paid it in any head" if is_guided else "the highest of any head"
        lines.append(f"Score {score:.4g}: {what}")
    return lines


def _several(view: TokenView, counts: np.ndarray, share: float, look: Look) -> list[str]:
    kept_first = sorted(enumerate(counts), key=lambda one: one[0] < State.KEPT)
    lines = ["; ".join(f"{words.count(int(n))} {reason(view, State(i))}" for i, n in kept_first if n)]
    if counts[State.KEPT :].any():
        about = "about " if look.cycle is not None else ""
        lines.append(f"Held by {about}{words.share(share, 1.0)} of attention heads on average")
    return lines
