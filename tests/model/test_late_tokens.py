"""Pruned tokens: their hidden states outside the pot, and reading them on from there."""

from dataclasses import replace

import pytest
import torch

from ondevice.config import PotConfig, SlimConfig, TierConfig
from ondevice.documents import Document, Page
from ondevice.events import TokensOffloaded, TokensRead, TokensRecalled
from ondevice.model.decoder import Decoder
from ondevice.model.late_tokens import read_on
from ondevice.pot.host.hidden_tier import DroppedStates, HiddenTier
from ondevice.pot.host.host_memory import HostMemory
from ondevice.pot.saved_state import Extent
from ondevice.session.engine import Engine
from ondevice.session.saving import load_session, save_session
from tests.builders.models import FAMILIES, plain_config, plain_generation, tiny_loaded, tiny_model
from tests.builders.pots import check_invariants

TEXT = "".join(f"The lamp {i} is lit at dusk by keeper {i * 7}. " for i in range(60))
TIER = TierConfig(budget_bytes=10**7, max_tokens=64)
POT = PotConfig(capacity=400, num_kept=96, reserve=160, step_size=120)
SLIM = SlimConfig("1:50%,2:25%", block_size=8, unit_size=8)


class KeepsTheFirst:
    """Stands for `Pruning`: after each layer only the first tokens go on."""

    def __init__(self, *counts):
        self._counts = counts

    def survivors(self, layer, query, keys):
        return torch.arange(self._counts[layer]) if layer < len(self._counts) else None


@pytest.mark.parametrize("key_rotation", ["stored", "half-cache"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_read_on_is_as_if_it_had_never_been_dropped(family, key_rotation):
    """The end of a document dropped in two steps: what stayed has not missed it, so that nothing differs."""
    decoder = Decoder(tiny_model(family))
    ids = torch.randint(0, 256, (1, 40), generator=torch.Generator().manual_seed(1))
    origin, num_layers = torch.arange(40, dtype=torch.int32), len(decoder.parts.layers)
    whole, pot = (decoder.new_pot(64, key_rotation=key_rotation) for _ in range(2))
    expected = decoder.forward(ids, whole, origin=origin).hidden_states
    dropped = decoder.forward(ids, pot, origin=origin, pruning=KeepsTheFirst(28, 20), keeps_dropped=True).dropped
    assert [(one.layer, one.tokens.tolist()) for one in dropped] == [(0, [*range(28, 40)]), (1, [*range(20, 28)])]
    read_on(decoder, dropped, pot)
    assert pot.num_cached == pot.next_position == [40] * num_layers
    check_invariants(pot, 40)
    for layer in range(num_layers):
        order = pot.origin[layer, 0, 0, :40].argsort()
        for mine, theirs in ((pot.keys, whole.keys), (pot.values, whole.values)):
            torch.testing.assert_close(mine[layer][:, :, order], theirs[layer][:, :, :40], atol=1e-4, rtol=1e-4)
    more = torch.randint(0, 256, (1, 3), generator=torch.Generator().manual_seed(2))
    ours, plain = (decoder.forward(more, one).hidden_states for one in (pot, whole))
    torch.testing.assert_close(ours, plain, atol=1e-4, rtol=1e-4)
    assert expected.shape[1] == 40


def test_a_ring_of_hidden_states_forgets_the_oldest_and_finds_by_layer():
    tier = HiddenTier(4, 10 * HiddenTier.token_bytes(4))
    assert (tier.capacity, tier.nbytes) == (8, 0), "whole units of 8, and memory for none of them yet"
    for first, count, layer in ((0, 4, 1), (4, 4, 2), (8, 6, 1), (30, 1, 2)):
        tokens = torch.arange(first, first + count)
        tier.offload(DroppedStates(layer, tokens, tokens[:, None].expand(-1, 4).float()))
    assert sorted(tier.origin.tolist()) == [*range(7, 14), 30]
    found = tier.find(torch.tensor([30, 3, 9, 12, 6, 77]), torch.float32)
    assert [(one.layer, one.tokens.tolist()) for one in found] == [(1, [9, 12]), (2, [30])]
    assert found[0].states[:, 0].tolist() == [9.0, 12.0]
    other = HiddenTier(4, 10 * HiddenTier.token_bytes(4))
    depths = torch.zeros(31, dtype=torch.int16)
    for one in tier.find(torch.arange(31), torch.float32):
        depths[one.tokens.long()] = one.layer + 1
    other.restore(tier.state(), Extent(31, 31, depths), 3)
    assert [one.tokens.tolist() for one in other.find(torch.arange(40), torch.float32)] == [
        one.tokens.tolist() for one in tier.find(torch.arange(40), torch.float32)
    ]
    for one in (tier, other):  # both go on alike
        one.offload(DroppedStates(1, torch.arange(50, 53), torch.ones(3, 4)))
    assert sorted(other.origin.tolist()) == sorted(tier.origin.tolist()) == [*range(10, 14), 30, 50, 51, 52]
    many = torch.arange(100, 125)
    tier.offload(DroppedStates(1, many, many[:, None].expand(-1, 4).float()))
    assert sorted(tier.origin.tolist()) == [*range(117, 125)]


def _engine(tier=TIER, slim=SLIM):
    return Engine(tiny_loaded(), plain_config(pot=POT, tier=tier, slim=slim))


def _document():
    return Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))


def _read(engine):
    session = engine.session()
    return session, list(session.read(_document()))


def test_pruned_tokens_come_back_into_every_layer_and_leave_no_trace(tmp_path):
    session, _ = _read(_engine())
    before = {name: tensor.clone() for name, tensor in session.context.pot.state().items()}
    held, ask = [], session.ask("Who is keeper 77?", plain_generation(max_new_tokens=6, chat=False))
    for event in ask:
        if isinstance(event, TokensRecalled):
            held = [set(origin.tolist()) for origin in session.context.pot.origin[:, 0].flatten(0, 1)]
            revived = event
    assert revived.num_read_on > 0
    wanted = {token for start, stop in revived.tokens.tolist() for token in range(start, stop)}
    assert all(len(wanted & tokens) >= 0.9 * len(wanted) for tokens in held)
    check_invariants(session.context.pot, session.context.tokens.num_tokens)
    for name, tensor in session.context.pot.state().items():
        assert torch.equal(tensor, before[name]), name
    save_session(session, tmp_path / "a.pot")
    again = load_session(_engine(), tmp_path / "a.pot")
    events = [event for event in again.ask("Who is keeper 77?") if isinstance(event, TokensRecalled)]
    assert (events[0].num_read_on, events[0].tokens.tolist()) == (revived.num_read_on, revived.tokens.tolist())


@pytest.mark.parametrize("slim", [SLIM, SlimConfig()])
def test_copies_are_made_beside_the_reading_and_accounted_for(slim, monkeypatch):
    session, events = _read(_engine(slim=slim))
    reported = [event for event in events if isinstance(event, TokensOffloaded)]
    # What came after the last distillation is in the pot, and needs no copy.
    assert sum(event.num_tokens for event in reported) == session.context.last_distilled.num_read
    outside = session.context.host
    hidden_bytes = outside.hidden.num_bytes_moved if slim is SLIM else 0
    assert sum(event.num_bytes for event in reported) == outside.tier.num_bytes_moved + hidden_bytes
    assert (hidden_bytes > 0) == (slim is SLIM)
    assert all(0 <= event.waited_seconds <= event.seconds for event in reported)
    # Copies made at once give the same tier.
    plain = HostMemory.begin

    def at_once(self, *arguments, **options):
        plain(self, *arguments, **options)
        for copy in self._pending:
            copy.result()

    monkeypatch.setattr(HostMemory, "begin", at_once)
    other, _ = _read(_engine(slim=slim))
    for name, tensor in session.context.host.state().items():
        assert torch.equal(tensor, other.context.host.state()[name]), name


def test_a_question_in_the_middle_of_the_reading_waits_for_the_copies():
    session = Engine(tiny_loaded(), plain_config(pot=replace(POT, step_size=40), tier=TIER, slim=SLIM)).session()
    for event in session.read(_document()):
        if session.context.num_cycles == 2 and isinstance(event, TokensRead) and session.context.host._pending:
            break
    assert session.context.host._pending
    answers = list(session.ask("Who is keeper 7?", plain_generation(max_new_tokens=4, chat=False)))
    assert isinstance(answers[0], TokensOffloaded)
    assert not session.context.host._pending


def test_a_failed_copy_is_not_swallowed(monkeypatch):
    session = _engine().session()
    monkeypatch.setattr(session.context.host.tier, "take_over", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(session.read(_document()))
