"""A text repeated inside the pot: what it scores is what the definition says, nothing of it stays, and it is kept."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ondevice.config import PotConfig, TierConfig
from ondevice.config.pot import SlotSharing
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.events import PotDistilled
from ondevice.model import run as run_module
from ondevice.prefill import repeat
from ondevice.prefill.repeat import repeat_peaks
from ondevice.session.engine import Engine
from ondevice.session.saving import load_session, save_session
from ondevice.session.session import Session
from ondevice_bench.speed.references import attention_peak_ref
from tests.builders.models import plain_config, tiny_loaded
from tests.builders.pots import check_invariants

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(70))
POT = PotConfig(capacity=400, num_kept=160, reserve=100, step_size=60, policy="repeat")


def document(text: str = TEXT) -> Document:
    return Document("text", "txt", "part", (Page(1, text),), num_pages=1, size_bytes=len(text))


def session_with(pot: PotConfig = POT, **settings: object) -> Session:
    return Engine(tiny_loaded(), plain_config(pot=pot, **settings)).session()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, Tensor]]:
    """Queries and keys of each look, layer after layer."""
    seen: list[tuple[Tensor, Tensor]] = []
    real = run_module.attention_peak

    def watched(query: Tensor, keys: Tensor, **options: object) -> Tensor:
        seen.append((query.clone(), keys.clone()))
        return real(query, keys, **options)

    monkeypatch.setattr(run_module, "attention_peak", watched)
    return seen


def test_peaks_are_those_of_every_slice_and_the_pot_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch, looks: list[tuple[Tensor, Tensor]]
) -> None:
    monkeypatch.setattr(repeat, "_SLICE", 50)
    loaded = tiny_loaded()
    decoder = Engine(loaded, plain_config()).decoder
    ids = loaded.tokenizer.encode(TEXT[:120])[0]
    pot = decoder.new_pot(len(ids) + 150)
    decoder.forward(decoder.ids(ids), pot)
    before, places = {k: v.clone() for k, v in pot.state().items()}, [t.data_ptr() for t in pot.buffers()]
    peaks = repeat_peaks(decoder, pot, ids, loaded.tokenizer)
    assert [t.data_ptr() for t in pot.buffers()] == places
    assert all(torch.equal(tensor, before[name]) for name, tensor in pot.state().items())
    num_layers, num_slices = pot.shape.num_layers, -(-len(ids) // 50)
    assert len(looks) == num_layers * num_slices
    for layer in range(num_layers):
        each = [
            attention_peak_ref(query, keys, scale=decoder.parts.scale)[..., : len(ids)]
            for query, keys in looks[layer::num_layers]
        ]
        torch.testing.assert_close(peaks[layer], torch.stack(each).amax(dim=0), atol=1e-5, rtol=1e-5)
    # All tokens are looked from, and the one before the first.
    assert sum(query.shape[2] for query, _ in looks[::num_layers]) == len(ids) + num_slices


def test_what_is_kept_keeps_its_score_and_what_is_new_gets_one() -> None:
    session = session_with()
    context, kept = session.context, []
    for event in session.read(document()):
        if isinstance(event, PotDistilled):
            kept.append((context.pot.origin[..., :160].clone(), context.pot.importance[..., :160].clone()))
    assert len(kept) > 3
    for (old, before), (new, after) in pairwise(kept):
        scores = {
            (layer, head, int(token)): float(score)
            for layer in range(old.shape[0])
            for head in range(old.shape[2])
            for token, score in zip(old[layer, 0, head], before[layer, 0, head], strict=True)
            if token >= 0
        }
        both = [
            (scores[layer, head, int(token)], float(score))
            for layer in range(new.shape[0])
            for head in range(new.shape[2])
            for token, score in zip(new[layer, 0, head], after[layer, 0, head], strict=True)
            if (layer, head, int(token)) in scores
        ]
        assert both
        assert all(was == now for was, now in both)
        fresh = after[new > old.max()]
        assert bool((fresh > 0).all())
    check_invariants(context.pot, context.tokens.num_tokens)


def test_a_chunk_may_be_repeated_in_one_slice() -> None:
    session = session_with(replace(POT, capacity=500, reserve=230))
    assert len([event for event in session.read(document()) if isinstance(event, PotDistilled)]) > 3
    check_invariants(session.context.pot, session.context.tokens.num_tokens)


@pytest.mark.parametrize("slot_shares", ["even", "by-head"])
@pytest.mark.parametrize("policy", ["repeat", "foresight", "expected", "infinipot"])
def test_a_reading_may_stop_anywhere_and_comes_to_the_same(policy: str, slot_shares: SlotSharing) -> None:
    pot = replace(POT, policy=policy, slot_shares=slot_shares)
    whole, parted = session_with(pot), session_with(pot)
    list(whole.read(document()))
    for event in parted.read(document()):
        if isinstance(event, PotDistilled):
            parted.stop()
    while parted.context.spans:
        for event in parted.resume():
            if isinstance(event, PotDistilled):
                parted.stop()
    states = whole.context.pot.state(), parted.context.pot.state()
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())
    list(whole.ask("When?"))
    assert all(torch.equal(tensor, states[0][name]) for name, tensor in whole.context.pot.state().items())


@pytest.mark.parametrize("slot_shares", ["by-head"])
@pytest.mark.parametrize("tier_bytes", [0, 1_000_000])
def test_pots_shared_out_by_need_take_as_many_slots_and_save(
    slot_shares: SlotSharing, tier_bytes: int, tmp_path: Path
) -> None:
    pot = replace(POT, policy="infinipot", slot_shares=slot_shares)
    session = session_with(pot, tier=TierConfig(budget_bytes=tier_bytes))
    even = session_with(replace(pot, slot_shares="even")).context.pot
    list(session.read(document()))
    shared = session.context.pot
    assert sum(keys.numel() for keys in shared.keys) == sum(keys.numel() for keys in even.keys)
    assert len(set(shared.shape.capacities or ())) > 1
    assert shared.num_free >= pot.reserve
    check_invariants(shared, session.context.tokens.num_tokens)
    answers = [type(event).__name__ for event in session.ask("Which lamp did keeper 3 light?")]
    assert "AnswerFinished" in answers
    save_session(session, tmp_path / "pot")
    engine = Engine(tiny_loaded(), plain_config(pot=pot, tier=TierConfig(budget_bytes=tier_bytes)))
    again = load_session(engine, tmp_path / "pot")
    states = shared.state(), again.context.pot.state()
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


def test_what_fits_into_an_even_pot_is_kept_whole() -> None:
    session = session_with(replace(POT, policy="infinipot", slot_shares="by-head"))
    text = TEXT[:150]
    assert not [event for event in session.read(document(text)) if isinstance(event, PotDistilled)]
    assert session.context.pot.shape.capacities is None
    assert min(session.context.pot.num_cached) >= session.context.tokens.num_tokens


def stream() -> Document:
    pages = iter([Page(1, TEXT[:600]), Page(2, TEXT[600:])])
    return Document("stream", "txt", "part", pages, num_pages=None, size_bytes=None)


def test_a_stream_whose_length_nobody_knows_is_shared_out_as_well() -> None:
    session = session_with(replace(POT, policy="infinipot", slot_shares="by-head"))
    assert [event for event in session.read(stream()) if isinstance(event, PotDistilled)]
    assert session.context.pot.shape.capacities is not None
    check_invariants(session.context.pot, session.context.tokens.num_tokens)


def test_a_stream_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match="A stream cannot be gone back to"):
        list(session_with().read(stream()))


def test_a_pot_without_room_for_the_prompt_is_refused() -> None:
    session = session_with(replace(POT, reserve=16))
    with pytest.raises(ConfigError, match=r"To repeat a text takes more than \d+ slots, and 16 are free"):
        list(session.read(document()))
