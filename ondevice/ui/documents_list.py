"""The list of documents at the left: open ones with the memory of their pots, and saved ones, which can be opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import gradio as gr

from ondevice import words
from ondevice.library.library import Entry
from ondevice.serving.jobs import Jobs
from ondevice.serving.together import Member
from ondevice.serving.visitor import Visitor
from ondevice.serving.workspace import Phase, Workspace
from ondevice.ui.form import in_words

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
    may_gather = num_open > 1 or any(not one.is_away for one in visitor.collections)
    is_shown = len(documents) > 1 or may_gather
    current = TOGETHER if is_together else visitor.current.id if visitor.current in documents else None
    names = _told_apart([workspace.name for workspace in documents])
    choices = [(f"{name}\n{_state(one)}", one.id) for name, one in zip(names, documents, strict=True)]
    if may_gather:
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
        "shown": visitor.current.shown,
    }


def saved_list(visitor: Visitor, jobs: Jobs) -> dict[str, Any]:
    """Value of the list of saved documents that this visitor has not open, and what is said of all that is kept.

    It is unfolded where no document is open.
    """
    entries, opened = jobs.library.entries(), {one.entry_id for one in visitor.workspaces}
    listed = [_saved(entry, entry.misfit(jobs.engine.loaded)) for entry in entries if entry.id not in opened]
    number, about = sum(one.is_away or jobs.keeping.has(one) for one in visitor.documents), []
    if entries:
        about.append(f"Saved documents stay in {jobs.library.folder}; ⋯ renames or deletes one that is closed.")
    if number:
        kept, them = words.plural(number, "open document"), "it" if number == 1 else "them"
        kept = f"{kept} {'is' if number == 1 else 'are'} kept for the next start, with the conversations"
        about.append(f"{kept}, in {jobs.keeping.folder}; closing {them} deletes that.")
    head = f"Library ({words.count(len(listed))})" if listed else "Library"
    told = {"head": head, "about": " ".join(about), "is_kept": bool(number), "is_open": not visitor.documents}
    return told | {"entries": listed}


def _saved(entry: Entry, reason: str) -> dict[str, Any]:
    """A saved document as it is listed, and why it cannot be opened."""
    size, when, facts = words.size(entry.size_bytes), _date(entry.saved), list[list[str]]()
    if entry.document:
        facts = [
            ["File", entry.document],
            ["Text", f"{words.plural(entry.num_pages, entry.unit)}, {words.count(entry.num_tokens)} tokens"],
            ["Model", entry.model],
            ["Settings", in_words(entry.config) if entry.config is not None else "not known"],
            ["Memory", f"{words.size(entry.pot_bytes)} when open"],
            ["Saved", when],
        ]
    return {
        "id": entry.id,
        "title": entry.title,
        "line": f"saved, {size} on disk",
        "facts": [*facts, ["On disk", size]],
        "reason": f"{reason}. It can be deleted." if reason else "",
        "can_rename": not entry.problem,
    }


def _date(saved: str) -> str:
    """A date of the computer's own time zone, to the minute."""
    try:
        return f"{datetime.fromisoformat(saved).astimezone():%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):  # also of a year that has no time zones
        return "not known"


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
