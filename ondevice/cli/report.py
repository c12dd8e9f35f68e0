"""The report of `ondevice ask --json`: answers and their account, as one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ondevice.machine.facts import versions
from ondevice.machine.process import peak_rss_bytes
from ondevice.serving.account import holdings

if TYPE_CHECKING:
    from ondevice.events import AnswerFinished
    from ondevice.session.session import Session
    from ondevice.telemetry.telemetry import Telemetry
    from ondevice.words import Holdings


def report(
    session: Session, answers: Sequence[AnswerFinished], telemetry: Telemetry, seconds: Mapping[str, float]
) -> dict[str, Any]:
    """The document. `answer` holds the text of one answer, `answers` those of several, in order.

    Args:
        seconds: wall-clock seconds of the stages before the first question, by name.
    """
    document = session.context.tokens.document
    texts = [answer.text for answer in answers]
    return {
        **({"answer": texts[0]} if len(texts) == 1 else {"answers": texts}),
        "turns": [answer.to_json() for answer in answers],
        "document": {"name": document.name, "kind": document.kind, "unit": document.unit, "sha256": document.sha256},
        "ledger": session.context.ledger.to_dict(),
        "timings": {
            **seconds,
            "stage_seconds": telemetry.stage_seconds,
            "offload_hidden_seconds": telemetry.offload_hidden_seconds,
            "ttft_seconds": answers[0].ttft_seconds if answers else None,
            "decode_tokens_per_second": _speed(answers),
        },
        "memory": _memory(session, answers, holdings(session, telemetry)),
        "config": session.context.config.to_dict(),
        "versions": versions(),
    }


def _speed(answers: Sequence[AnswerFinished]) -> float | None:
    """Tokens per second after the first token of each answer that has a speed; None where none has."""
    timed = [answer for answer in answers if answer.tokens_per_second is not None]
    seconds = sum(answer.decode_seconds for answer in timed)
    return sum(answer.num_tokens - 1 for answer in timed) / seconds if timed else None


def _memory(session: Session, answers: Sequence[AnswerFinished], held: Holdings) -> dict[str, int]:
    memory = {
        "pot_bytes": held.pot_bytes,
        "speculator_bytes": held.speculator_bytes,
        "host_tier_bytes": held.tier_bytes,
        "host_tier_most_bytes": held.tier_most_bytes,
        "limit_bytes": held.limit_bytes,  # of all of these
        "undo_bytes": max((answer.undo_bytes for answer in answers), default=0),  # gone again after each answer
        "peak_rss_bytes": peak_rss_bytes(),
    }
    if session.context.loaded.device.type == "cuda":
        memory["peak_cuda_bytes"] = torch.cuda.max_memory_allocated()
    return memory
