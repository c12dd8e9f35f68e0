"""Quantised pots from end to end: what they hold never moves or is rounded twice, and answers are nearly the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ondevice.config import ArtConfig, EngineConfig, PotConfig, SlimConfig, TierConfig
from ondevice.documents.types import Document, Page
from ondevice.errors import DamagedPot, PotMismatch
from ondevice.events import AnswerFinished, TokensRecalled
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.slots import CodedSlots
from ondevice.session.engine import Engine
from ondevice.session.saving import load_reading, load_session, save_reading, save_session
from ondevice.session.session import Session
from tests.builders.grids import first_of
from tests.builders.models import plain_config, plain_generation, tiny_loaded
from tests.builders.pots import check_invariants

pytestmark = pytest.mark.usefixtures("one_thread")

LOADED = tiny_loaded("qwen2")
POT = PotConfig(capacity=192, num_kept=64, reserve=70, step_size=40, kv_dtype="int8")
TIER = TierConfig(budget_bytes=2_000_000, max_tokens=24)
GENERATION = plain_generation(max_new_tokens=12)
TEXT = "The lamp was lit at dusk, écru and bright, and burned until the morning. " * 10
LONG = plain_generation(max_new_tokens=140)


def config(**fields: object) -> EngineConfig:
    return plain_config(**{"pot": POT, "generation": GENERATION} | fields)


def document(text: str = TEXT) -> Document:
    return Document("lamp.txt", "txt", "part", (Page(1, text),), 1, len(text))


def read(given: EngineConfig, text: str = TEXT) -> Session:
    session = Engine(LOADED, given).session()
    for _ in session.read(document(text)):
        if session.context.is_open and session.context.has_pot:
            check_invariants(session.context.pot, session.context.tokens.num_tokens)
    return session


def contents(pot: MemoryPot) -> list[torch.Tensor]:
    return [buffer.clone() for buffer in pot.buffers()]


def are_equal(pot: MemoryPot, before: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, pot.buffers(), before))


@pytest.mark.parametrize("fields", first_of(
    {"pot": replace(POT, kv_dtype="k8v4"), "tier": TIER},
    {},
    {"pot": replace(POT, policy="snapkv")},
    {"pot": replace(POT, kv_dtype="int4")},
    {"pot": replace(POT, kv_dtype="int4"), "tier": TIER},
    {"pot": replace(POT, slot_shares="by-head")},
    {"pot": replace(POT, policy="full")},
    {"tier": TIER},
    {"tier": TIER, "slim": SlimConfig("1:50%,2:25%", block_size=8, unit_size=4, window=2)},
    {"art": ArtConfig(enabled=True, block_size=16)},
    {"generation": LONG},
    {"generation": LONG, "pot": replace(POT, decode_policy="streaming-llm")},
), ids=str)  # fmt: skip
def test_reading_and_answering_leave_no_trace_and_move_nothing(fields: dict[str, object]) -> None:
    session = read(config(**fields))
    pot = session.context.pot
    assert pot.is_coded
    places, before = [buffer.data_ptr() for buffer in pot.buffers()], contents(pot)
    LOADED.tokenizer.eos_ids, kept = frozenset(), LOADED.tokenizer.eos_ids
    try:
        answers = [list(session.ask("What was lit at dusk?"))[-1] for _ in range(2)]
    finally:
        LOADED.tokenizer.eos_ids = kept
    assert all(isinstance(answer, AnswerFinished) for answer in answers)
    assert answers[0].text == answers[1].text
    assert are_equal(pot, before)
    assert [buffer.data_ptr() for buffer in pot.buffers()] == places
    assert pot.nbytes == session.plan.pot_bytes(session.context.tokens.num_tokens)


def test_a_pot_takes_the_bytes_that_its_shape_says_and_three_times_fewer() -> None:
    coded, wide = (Engine(LOADED, config(pot=replace(POT, kv_dtype=one))).session() for one in ("int8", "model"))
    assert coded.context.pot.nbytes == coded.plan.pot_bytes()
    assert coded.context.pot.nbytes < wide.context.pot.nbytes / 2  # of heads of 16 numbers, where counts weigh much


@pytest.mark.parametrize(("coded", "most"), [("int8", 0.02), ("k8v4", 0.2), ("int4", 0.4)])
def test_passes_see_what_wide_pots_see_but_for_the_rounding(coded: str, most: float) -> None:
    text = TEXT[:90]
    logits = []
    for kv_dtype in (coded, "model"):
        session = read(config(pot=replace(POT, kv_dtype=kv_dtype)), text)
        decoder, pot = session.context.decoder, session.context.pot
        ids = decoder.ids(list(b"What burned?"))
        with pot.savepoint():
            many = decoder.forward(ids, pot).hidden_states
        with pot.savepoint():
            ones = [decoder.forward(ids[:, at : at + 1], pot).hidden_states for at in range(ids.shape[1])]
        logits.append((many, torch.cat(ones, dim=1)))
    (many, ones), (exact, exact_ones) = logits
    assert torch.allclose(exact, exact_ones, atol=1e-4)
    assert torch.allclose(many, ones, atol=1e-4), "one token sees the same codes as many"
    error = (many - exact).norm() / exact.norm()
    assert 0 < error < most


def test_distillation_moves_codes_and_rounds_none_again() -> None:
    session = Engine(LOADED, config()).session()
    seen: dict[tuple[int, int, int], torch.Tensor] = {}
    for _ in session.read(document()):
        if not session.context.is_open:
            continue
        pot = session.context.pot
        for layer, used in enumerate(pot.num_cached):
            for head in range(pot.shape.num_kv_heads):
                for slot, token in enumerate(pot.origin[layer, 0, head, :used].tolist()):
                    if token >= 0:
                        codes = torch.cat([part[0, head, slot].flatten().float() for part in pot.slots.layers[layer]])
                        assert torch.equal(codes, seen.setdefault((layer, head, token), codes))
    assert session.context.num_cycles > 3


@pytest.mark.parametrize("kv_dtype", ["int8", "k8v4", "int4"])
def test_codes_go_to_the_tier_and_come_back_as_they_are(kv_dtype: str) -> None:
    session = read(config(pot=replace(POT, kv_dtype=kv_dtype), tier=TIER))
    context = session.context
    assert context.host is not None
    pot, tier = context.pot, context.host.tier
    for layer, used in enumerate(pot.num_cached):
        where = {token: place for place, token in enumerate(tier.origin(layer).tolist())}
        for head in range(pot.shape.num_kv_heads):
            for slot, token in enumerate(pot.origin[layer, 0, head, :used].tolist()):
                if token in where:
                    there = tier.parts(layer, torch.tensor([where[token]]))
                    for part, held in zip(there, pot.slots.layers[layer], strict=True):
                        assert torch.equal(part[head, 0], held[0, head, slot])
    events = list(session.ask("What was lit at dusk?"))
    assert any(isinstance(event, TokensRecalled) and event.num_tokens for event in events)


@pytest.mark.parametrize("fields", [
    {},
    {"tier": TIER},
    {"pot": replace(POT, slot_shares="by-head")},
    {"pot": replace(POT, kv_dtype="int4"), "tier": TIER},
    {"pot": replace(POT, kv_dtype="k8v4"), "tier": TIER},
], ids=str)  # fmt: skip
def test_a_saved_pot_opens_bit_for_bit(fields: dict[str, object], tmp_path: Path) -> None:
    session, path = read(config(**fields)), tmp_path / "lamp.pot"
    save_session(session, path)
    opened = load_session(Engine(LOADED, config(**fields)), path)
    assert are_equal(opened.context.pot, contents(session.context.pot))
    assert all(map(torch.equal, opened.context.pot.frame or (), session.context.pot.frame or ()))
    texts = [list(one.ask("What was lit at dusk?"))[-1].text for one in (session, opened)]
    assert texts[0] == texts[1]


def test_the_frame_of_the_file_counts_not_that_of_the_machine(tmp_path: Path) -> None:
    session, path = read(config(tier=TIER)), tmp_path / "lamp.pot"
    slots = session.context.pot.slots
    assert isinstance(slots, CodedSlots)
    slots.frame.mean.add_(0.5)
    save_session(session, path)
    opened = load_session(Engine(LOADED, config(tier=TIER)), path).context
    assert torch.equal(opened.pot.frame.mean, slots.frame.mean)
    assert opened.host.tier.frame is opened.pot.frame


def test_a_reading_goes_on_from_a_file(tmp_path: Path) -> None:
    whole, path = read(config(tier=TIER)), tmp_path / "half.pot"
    session = Engine(LOADED, config(tier=TIER)).session()
    for _ in session.read(document()):
        if session.context.num_cycles == 2:
            session.stop()
    save_reading(session, path)
    opened = load_reading(Engine(LOADED, config(tier=TIER)), path)
    for _ in opened.resume():
        pass
    assert are_equal(opened.context.pot, contents(whole.context.pot))


def test_pots_of_another_type_or_with_a_broken_frame_are_refused(tmp_path: Path) -> None:
    session, path = read(config()), tmp_path / "lamp.pot"
    save_session(session, path)
    with pytest.raises(PotMismatch, match="kv_dtype"):
        load_session(Engine(LOADED, config(pot=replace(POT, kv_dtype="model"))), path)
    slots = session.context.pot.slots
    assert isinstance(slots, CodedSlots)
    slots.frame.spread[0, 0, 0] = 0.0
    save_session(session, path)
    with pytest.raises(DamagedPot, match="spread"):
        load_session(Engine(LOADED, config()), path)
