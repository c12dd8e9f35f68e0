"""Progress as the screen shows it: text extracted, tokens read and what they come to; and where the time went."""

from __future__ import annotations

from typing import Any

from ondevice import words
from ondevice.serving.workspace import Phase, Workspace
from ondevice.telemetry.telemetry import STAGES, Telemetry

STAGE_LABELS = {
    "tokenize": "Split text into tokens",
    "measure": "Measure the model's heads",
    "speculate": "Skim with a small model",
    "forward": "Read tokens",
    "novelty": "Score what is new",
    "distill": "Choose what to keep",
    "offload": "Wait for copies",
    "other": "All else while reading",
    "question": "Read questions",
    "search": "Search the text",
    "look": "Look for what to bring back",
    "revival": "Bring tokens back",
    "write": "Write answers",
    "sources": "Find where answers looked",
    "finish": "Check answers",
}


def progress(workspace: Workspace) -> list[dict[str, Any]]:
    """The two bars. `done` of `total`; a total of None is not known, and the bar says so."""
    return [_pages_bar(workspace), _tokens_bar(workspace)]


def numbers(workspace: Workspace) -> dict[str, tuple[str, str]]:
    """Tokens that are remembered, and the memory that takes under its ceiling: each a number and what it counts."""
    session, view = workspace.session, workspace.view
    outside, most = (session.context.host_bytes, session.plan.limit_bytes) if session is not None else (0, 0)
    bound = f"of at most {words.size(most)}" if most else "of memory"
    return {
        "remembered": (words.count(view.num_held if view is not None else 0), "tokens remembered"),
        "memory": (words.size(workspace.pot_bytes + outside), bound),
    }


def _pages_bar(workspace: Workspace) -> dict[str, Any]:
    bar = {"label": "Text extracted", "done": 0, "total": 1, "text": ""}
    document, pages = workspace.document, workspace.pages
    if workspace.activity is Phase.OPENING and pages is not None:
        of = f" of {words.count(pages.total)}" if pages.total is not None else ""
        text = f"{words.count(pages.done)}{of} pages" if pages.done or of else "looking into the file"
        return bar | {"done": pages.done, "total": pages.total, "text": text}
    if document is None:
        return bar
    total = document.num_pages or 0
    return bar | {"done": total, "total": max(total, 1), "text": words.plural(total, document.unit)}


def _tokens_bar(workspace: Workspace) -> dict[str, Any]:
    telemetry, total = workspace.telemetry, workspace.num_tokens
    is_active = workspace.activity is Phase.READING
    done = workspace.num_through if is_active else telemetry.num_passed
    text = f"{words.count(done)} of {words.count(total)} tokens" if total else ""
    if telemetry.num_skipped:
        text += f", {words.count(telemetry.num_skipped)} of them skipped"
    detail = ""
    if is_active and telemetry.tokens_per_second:
        detail = words.rate(telemetry.tokens_per_second)
    elif not is_active and telemetry.num_passed and telemetry.ingest_seconds:
        speed = words.rate(telemetry.num_passed / telemetry.ingest_seconds)
        detail = f"{words.duration(telemetry.ingest_seconds)}, {speed}"
    left = workspace.seconds_left if is_active else None
    return {"label": "Tokens read", "done": done, "total": max(total, 1), "text": text, "detail": detail, "left": left}


def stage_times(telemetry: Telemetry) -> list[dict[str, Any]]:
    """Seconds by stage since the document was opened."""
    seconds = telemetry.stage_seconds
    total = sum(seconds.values())
    return [
        {
            "label": STAGE_LABELS[stage],
            "seconds": seconds[stage],
            "text": words.duration(seconds[stage]) if seconds[stage] else "–",  # noqa: RUF001
            "share": seconds[stage] / total if total else 0.0,
        }
        for stage in STAGES
    ]
