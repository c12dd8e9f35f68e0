"""The account of an answer in numbers: what it was written from, and the record that is kept of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ondevice.events import AnswerFinished
from ondevice.serving.question_queue import Asked
from ondevice.session.session import Session
from ondevice.telemetry.telemetry import Telemetry
from ondevice.words import Holdings


def holdings(session: Session, telemetry: Telemetry) -> Holdings:
    """Account of a session's memory now; `telemetry` has seen its events."""
    context = session.context
    outside, waited = context.host, telemetry.stage_seconds["offload"]
    copying = telemetry.offload_hidden_seconds + waited
    return Holdings(
        unit="" if context.tokens.places else context.tokens.document.unit,
        pot_bytes=context.pot.nbytes if context.has_pot else 0,
        speculator_bytes=context.speculator_bytes,
        tier_bytes=0 if outside is None else outside.nbytes,
        tier_most_bytes=0 if outside is None else outside.most_bytes,
        limit_bytes=session.plan.limit_bytes,
        tier_tokens=0 if outside is None else outside.tier.num_held(0),
        share_hidden=telemetry.offload_hidden_seconds / copying if copying else None,
    )


def answer_record(answer: AnswerFinished, held: Holdings, session: Session, asked: Asked) -> dict[str, Any]:
    """The account of an answer without its text and its sources, and what it was written from; JSON."""
    memory = {name: value for name, value in asdict(held).items() if name.endswith(("_bytes", "_tokens"))}
    drawn = {
        "model": session.context.loaded.name,
        "seed": session.context.config.seed + asked.attempt,
        "temperature": asked.generation.temperature,
    }
    return answer.to_dict() | memory | {"ledger": answer.ledger.to_dict()} | drawn
