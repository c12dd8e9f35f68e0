"""Models whose layers keep a state of their own: transformers' logits, and passes that leave no trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ondevice.model.decoder import Decoder
from ondevice.model.passes import PassStopped
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.restoring import restore_
from ondevice.pot.saved_state import Extent
from tests.builders.models import STATEFUL, tiny_model


def _ids(num_tokens: int, batch: int = 1) -> Tensor:
    return torch.randint(0, 256, (batch, num_tokens), generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module", params=STATEFUL)
def model(request: pytest.FixtureRequest) -> Any:
    return tiny_model(request.param)


def _buffers(pot: MemoryPot) -> list[Tensor]:
    return [buffer.clone() for buffer in pot.buffers()]


def _is_as(pot: MemoryPot, before: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(pot.buffers(), before, strict=True))


@pytest.mark.parametrize("size", [150, 37, 1])
def test_logits_equal_transformers_for_any_size_of_the_passes(model: Any, size: int) -> None:
    ids, decoder, cache = _ids(150, batch=2), Decoder(model), None
    pot = decoder.new_pot(200, batch=2)
    for part in ids.split(size, dim=1):
        expected = model(part, past_key_values=cache, use_cache=True)
        cache = expected.past_key_values
        logits = decoder.head.logits(decoder.forward(part, pot).hidden_states)
        assert (logits - expected.logits).abs().max() <= 1e-4
    assert pot.nbytes == pot.shape.nbytes(torch.float32) > pot.shape.state_bytes(torch.float32) > 0


def test_transformers_own_delta_rule_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = tiny_model("qwen3_5_text"), _ids(70)
    decoder = Decoder(model)
    ours = decoder.forward(ids, decoder.new_pot(100)).hidden_states
    monkeypatch.setenv("KERNELS_IMPL", "torch")
    theirs = decoder.forward(ids, decoder.new_pot(100)).hidden_states
    assert 0 < (ours - theirs).abs().max() <= 1e-4


def test_only_full_attention_has_slots(model: Any) -> None:
    decoder = Decoder(model)
    assert (len(decoder.parts.layers), len(decoder.parts.all_layers)) == (2, model.config.num_hidden_layers)
    assert decoder.new_pot(100).shape.num_layers == 2
    assert decoder.slot_bytes() * 100 == decoder.new_pot(100).nbytes - decoder.new_pot(100).shape.state_bytes(
        torch.float32
    )


def test_transient_tokens_leave_no_trace(model: Any) -> None:
    decoder = Decoder(model)
    with_catalyst, plain = decoder.new_pot(64), decoder.new_pot(64)
    for part in _ids(40).split(20, dim=1):
        seen = decoder.forward(part, with_catalyst, num_transient=7, num_observed=7)
        alone = decoder.forward(part[:, :13], plain)
        torch.testing.assert_close(seen.hidden_states[:, :13], alone.hidden_states, atol=1e-4, rtol=1e-4)
    for a, b in zip(with_catalyst.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    assert [mass.shape[-1] for mass in seen.mass] == [26, 26]


def test_slots_are_observed_by_every_layer_that_attends_to_them() -> None:
    model, ids = tiny_model("gemma4_text"), _ids(40)
    decoder = Decoder(model)
    found = decoder.forward(ids, decoder.new_pot(64), num_observed=8).mass
    theirs = [
        paid[:, :, -8:].unflatten(1, (2, 2)).sum((2, 3)) for paid in model(ids, output_attentions=True).attentions
    ]
    torch.testing.assert_close(found[0], theirs[1])
    torch.testing.assert_close(found[1], theirs[3] + theirs[5])
    peaks = decoder.forward(ids, decoder.new_pot(64), num_observed=8, observes_peak=True).mass
    attentions = model(ids, output_attentions=True).attentions
    most = [attentions[layer][:, :, -8:].unflatten(1, (2, 2)).amax((2, 3)) for layer in (3, 5)]
    torch.testing.assert_close(peaks[1], torch.maximum(*most))


def test_a_stopped_pass_and_a_look_leave_everything_as_it_was(model: Any) -> None:
    decoder = Decoder(model)
    pot = decoder.new_pot(64)
    decoder.forward(_ids(20), pot)
    before = _buffers(pot)
    polls = iter([False, False, False, True])
    with pytest.raises(PassStopped):
        decoder.forward(_ids(20), pot, is_stopped=lambda: next(polls))
    assert _is_as(pot, before)
    decoder.forward(_ids(5), other := decoder.new_pot(64))
    with pot.savepoint():
        decoder.forward(_ids(20), pot)
        assert not _is_as(pot, before)
    assert _is_as(pot, before)
    assert pot.native.num_seen == 20
    assert other.native.num_seen == 5


def test_a_state_goes_on_as_saved(model: Any) -> None:
    decoder = Decoder(model)
    pot, other = decoder.new_pot(64), decoder.new_pot(64)
    decoder.forward(_ids(30), pot, origin=torch.arange(30, dtype=torch.int32))
    decoder.forward(_ids(11), other)
    restore_(other, pot.state(), Extent(30, 30))
    assert _is_as(other, _buffers(pot))
    one, two = (decoder.forward(_ids(9), each).hidden_states for each in (pot, other))
    assert torch.equal(one, two)


def test_windows_hold_the_last_tokens_however_long_the_text() -> None:
    """A pass longer than the queries that are masked at once, and a window that holds fewer tokens than it sees."""
    model = tiny_model("gemma3_text", max_positions=2048, sliding_window=40)
    ids, decoder = _ids(1300), Decoder(model)
    pot = decoder.new_pot(1400)
    logits = decoder.head.logits(decoder.forward(ids, pot).hidden_states)
    assert (logits - model(ids).logits).abs().max() <= 1e-4
    assert [buffer.shape for buffer in pot.native.of(0)] == [(1, 2, 40, 16)] * 2
    assert [buffer.shape for buffer in decoder.new_pot(30).native.of(0)] == [(1, 2, 30, 16)] * 2
