"""Heads that hold different numbers of tokens: where they happen to hold equally many, nothing else is computed."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ondevice.kernels.codes import Frame
from torch import Tensor

from ondevice.config import (
    ArtConfig,
    EngineConfig,
    KvDtype,
    PotConfig,
    SlimConfig,
    SpecConfig,
    TierConfig,
)
from ondevice.documents import Document, Page
from ondevice.events import AnswerToken, Event
from ondevice.model.decoder import Decoder
from ondevice.model.loading.load import load_model
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.numbering import number_in_order_
from ondevice.pot.shape import PotShape
from ondevice.session import plan
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from ondevice.telemetry.provenance import take_provenance
from tests.builders.grids import first_of
from tests.builders.models import FAMILIES, plain_config, plain_generation, save_checkpoint, tiny_loaded, tiny_model
from tests.builders.pots import check_invariants

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(60))
POT = PotConfig(capacity=400, num_kept=160, reserve=100, step_size=60)
TIER = TierConfig(budget_bytes=1_000_000, max_tokens=64, every=4)


def read_and_asked(family: str, config: EngineConfig) -> tuple[Session, list[Event]]:
    session = Engine(tiny_loaded(family), config).session()
    document = Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))
    events = list(session.read(document))
    return session, events + list(session.ask("Which lamp did keeper 7 light?"))


def answer_of(events: list[Event]) -> list[int]:
    return [event.token_id for event in events if isinstance(event, AnswerToken)]


def shortly(settings: dict[str, Any]) -> str:
    """What differs from the usual settings."""
    usual = {"pot": POT, "tier": TierConfig(), "generation": plain_generation()}
    parts = []
    for name, value in settings.items():
        plain = asdict(usual.get(name, type(value)()))
        parts += [f"{name}.{key}={one}" for key, one in asdict(value).items() if one != plain[key]]
    return ",".join(parts) or "usual"


def by_head(pot: MemoryPot, buffers: list[Tensor]) -> Tensor:
    """What the first slots of each head hold, (layers x heads, slots, ...)."""
    used = min(pot.num_cached)
    return torch.cat([buffer[0, :, :used] for buffer in buffers])


@pytest.fixture
def even_need(monkeypatch: pytest.MonkeyPatch) -> None:
    def needs(decoder: Decoder, *_: object) -> torch.Tensor:
        return torch.ones(len(decoder.parts.layers), decoder.parts.num_kv_heads)

    monkeypatch.setattr(plan, "head_shares", needs)
    monkeypatch.setattr(plan, "known_head_budgets", needs)


@pytest.mark.usefixtures("even_need")
@pytest.mark.parametrize(
    "settings",
    first_of(
        {},
        {"pot": replace(POT, key_rotation="half-cache")},
        {"pot": replace(POT, context_reset="late")},
        {"pot": replace(POT, policy="repeat")},
        {"pot": replace(POT, policy="foresight")},
        {"pot": replace(POT, policy="expected")},
        {"pot": replace(POT, policy="h2o")},
        {
            "pot": replace(POT, reserve=150, decode_policy="streaming-llm"),
            "generation": plain_generation(max_new_tokens=180),
        },
        {"slim": SlimConfig(schedule="1:50%", block_size=8, unit_size=4)},
        {"art": ArtConfig(enabled=True, block_size=16)},
        {"spec": SpecConfig(layers=1, keep=0.7)},
    ),
    ids=shortly,
)
def test_heads_apart_that_hold_equally_many_compute_the_same(settings: dict[str, Any]) -> None:
    settings = {"pot": POT, **settings}
    together, expected = read_and_asked("llama", plain_config(**settings))
    settings["pot"] = replace(settings["pot"], slot_shares="by-head")
    apart, events = read_and_asked("llama", plain_config(**settings))
    one, other = together.context.pot, apart.context.pot
    assert other.shape.pot_layers_per_layer == 2
    assert sum(keys.nbytes for keys in other.keys) == sum(keys.nbytes for keys in one.keys)
    assert other.nbytes <= one.nbytes
    assert answer_of(events) == answer_of(expected)
    assert [type(event) for event in events] == [type(event) for event in expected]
    torch.testing.assert_close(by_head(other, other.keys), by_head(one, one.keys), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(by_head(other, other.values), by_head(one, one.values), atol=1e-4, rtol=1e-4)
    for mine, its in zip(other.provenance()[:2], one.provenance()[:2], strict=True):
        assert torch.equal(mine.flatten(0, 2), its.flatten(0, 2))
    assert apart.context.ledger == together.context.ledger
    seen, was = take_provenance(apart.context), take_provenance(together.context)
    assert np.array_equal(seen.origin, was.origin)
    assert np.array_equal(seen.is_novel, was.is_novel)
    assert seen.num_settled == was.num_settled


@pytest.mark.usefixtures("even_need")
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_may_hold_its_heads_apart(family: str) -> None:
    expected = answer_of(read_and_asked(family, plain_config(pot=POT))[1])
    assert answer_of(read_and_asked(family, plain_config(pot=replace(POT, slot_shares="by-head")))[1]) == expected


@pytest.fixture
def uneven_need(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = torch.tensor([[0.3, 1.7], [1.0, 0.5], [2.2, 0.3]])
    monkeypatch.setattr(plan, "head_shares", lambda *_: needs)
    monkeypatch.setattr(plan, "known_head_budgets", lambda *_: needs)


@pytest.mark.usefixtures("uneven_need")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pot": replace(POT, context_reset="late")},
        {"pot": replace(POT, policy="repeat")},
        {"pot": replace(POT, policy="foresight")},
        {"pot": replace(POT, policy="expected")},
        {
            "pot": replace(POT, reserve=150, decode_policy="streaming-llm"),
            "generation": plain_generation(max_new_tokens=180),
        },
        {"tier": TIER},
        {"slim": SlimConfig(schedule="1:50%", block_size=8, unit_size=4), "tier": TIER},
        {"art": ArtConfig(enabled=True, block_size=16)},
        {"spec": SpecConfig(layers=1, keep=0.7)},
    ],
    ids=shortly,
)
def test_heads_hold_what_they_need_and_an_answer_leaves_them_as_they_were(settings: dict[str, Any]) -> None:
    pot = replace(settings.get("pot", POT), slot_shares="by-head")
    session, _ = read_and_asked("llama", plain_config(**settings | {"pot": pot}))
    held, state = session.context.pot, session.context.pot.state()
    addresses = [buffer.data_ptr() for buffer in held.buffers()]
    check_invariants(held, session.context.tokens.num_tokens)
    if not session.context.slim_steps:
        assert len(set(held.num_ranked)) > 3
    list(session.ask("And keeper 20?"))
    after = held.state()
    assert all(torch.equal(tensor, after[name]) for name, tensor in state.items())
    assert [buffer.data_ptr() for buffer in held.buffers()] == addresses


@pytest.mark.usefixtures("uneven_need")
def test_heads_of_a_layer_count_on_from_one_position_and_keep_the_prompt_where_it_was() -> None:
    session, _ = read_and_asked("llama", plain_config(pot=replace(POT, slot_shares="by-head")))
    pot = session.context.pot
    for first in range(0, pot.shape.num_layers, 2):
        assert pot.next_position[first] == pot.next_position[first + 1]
    for layer, used in enumerate(pot.num_ranked):
        positions = pot.positions[layer, 0, 0, :used].sort().values.tolist()
        protected = pot.num_protected
        assert positions[:protected] == list(range(protected))
        gap = positions[protected] - protected
        assert positions[protected:] == list(range(protected + gap, used + gap))


def test_positions_that_count_together_leave_a_gap_after_what_is_protected() -> None:
    pot = MemoryPot(
        PotShape(2, 1, 4, 6, capacities=(6, 4), pot_layers_per_layer=2, key_rotation="on-read"),
        dtype=torch.float32,
        device="cpu",
        rotate_keys=lambda keys, *_: keys,
    )
    pot.num_protected, pot.num_cached = 1, [5, 3]
    pot.positions[0, 0, 0, :5] = torch.tensor([0, 9, 2, 4, 7])
    pot.positions[1, 0, 0, :3] = torch.tensor([9, 0, 3])
    number_in_order_(pot)
    assert pot.positions[0, 0, 0, :5].tolist() == [0, 4, 1, 2, 3]
    assert pot.positions[1, 0, 0, :3].tolist() == [4, 0, 3]
    assert pot.next_position == [5, 5]


@pytest.mark.parametrize("by_head", [False, True])
@pytest.mark.parametrize("kv_dtype", ["model", "int8", "k8v4"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen2"])
def test_the_shorter_way_for_one_token_does_what_the_layers_do(
    tmp_path: Path, family: str, kv_dtype: KvDtype, by_head: bool
) -> None:
    folder = save_checkpoint(tiny_model(family, head_dim=32, num_key_value_heads=2), tmp_path / "tiny")
    model, pots, outs = load_model(str(folder), device="cpu", quantization="8bit").model, [], []
    ids = torch.randint(0, 260, (1, 40), generator=torch.Generator().manual_seed(0))
    for has_fast_step in (True, False):
        decoder = Decoder(model, has_fast_step=has_fast_step)
        assert (decoder._one_token is not None) == has_fast_step
        capacities = (64, 50, 40, 64, 44, 64)[: len(decoder.parts.layers)]
        capacities = tuple(slots for slots in capacities for _ in range(2)) if by_head else capacities
        shape = decoder.pot_shape(64, capacities=capacities, kv_dtype=kv_dtype)
        pot = decoder.allocate(shape, None if kv_dtype == "model" else _frame(shape))
        decoder.forward(ids[:, :20], pot)
        pot.compact_(slice(1, 2), torch.arange(12).expand(1, 1, shape.num_kv_heads, 12))
        outs.append([decoder.forward(token.view(1, 1), pot).hidden_states for token in ids[0, 20:36]])
        if kv_dtype == "model":  # over a victim that all heads share
            pot.victims = slice(5, 6)
            outs[-1].append(decoder.forward(ids[:, 36:37], pot).hidden_states)
        pots.append(pot)
    assert pots[0].num_cached == [28 if layer == 1 else 36 for layer in range(shape.num_layers)]
    # Where a number lies between two steps, the last bits of what it was computed from decide.
    off = 0.05 if kv_dtype == "k8v4" else 0.02
    for one, other in zip(outs[0], outs[1], strict=True):
        assert (one - other).norm() < off * other.norm()
    for one, other in zip(pots[0].buffers(), pots[1].buffers(), strict=True):
        if one.dtype == torch.int8:
            assert (one.int() - other.int()).abs().float().mean() < 0.5
        elif one.is_floating_point():
            assert (one - other).norm() <= off * other.norm()
        elif one.dtype != torch.uint8:  # two values of 4 bits
            assert torch.equal(one, other)


def _frame(shape: PotShape) -> Frame:
    size = (shape.num_layers, shape.num_kv_heads, shape.head_dim)
    generator = torch.Generator().manual_seed(1)
    return Frame(torch.randn(size, generator=generator), torch.rand(size, generator=generator) + 0.5)
