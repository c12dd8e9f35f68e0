"""The list of open documents, as the document card shows it: one line each, and the memory of all their pots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import gradio as gr

from ondevice import words
from ondevice.serving.together import Member
from ondevice.serving.visitor import Visitor
from ondevice.serving.workspace import Phase, Workspace

TOGETHER = "together"  # stands for the workspace of several documents
_LONG = 60  # characters of a name that is shown whole
_STATES = {
    Phase.OPENING: "being opened",
    Phase.REOPENING: "being opened",
    Phase.SAVING: "being saved",
    Phase.READY: "not read yet",
    Phase.READING: "being read",
    Phase.STOPPED: "read in part",
    Phase.READ: "read",
    Phase.ANSWERING: "answering",
    Phase.SCANNING: "being scanned",
}


def documents_list(visitor: Visitor, members: Sequence[Member], free_bytes: int) -> dict[str, Any]:
    """Values of the list, of the ticks and of the line on memory below it; they are there once there are two documents.

    Args:
        members: documents that can be asked together, where they are.
        free_bytes: memory that further pots could take.

    `shown` is for the page itself, which says with every click what it shows.
    """
    documents = visitor.documents
    is_together, num_open = visitor.current.is_collection, sum(one.tokens is not None for one in documents)
    is_shown = len(documents) > 1 or is_together
    current = TOGETHER if is_together else visitor.current.id if visitor.current in documents else None
    names = _told_apart([workspace.name for workspace in documents])
    choices = [(f"{name}\n{_state(one)}", one.id) for name, one in zip(names, documents, strict=True)]
    if num_open > 1 or is_together:
        number = len(visitor.together) if visitor.together else num_open
        choices.append((f"{words.plural(number, 'document')} together\nasked from passages of all", TOGETHER))
    titles = [one.name if isinstance(one, Workspace) else f"{one.title} (library)" for one in members]
    ticks = list(zip(_told_apart(titles), (one.id for one in members), strict=True))
    pots = [workspace.pot_bytes for workspace in documents]
    text = ""
    if is_shown:
        used = f"{words.plural(sum(map(bool, pots)), 'pot')} in memory: {words.size(sum(pots))}; " if any(pots) else ""
        text = f"{used}{words.size(free_bytes)} {'more are ' if used else 'are '}free."
    return {
        "documents": gr.update(choices=choices, value=current, visible=is_shown),
        "members": gr.update(choices=ticks, value=visitor.together, visible=is_together),
        "memory": {"text": text},
        "shown": visitor.current.id,
    }


def _told_apart(names: list[str]) -> list[str]:
    """The names, without the middle of long ones; the second of the same name is numbered, and so on."""
    short = [name if len(name) <= _LONG else f"{name[: _LONG - 15]}…{name[-14:]}" for name in names]
    before = Counter[str]()
    for i, name in enumerate(short):
        before[name] += 1
        if before[name] > 1:
            short[i] = f"{name} ({before[name]})"
    return short


def _state(workspace: Workspace) -> str:
    if workspace.locked is not None:
        return "locked"
    if workspace.is_waiting:
        return "in line"
    if workspace.is_away and workspace.activity is None:
        return "kept on disk"
    if workspace.document is None and workspace.activity is None:
        return "waiting to be opened"
    size = f", pot {words.size(workspace.pot_bytes)}" if workspace.pot_bytes else ""
    return _STATES[workspace.phase] + size
