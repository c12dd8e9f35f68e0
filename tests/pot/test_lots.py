"""Slots that are drawn by lot: in proportion to the scores, by lots that stay with their tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ondevice.config import PotConfig
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.events import PotDistilled
from ondevice.pot.lots import by_lot, lots_of
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from tests.builders.models import plain_config, tiny_loaded
from tests.builders.pots import check_invariants

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(70))
POT = PotConfig(capacity=400, num_kept=160, reserve=100, step_size=60, policy="foresight", reservoir=0.4)


def read(pot: PotConfig = POT, seed: int = 0) -> tuple[Session, list[PotDistilled]]:
    session = Engine(tiny_loaded(), replace(plain_config(pot=pot), seed=seed)).session()
    document = Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))
    return session, [event for event in session.read(document) if isinstance(event, PotDistilled)]


def tokens(count: int, layers: int = 2, heads: int = 3) -> torch.Tensor:
    return torch.arange(count, dtype=torch.int32).expand(layers, 1, heads, -1)


def test_a_lot_stays_with_its_token_wherever_that_lies() -> None:
    whole = lots_of(tokens(500), 5, 7, per_head=True)
    places = torch.randperm(500, generator=torch.Generator().manual_seed(0))[:80]
    assert torch.equal(lots_of(tokens(500)[..., places], 5, 7, per_head=True), whole[..., places])
    assert torch.equal(lots_of(tokens(500)[1:], 6, 7, per_head=True), whole[1:])


def test_lots_are_exponential_and_those_of_heads_layers_and_seeds_have_nothing_to_do_with_each_other() -> None:
    lots = lots_of(tokens(20_000), 0, 0, per_head=True)
    assert float(lots.min()) > 0
    for row in lots.flatten(0, 2):
        assert float(row.mean()) == pytest.approx(1.0, abs=0.04)
        assert float((row > 1).float().mean()) == pytest.approx(0.3679, abs=0.02)
    other = lots_of(tokens(20_000), 0, 1, per_head=True)
    rows = torch.cat((lots, other)).flatten(0, 2)
    assert float((torch.corrcoef(rows) - torch.eye(len(rows))).abs().max()) < 0.04
    shared = lots_of(tokens(50), 0, 0, per_head=False)
    assert torch.equal(shared, shared[:, :, :1].expand_as(shared))


def test_the_best_stay_and_the_others_are_drawn_by_their_scores() -> None:
    scores = torch.tensor([8.0, 3.0, 1.0, torch.inf, 0.0, -2.0]).expand(4000, 1, 1, -1)
    lots = torch.empty_like(scores).exponential_(generator=torch.Generator().manual_seed(0))
    order = by_lot(scores, lots, num_kept=3, share=0.34)
    drawn = order.topk(3, dim=-1).indices.flatten(0, 2)
    assert bool(((drawn == 3).any(dim=-1) & (drawn == 0).any(dim=-1)).all())
    third = drawn.sum(dim=-1) - 3
    assert float((third == 1).float().mean()) == pytest.approx(0.75, abs=0.03)
    assert int(((third != 1) & (third != 2)).sum()) <= 2  # what scores nothing
    assert torch.equal(by_lot(scores, lots, 3, 0.0).isinf(), (scores == torch.inf) | (scores == 8) | (scores == 3))


def test_what_is_drawn_chunk_by_chunk_is_what_would_be_drawn_at_once() -> None:
    generator = torch.Generator().manual_seed(0)
    scores, lots = torch.rand(1, 1, 1, 900, generator=generator), lots_of(tokens(900, 1, 1), 0, 0, per_head=True)
    held = torch.arange(0)
    for start in range(0, 900, 100):
        held = torch.cat((held, torch.arange(start, start + 100)))
        held = held[by_lot(scores[..., held], lots[..., held], 60, 1.0).topk(min(60, len(held))).indices.flatten()]
    assert set(held.tolist()) == set(by_lot(scores, lots, 60, 1.0).topk(60).indices.flatten().tolist())


@pytest.mark.parametrize("policy", ["foresight", "infinipot", "h2o", "tova", "sirllm", "random", "streaming-llm"])
def test_every_policy_may_leave_a_part_to_chance(policy: str) -> None:
    pot = replace(POT, policy=policy)
    session, distilled = read(pot)
    again, _ = read(pot)
    assert len(distilled) > 2
    check_invariants(session.context.pot, session.context.tokens.num_tokens)
    states = session.context.pot.state(), again.context.pot.state()
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())
    without, elsewhere = read(replace(pot, reservoir=0.0))[0], read(pot, seed=1)[0]
    held = [one.context.retention.dense().tolist() for one in (session, without, elsewhere)]
    assert held[0] != held[1]
    assert held[0] != held[2]
    if not pot.method.keeps_per_head:
        assert session.context.pot.is_uniform


def test_a_share_is_a_share() -> None:
    with pytest.raises(ConfigError):
        replace(POT, reservoir=1.2)
