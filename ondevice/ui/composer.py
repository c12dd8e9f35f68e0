"""Texts around the question's field: its invitation, and the reason why a taken question waits."""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import pairwise

from ondevice.serving.question_queue import Asked
from ondevice.serving.workspace import Phase, Workspace

_ASK_EARLY = "Ask now; it is answered once reading has begun"
_ASK = dict.fromkeys(Phase, "Ask about the document")
_ASK |= dict.fromkeys((Phase.OPENING, Phase.REOPENING, Phase.READY), _ASK_EARLY)
_ASK |= {Phase.EMPTY: "Ask now, or drop a document first", Phase.ANSWERING: "Ask the next question"}
_ASK[Phase.SCANNING] = "Ask now; it is answered after the scan"
_QUESTIONS = (
    "What is this document about?",
    "Which dates does it name, and what happened then?",
    "Who is mentioned, and what do they do?",
)
_OF_ALL = ("What are these documents about?", "Which dates do they name, and what happened then?", _QUESTIONS[2])
_COMPARE, _SAME_NAME = "What changed?", 0.7  # of two documents whose names have so much in common
_SUGGESTED, _FEWEST_CHARS, _MOST_CHARS = 2, 200, 60  # sections; of a section's text, and of its title
_ONE_WAITS = "Your question waits; you can write the next one"


def invitation(workspace: Workspace) -> str:
    """The placeholder of the empty field."""
    if workspace.asked.waiting is not None:
        return _ONE_WAITS
    if workspace.is_collection and workspace.phase is Phase.READ:
        return "Ask about all of them"
    return _ASK_EARLY if is_unread(workspace) else _ASK[workspace.phase]


def examples(workspace: Workspace | None = None) -> list[dict[str, str]]:
    """Questions that an empty conversation offers, as Gradio takes them: for the document's longest sections, too."""
    tokens = workspace.tokens if workspace is not None else None
    headings = tokens.headings if tokens is not None else []
    named = ((one, after) for one, after in pairwise(headings) if 2 < len(one.title) <= _MOST_CHARS)
    sizes = {after.start - one.start: one.title for one, after in named}
    longest = [size for size in sorted(sizes, reverse=True)[:_SUGGESTED] if size > _FEWEST_CHARS]
    asked = [f"Summarise \u201c{title}\u201d" for size, title in sizes.items() if size in longest]
    names = [name for name, *_ in tokens.members()] if tokens is not None and tokens.places else []
    alike = SequenceMatcher(None, names[0], names[1]).ratio() if len(names) == 2 else 0.0
    compare = [_COMPARE] if alike >= _SAME_NAME else []
    first, *others = _OF_ALL if len(names) > 1 else _QUESTIONS
    return [{"text": text} for text in (*compare, first, *(asked or others))]


def waits_for(workspace: Workspace, asked: Asked) -> str:
    """The reason why the question that was taken waits."""
    if workspace.waits_for_model:
        return "Waits for the model, which is being loaded."
    match workspace.phase:
        case Phase.EMPTY if workspace.locked is not None:
            return "Waits until the document is unlocked."
        case Phase.EMPTY:
            return "Waits for a document: drop one, or try the sample."
        case Phase.OPENING | Phase.REOPENING:
            return "Waits until the document is open and reading has begun."
        case Phase.READY if not workspace.is_waiting:
            return "Waits until the document is read."
        case Phase.READING if asked.is_early:
            return "Waits until enough of the document is read."
        case Phase.READING:
            return "Comes after this step of reading."
        case Phase.ANSWERING:
            return "Comes after this answer."
        case Phase.STOPPED if is_unread(workspace):
            return "Waits until reading is resumed."
    return "Waits in line."


def is_unread(workspace: Workspace) -> bool:
    """True if reading was paused before there was anything to answer from."""
    return workspace.phase is Phase.STOPPED and not workspace.telemetry.num_passed
