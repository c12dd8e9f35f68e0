"""A comparison as the screen shows it, and as it leaves the program: as JSON and as Markdown."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

from ondevice import words
from ondevice.serving.comparison import Column, Comparison, Stage
from ondevice.serving.exchanges import one_line
from ondevice.serving.visitor import Visitor
from ondevice.ui.form import in_words

_STAGES = {
    Stage.WAITING: "In line",
    Stage.READING: "Reading",
    Stage.ANSWERING: "Answering",
    Stage.DONE: "Done",
    Stage.FAILED: "Could not be done",
    Stage.STOPPED: "Stopped",
}
_SAME = "The same document, question, longest answer, temperature and seed for all; one after the other."


def compare_controls(visitor: Visitor) -> dict[str, Any]:
    """The buttons and fields of the comparison that can be used."""
    is_busy = not visitor.comparison.idle.is_set()
    return {
        "compare_choices": gr.update(interactive=not is_busy),
        "compare_question": gr.update(interactive=not is_busy),
        "compare_run": gr.update(visible=not is_busy, interactive=visitor.current.document is not None),
        "compare_stop": gr.update(visible=is_busy),
    }


def comparison_payload(visitor: Visitor) -> dict[str, Any]:
    """Values that the panel draws."""
    comparison, document = visitor.comparison, visitor.current.document
    is_busy = not comparison.idle.is_set()
    subject = "Choose a document under “Read & ask” first."
    if comparison.columns and comparison.document:
        tokens = words.count(comparison.num_tokens)
        subject = f"{comparison.document}, {tokens} tokens. Question: {comparison.question}"
    elif document is not None:
        subject = f"Document: {document.name}"
    return {
        "subject": subject,
        "same": _SAME if comparison.columns else "",
        "problem": comparison.problem,
        "status": _status(comparison) if comparison.columns else "",
        "is_busy": is_busy,
        "columns": [_column(column, comparison) for column in comparison.columns],
        "can_be_saved": can_be_saved(comparison),
    }


def can_be_saved(comparison: Comparison) -> bool:
    """True if it is at rest, and has at least one answer."""
    return comparison.idle.is_set() and any(column.finished for column in comparison.columns)


def _status(comparison: Comparison) -> str:
    """Changes seldom: it is read out loud."""
    done = sum(column.stage in (Stage.DONE, Stage.FAILED) for column in comparison.columns)
    at_work = [c.contender.label for c in comparison.columns if c.stage in (Stage.READING, Stage.ANSWERING)]
    text = f"{done} of {words.plural(len(comparison.columns), 'way')} done."
    if at_work:
        return f"{text} Now: {at_work[0]}."
    return text if not comparison.idle.is_set() or done == len(comparison.columns) else f"{text} Stopped."


def _column(column: Column, comparison: Comparison) -> dict[str, Any]:
    telemetry = column.telemetry
    return {
        "key": column.contender.key,
        "label": column.contender.label,
        "differs": column.contender.differs,
        "settings": in_words(column.config) if column.config is not None else "",
        "stage": column.stage.value,
        "stage_text": _STAGES[column.stage],
        "done": _passed(column),
        "total": max(comparison.num_tokens, 1),
        "answer": telemetry.answer or (words.NO_WORDS if column.finished is not None else ""),
        "warning": column.warning,
        "problem": column.problem,
        "facts": _facts(column),
        "ledger": _ledger(column),
    }


def _passed(column: Column) -> int:
    """Tokens read and skipped; those that truncation skips are known once it has read."""
    telemetry = column.telemetry
    skipped = telemetry.ledger.tokens_skipped if telemetry.ledger is not None else 0
    return telemetry.num_read + max(telemetry.num_skipped, skipped)


def _facts(column: Column) -> list[list[str]]:
    """Name and text of each."""
    telemetry, finished = column.telemetry, column.finished
    facts: list[list[str]] = []
    if telemetry.num_read:
        facts.append(["Time to read", words.duration(telemetry.ingest_seconds)])
        facts.append(["Reading speed", words.rate(telemetry.num_passed / max(telemetry.ingest_seconds, 1e-9))])
    if finished is not None:
        facts.append(["First word after", words.duration(finished.ttft_seconds)])
        facts.append(["Answering speed", words.speed(finished)])
    if column.held is not None:
        facts.append(["Memory of the pot", words.size(column.held.nbytes)])
        if column.held.speculator_bytes:
            facts.append(["Of that the small model's", words.size(column.held.speculator_bytes)])
        if finished is not None and (slots := finished.ledger.slots_capacity):
            all_of_it = column.held.pot_bytes * finished.ledger.tokens_total // slots
            facts.append(["A cache of all tokens", f"about {words.size(all_of_it)}"])
    if finished is not None:
        facts.append(["Blocks of the pot read", words.share(finished.share_read, 1.0)])
    return facts


def _ledger(column: Column) -> str:
    """The account of its answer but for what is among its facts."""
    finished, held = column.finished, column.held
    if finished is None or held is None:
        return ""
    parts = [*words.recalled(finished, held.unit), words.ledger_line(finished.ledger, held)]
    return " · ".join(parts)


def to_json(comparison: Comparison) -> str:
    """The whole comparison as a JSON document."""
    return json.dumps(
        {
            "document": comparison.document,
            "tokens": comparison.num_tokens,
            "question": comparison.question,
            "columns": [_record(column) for column in comparison.columns],
        },
        ensure_ascii=False,
        indent=1,
    )


def _record(column: Column) -> dict[str, Any]:
    telemetry, finished, held = column.telemetry, column.finished, column.held
    return {
        "name": column.contender.label,
        "stage": column.stage.value,
        "problem": column.problem,
        "warning": column.warning,
        "config": column.config.to_dict() if column.config is not None else None,
        "answer": finished.text if finished is not None else telemetry.answer,
        "stop_reason": finished.stop_reason if finished is not None else "",
        "ledger": finished.ledger.to_dict() if finished is not None else None,
        "read_seconds": round(telemetry.ingest_seconds, 4),
        "ttft_seconds": round(finished.ttft_seconds, 4) if finished is not None else None,
        "decode_tokens_per_second": finished.tokens_per_second if finished is not None else None,
        "pot_bytes": held.nbytes if held is not None else 0,
        "speculator_bytes": held.speculator_bytes if held is not None else 0,
        "tier_bytes": held.tier_bytes if held is not None else 0,
        "share_read": finished.share_read if finished is not None else None,
    }


def to_markdown(comparison: Comparison) -> str:
    """The whole comparison as a text to keep or to send."""
    lines = [f"# {one_line(comparison.document)}", "", f"Question: {one_line(comparison.question)}", "", _SAME, ""]
    names = list(dict.fromkeys(name for column in comparison.columns for name, _ in _facts(column)))
    rows = [["", *names]]
    for column in comparison.columns:
        facts = dict(_facts(column))
        rows.append([column.contender.label, *(facts.get(name, "") for name in names)])
    rule = ["---"] * len(rows[0])
    lines += ["| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:])]
    for column in comparison.columns:
        lines += ["", f"## {column.contender.label}", "", column.contender.differs, ""]
        if column.config is not None:
            lines += [f"Settings: {in_words(column.config)}", ""]
        lines += [f"**{text}**\n" for text in (column.warning, column.problem) if text]
        answer = column.telemetry.answer or _STAGES[column.stage]
        lines += [f"> {line}" for line in answer.splitlines() or [""]]
        if _ledger(column):
            lines += ["", _ledger(column)]
    return "\n".join(lines) + "\n"
