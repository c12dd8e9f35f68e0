"""Times as the screen shows them: by stage, and what an answer read of the pot."""

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


def blocks_read(telemetry: Telemetry) -> dict[str, Any] | None:
    """Shares of the pot's blocks that the last answer read, layer by layer and head by head; None where it read all."""
    account = telemetry.blocks_read
    if account is None or not account.num_tokens:
        return None
    layers = []
    for read, held in zip(account.read.tolist(), account.held.tolist(), strict=True):
        layers.append([round(one / of, 3) if of else 1.0 for one, of in zip(read, held, strict=True)])
    num_read, num_held = int(account.read.sum()), int(account.held.sum())
    text = (
        f"{words.share(num_read, num_held)} of the blocks read for {words.plural(account.num_tokens, 'token')} "
        f"({words.count(num_read)} of {words.count(num_held)})"
    )
    return {"layers": layers, "text": text}
