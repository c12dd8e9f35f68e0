"""Times as the screen shows them: by stage."""

from __future__ import annotations

from typing import Any

from ondevice import words
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
