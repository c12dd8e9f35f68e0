"""Answers over several documents, as the screen shows them and as they leave the program."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ondevice.serving.exchanges import one_line
from ondevice.serving.export import as_csv
from ondevice.serving.shelf_state import Passage, ShelfAnswered, ShelfTurn, Stage
from ondevice.serving.visitor import Visitor

_SHOWN = 12  # questions that are listed
_STAGES = {
    Stage.WAITING: "In line: the model is still busy with another document.",
    Stage.OPENING: "Opening documents.",
    Stage.ANSWERING: "Answering.",
    Stage.DONE: "",
    Stage.STOPPED: "Stopped.",
    Stage.FAILED: "",
}


def shelf_controls(visitor: Visitor) -> dict[str, Any]:
    """The buttons and fields of the shelf that can be used."""
    is_busy = not visitor.shelf.idle.is_set()
    return {
        "shelf_question": gr.update(interactive=not is_busy),
        "shelf_mode": gr.update(interactive=not is_busy),
        "shelf_ask": gr.update(visible=not is_busy),
        "shelf_stop": gr.update(visible=is_busy),
    }


def shelf_payload(visitor: Visitor) -> dict[str, Any]:
    """Values that the panel draws, the latest question first."""
    work = visitor.shelf
    is_busy = not work.idle.is_set()
    return {
        "problem": work.problem,
        "status": _STAGES[work.turns[-1].stage] if work.turns else "",
        "is_busy": is_busy,
        "turns": [_turn(turn) for turn in reversed(work.turns[-_SHOWN:])],
        "can_be_saved": not is_busy and any(said.text for turn in work.turns for said in turn.answers),
    }


def _turn(turn: ShelfTurn) -> dict[str, Any]:
    return {
        "question": turn.question,
        "is_each": turn.is_each,
        "note": turn.note,
        "problem": turn.problem,
        "answers": [_said(said) for said in turn.answers],
    }


def _said(said: ShelfAnswered) -> dict[str, Any]:
    return {
        "name": said.name,
        "text": said.text,
        "account": said.account,
        "problem": said.problem,
        "passages": [
            {
                "document": one.document,
                "where": f"{one.unit.capitalize()} {one.page}",
                "place": place_of(one),
                "start": one.start,
                "stop": one.stop,
                "text": one.text,
                "share": f"{100 * one.share:.1f} %",
            }
            for one in said.passages
        ],
    }


def place_of(passage: Passage) -> str:
    """A place as people name it: `manual.pdf, page 3`."""
    return f"{passage.name}, {passage.unit} {passage.page}"


def to_markdown(turns: list[ShelfTurn]) -> str:
    """All questions with what was said; whatever others wrote is quoted."""
    lines = ["# Questions to several documents"]
    for turn in turns:
        lines += ["", f"## {one_line(turn.question)}", *(["", turn.note] if turn.note else [])]
        for said in turn.answers:
            lines += ["", *([f"### {one_line(said.name)}", ""] if said.name else [])]
            lines += [f"> {line}".rstrip() for line in (said.text or said.problem or "(no word)").splitlines()]
            lines += ["", *([f"*{one_line(said.account)}*", ""] if said.account else [])]
            lines += [f"- {one_line(place_of(one))}: {one_line(one.text)}" for one in said.passages]
    return "\n".join(lines) + "\n"


def to_csv(turns: list[ShelfTurn]) -> str:
    """A row for each answer: question, document, answer, and where it looked."""
    rows = (
        (turn.question, said.name, said.text or said.problem, "; ".join(map(place_of, said.passages)))
        for turn in turns
        for said in turn.answers
    )
    return as_csv(("question", "document", "answer", "places"), rows)
