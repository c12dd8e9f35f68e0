"""The two bars of progress as the screen shows them: the text that is extracted, and the tokens that are read."""

from __future__ import annotations

from typing import Any

from ondevice import words
from ondevice.serving.workspace import Phase, Workspace


def progress(workspace: Workspace) -> list[dict[str, Any]]:
    """The two bars. `done` of `total`; a total of None is not known, and the bar says so."""
    return [_pages_bar(workspace), _tokens_bar(workspace)]


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
    text = f"{words.count(telemetry.num_passed)} of {words.count(total)} tokens" if total else ""
    if telemetry.num_skipped:
        text += f", {words.count(telemetry.num_skipped)} of them skipped"
    is_active = workspace.activity is Phase.READING
    detail = ""
    if is_active and telemetry.tokens_per_second:
        detail = words.rate(telemetry.tokens_per_second)
        if telemetry.eta_seconds:
            detail += f", about {words.forecast(telemetry.eta_seconds)} left"
    elif telemetry.num_passed and telemetry.ingest_seconds:
        speed = words.rate(telemetry.num_passed / telemetry.ingest_seconds)
        detail = f"{words.duration(telemetry.ingest_seconds)}, {speed}"
    return {
        "label": "Tokens read",
        "done": telemetry.num_passed,
        "total": max(total, 1),
        "text": text,
        "detail": detail,
    }
