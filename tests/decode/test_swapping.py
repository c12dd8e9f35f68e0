"""Blocks that are exchanged while an answer is written, where that answer comes to fill the pot."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ondevice.config import PotConfig, TierConfig
from ondevice.documents import Document, Page
from ondevice.events import AnswerToken
from ondevice.session.engine import Engine
from tests.builders.grids import first_of
from tests.builders.models import plain_config, plain_generation, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(60))
POT = PotConfig(capacity=400, num_kept=160, reserve=100, step_size=60)


@pytest.mark.parametrize("every", first_of(3, 1, 7))
@pytest.mark.parametrize("policy", ["question", "streaming-llm"])
def test_a_look_back_at_the_very_token_that_fills_the_pot(policy: str, every: int) -> None:
    config = plain_config(
        pot=replace(POT, decode_policy=policy),
        tier=TierConfig(budget_bytes=1_000_000, max_tokens=64, every=every),
        generation=plain_generation(max_new_tokens=140),
    )
    session = Engine(tiny_loaded(), config).session()
    list(session.read(Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))))
    before = session.context.pot.state()
    tokens = [event for event in session.ask("Which lamp did keeper 7 light?") if isinstance(event, AnswerToken)]
    assert tokens
    after = session.context.pot.state()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
