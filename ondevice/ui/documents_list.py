"""The list of open documents, as the document card shows it: one line each, and the memory of all their pots."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ondevice import words
from ondevice.serving.visitor import Visitor
from ondevice.serving.workspace import Phase, Workspace

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


def documents_list(visitor: Visitor, free_bytes: int) -> dict[str, Any]:
    """Values of the list and of the line on memory below it; both are there once there are two documents.

    Args:
        free_bytes: memory that further pots could take.

    `shown` is for the page itself, which says with every click what it shows.
    """
    documents = visitor.documents
    is_shown = len(documents) > 1
    current = visitor.current.id if visitor.current in documents else None
    choices = [(f"{workspace.name}\n{_state(workspace)}", workspace.id) for workspace in documents]
    pots = [workspace.pot_bytes for workspace in documents]
    text = ""
    if is_shown:
        used, free = words.size(sum(pots)), words.size(free_bytes)
        text = f"{words.plural(sum(map(bool, pots)), 'pot')} in memory: {used}; {free} more are free."
    return {
        "documents": gr.update(choices=choices, value=current, visible=is_shown),
        "memory": {"text": text},
        "shown": visitor.current.id,
    }


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
