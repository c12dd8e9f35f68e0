"""The step that a GPU records as a graph, run without one: it does what the decoder's own layers do."""

import pytest
import torch
from ondevice.kernels.decode_attention import used_attention
from ondevice.kernels.store_token import store_token_

from ondevice.model.decoder import Decoder
from ondevice.model.token_graph import TokenGraph, suits
from ondevice_bench.speed.references import attention_ref, store_token_ref
from tests.builders.models import tiny_model

SUITED = ("llama", "mistral", "qwen2", "qwen3", "phi3")


def pair(family, capacity=64, capacities=None, kv_dtype="model"):
    """A decoder that takes every step as a graph would, one that takes none, and a filled pot of each."""
    model = tiny_model(family)
    ids = torch.randint(0, 260, (1, 60), generator=torch.Generator().manual_seed(0))
    decoders = Decoder(model, has_fast_step=False), Decoder(model, has_fast_step=False)
    decoders[0]._token_graph = TokenGraph(decoders[0].parts, decoders[0]._rotary, records=False)
    pots = [one.allocate(one.pot_shape(capacity, capacities=capacities, kv_dtype=kv_dtype)) for one in decoders]
    for decoder, pot in zip(decoders, pots, strict=True):
        decoder.forward(ids[:, :20], pot)
    return decoders, pots, ids


def assert_same(pots):
    for one, other in zip(pots[0].buffers(), pots[1].buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert pots[0].num_cached == pots[1].num_cached
    assert pots[0].next_position == pots[1].next_position


def step_both(decoders, pots, token, atol=1e-5):
    outs = [decoder.forward(token.view(1, 1), pot).hidden_states for decoder, pot in zip(decoders, pots, strict=True)]
    torch.testing.assert_close(outs[0], outs[1], rtol=1e-4, atol=atol)
    return outs[0]


@pytest.mark.parametrize("family", SUITED)
def test_it_does_what_the_layers_do(family):
    decoders, pots, ids = pair(family)
    assert suits(decoders[0].parts, decoders[0]._rotary)
    pointers = [buffer.data_ptr() for buffer in pots[0].buffers()]
    for token in ids[0, 20:40]:
        step_both(decoders, pots, token)
    assert_same(pots)
    assert [buffer.data_ptr() for buffer in pots[0].buffers()] == pointers


@pytest.mark.parametrize("kv_dtype", ["int8", "k8v4", "int4"])
@pytest.mark.parametrize("capacities", [None, (64, 40, 30, 50, 64, 33)])
def test_it_does_so_where_keys_and_values_are_quantised(kv_dtype, capacities):
    """What lies between two steps may be rounded to either of them."""
    decoders, pots, ids = pair("qwen3", capacities=capacities, kv_dtype=kv_dtype)
    for number, token in enumerate(ids[0, 20:28]):
        for pot in pots:
            pot.victims = slice(4, 5) if number == 7 else None
        step_both(decoders, pots, token, atol=2e-3)
    for one, other in zip(pots[0].provenance(), pots[1].provenance(), strict=True):
        assert torch.equal(one, other)
    for layer, used in enumerate(pots[0].num_cached):
        for part in ("keys_at", "values_at"):
            one, other = (getattr(pot.slots, part)(layer, slice(0, used)) for pot in pots)
            assert (one - other).norm() < 1e-2 * other.norm()


def test_what_it_gives_back_is_not_overwritten_by_the_next_token():
    decoders, pots, ids = pair("llama")
    first = step_both(decoders, pots, ids[0, 20])
    kept = first.clone()
    step_both(decoders, pots, ids[0, 21])
    assert torch.equal(first, kept)


def test_it_notices_a_rewind_and_another_pot():
    decoders, pots, ids = pair("llama")
    with pots[0].savepoint(), pots[1].savepoint():
        for token in ids[0, 20:24]:
            step_both(decoders, pots, token)
    others = [decoder.new_pot(32) for decoder in decoders]
    for token in ids[0, 30:34]:
        step_both(decoders, pots, token)
        step_both(decoders, others, token)
    assert_same(pots)
    assert_same(others)


def test_a_token_takes_the_slot_of_its_victim():
    decoders, pots, ids = pair("llama", capacity=20)
    for number, token in enumerate(ids[0, 20:26]):
        for pot in pots:
            pot.victims = slice(4 + number, 5 + number)
        step_both(decoders, pots, token)
    assert_same(pots)


def test_layers_may_hold_different_numbers_of_tokens():
    decoders, pots, ids = pair("llama", capacities=(64, 40, 30))
    for pot in pots:
        index = torch.arange(12).expand(1, 1, 2, 12)
        pot.compact_(slice(1, 2), index)
    for token in ids[0, 20:26]:
        step_both(decoders, pots, token)
    assert pots[0].num_cached == [26, 18, 26]
    assert_same(pots)


@pytest.mark.parametrize("family", SUITED)
def test_heads_may_hold_different_numbers_of_tokens(family):
    decoders, pots, ids = pair(family, capacities=(64, 40, 30, 50, 64, 33))
    for pot in pots:
        assert pot.shape.pot_layers_per_layer == 2
        pot.compact_(slice(3, 4), torch.arange(12).expand(1, 1, 1, 12))
    for token in ids[0, 20:26]:
        step_both(decoders, pots, token)
    assert pots[0].num_cached == [26, 26, 26, 18, 26, 26]
    assert_same(pots)


def test_positions_may_outgrow_the_angles():
    decoders, pots, ids = pair("llama", capacity=20)
    for pot in pots:
        pot.next_position = [120] * 3
    for number, token in enumerate(ids[0, 20:34]):
        for pot in pots:
            pot.victims = slice(4 + number % 8, 5 + number % 8)
        step_both(decoders, pots, token)
    assert_same(pots)


def test_a_pot_that_is_gone_leaves_nothing():
    decoders, pots, ids = pair("llama")
    step_both(decoders, pots, ids[0, 20])
    graph = decoders[0]._token_graph
    assert len(graph._recorded) == 1
    pots.clear()
    assert len(graph._recorded) == 0


def test_soft_capped_models_are_left_out():
    decoder = Decoder(tiny_model("gemma2"))
    assert not suits(decoder.parts, decoder._rotary)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim"), [(4, 4, 16), (9, 3, 64), (8, 1, 80)])
def test_a_stored_token_is_that_of_the_reference(num_heads, num_kv_heads, head_dim, dtype):
    generator = torch.Generator().manual_seed(head_dim)
    query_keys = torch.randn(1, num_heads + num_kv_heads, 1, head_dim, generator=generator).to(dtype)
    new_values = torch.randn(1, num_kv_heads, 1, head_dim, generator=generator).to(dtype)
    cos, sin = torch.randn(2, 50, head_dim, generator=generator).to(dtype)
    buffers = torch.randn(3, 1, num_kv_heads, 12, head_dim, generator=generator).to(dtype).unbind()
    where = torch.tensor([7], dtype=torch.int32), torch.tensor([33], dtype=torch.int32)
    expected = store_token_ref(query_keys, new_values, cos, sin, *where, *buffers)
    query = store_token_(query_keys, new_values, cos, sin, *where, buffers)
    tolerance = 1e-6 if dtype == torch.float32 else 3e-2
    for one, other in zip((query, *buffers), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("num_used", [1, 17, 64, 100])
def test_slots_that_are_not_used_are_not_read(num_used):
    generator = torch.Generator().manual_seed(num_used)
    query = torch.randn(1, 6, 1, 16, generator=generator)
    keys, values = torch.randn(2, 1, 2, 100, 16, generator=generator)
    out = used_attention(query, keys, values, torch.tensor([num_used], dtype=torch.int32), scale=0.3)
    expected = attention_ref(query, keys[:, :, :num_used], values[:, :, :num_used], scale=0.3)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6)
