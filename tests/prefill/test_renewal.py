"""Novelty of what is compressed, given what is compressed before it: the second case of equation 4 of InfiniPot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ondevice.config import PotConfig, SlotSharing
from ondevice.documents import Document, Page
from ondevice.errors import PotError
from ondevice.events import PotDistilled
from ondevice.pot.shape import UNKNOWN
from ondevice.prefill import renewal
from ondevice.prefill.renewal import compressed, renew_novelty
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from tests.builders.models import plain_config, tiny_loaded
from tests.builders.pots import check_invariants

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(70))
POT = PotConfig(capacity=400, num_kept=160, reserve=100, step_size=60, renews_novelty=True)


def document() -> Document:
    return Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))


def session_with(pot: PotConfig = POT, family: str = "llama", **settings: object) -> Session:
    return Engine(tiny_loaded(family), plain_config(pot=pot, **settings)).session()


@pytest.mark.parametrize("slot_shares", ["even", "by-head"])
@pytest.mark.parametrize("chat_template", [True, False])
def test_it_is_the_cross_entropy_of_the_tokens_that_are_left(slot_shares: SlotSharing, chat_template: bool) -> None:
    pot = replace(POT, slot_shares=slot_shares)
    engine = Engine(tiny_loaded() if chat_template else tiny_loaded(chat_template=None), plain_config(pot=pot))
    session = engine.session()
    for event in session.read(document()):
        if isinstance(event, PotDistilled) and event.cycle == 3:
            break
    context, decoder = session.context, session.context.decoder
    before = context.pot.state()
    assert bool((before["novelty"] != UNKNOWN).any())
    renew_novelty(context)
    after = context.pot.state()
    assert [name for name in before if not torch.equal(before[name], after[name])] == ["novelty"]

    tokens = compressed(context.pot, context.num_positions)
    assert len(tokens) == 160
    held = context.retention.dense()
    assert held[tokens].min() >= np.delete(held, tokens).max(), "those that most heads hold"
    ids = [*context.chat.prefix, *context.tokens.ids(0, context.num_positions)[tokens].tolist()]
    hidden = decoder.forward(decoder.ids(ids), decoder.new_pot(len(ids))).hidden_states
    loss = decoder.head.token_loss(hidden[:, :-1], decoder.ids(ids)[:, 1:])[0]
    expected = dict(zip(tokens[::-1].tolist(), loss.tolist()[::-1], strict=False))
    assert len(expected) == len(tokens) - (not context.chat.prefix)
    origin, old, new = after["origin"], before["novelty"], after["novelty"]
    for token, was, now in zip(origin.flatten().tolist(), old.flatten().tolist(), new.flatten().tolist(), strict=True):
        assert now == pytest.approx(expected.get(token, was), abs=1e-4)
    others = new[(origin >= 0) & ~torch.isin(origin, torch.from_numpy(tokens))]
    assert bool((others[others != UNKNOWN] >= 0).all())
    assert others.numel()


def test_it_is_done_from_the_second_distillation_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = renewal.compressed
    monkeypatch.setattr(renewal, "compressed", lambda pot, num: (calls.append(num), real(pot, num))[1])
    session = session_with()
    distilled = [event for event in session.read(document()) if isinstance(event, PotDistilled)]
    assert calls == [event.num_read for event in distilled[1:]]
    assert len(calls) > 2
    check_invariants(session.context.pot, session.context.tokens.num_tokens)
    plain = session_with(replace(POT, renews_novelty=False))
    list(plain.read(document()))
    assert plain.context.retention.dense().tolist() != session.context.retention.dense().tolist()
    calls.clear()
    list(session_with(replace(POT, novelty=0.0)).read(document()))  # nothing asks for it
    assert not calls


def test_windows_cut_it_into_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    real = renewal._Nothing
    monkeypatch.setattr(renewal, "_Nothing", lambda num_layers: (sizes.append(num_layers), real(num_layers))[1])
    session = session_with(family="gemma2")
    windows = {layer.sliding_window for layer in session.context.decoder.parts.layers} - {None}
    distilled = [event for event in session.read(document()) if isinstance(event, PotDistilled)]
    check_invariants(session.context.pot, session.context.tokens.num_tokens)
    pieces = -(-(160 + len(session.context.chat.prefix) - 1) // (min(windows) - 1))
    assert pieces > 4
    assert len(sizes) == pieces * (len(distilled) - 1)


def test_a_stream_that_is_forgotten_cannot_be_read_again() -> None:
    pages = iter([Page(1, TEXT)])
    with pytest.raises(PotError, match="a stream is forgotten"):
        list(session_with().read(Document("in", "txt", "part", pages, num_pages=None, size_bytes=None)))
