"""The EQUIP benchmark: every baseline is what its paper defines, and both sides of a comparison compute the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from ondevice.kernels import attention
from ondevice.kernels.rope import rotate_ref
from torch import Tensor

from ondevice.bench.equip_baselines import GatherAppendCache, ShiftAppendCache
from ondevice.bench.equip_compression import Choice, cut_by_copies, cut_in_place_, lagkv, snapkv
from ondevice.bench.equip_update import (
    EQUIP,
    H2O,
    QUICK_CUTS,
    STREAMING,
    WITH_ROTATED,
    UpdateCase,
    cut_contenders,
    run_cuts,
    run_updates,
    update_contenders,
)
from ondevice.bench.equip_update import summary_of as update_summary
from ondevice.bench.turns import speedup_row, take_turns
from ondevice.model._transformers import transformers
from ondevice.model.decoder import Decoder
from ondevice.model.random_model import SHAPES, random_model
from tests.tiny import tiny_loaded

LAYERS, BATCH, HEADS, DIM = 2, 2, 3, 16
CAPACITY, SINKS = 12, 2


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny matrices are slower on several threads, and the machine may have other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def angles(positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines (n, head_dim) of positions, without a sign."""
    angle = positions[:, None] * 100.0 ** -torch.linspace(0, 1, DIM // 2)
    return torch.cat((angle.cos(),) * 2, -1), torch.cat((angle.sin(),) * 2, -1)


def rotated(keys: Tensor, first: int) -> Tensor:
    """Keys (batch, heads, n, head_dim) after RoPE at positions first..first+n-1."""
    return rotate_ref(keys, *angles(torch.arange(first, first + keys.shape[2])))


def tokens(num_tokens: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Keys before RoPE and values of every layer, each (layers, batch, heads, num_tokens, head_dim)."""
    return torch.randn(2, LAYERS, BATCH, HEADS, num_tokens, DIM, generator=torch.Generator().manual_seed(seed)).unbind()


# -- baselines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("caches_halves", [False, True])
@pytest.mark.parametrize("sizes", [[1] * 30, [5, 4, 3, 1, 1, 3, 1, 2, 7, 1]])
def test_shift_and_append_holds_sinks_and_recent_tokens_at_cache_positions(
    caches_halves: bool, sizes: list[int]
) -> None:
    keys, values = tokens(sum(sizes))
    cache = ShiftAppendCache(LAYERS, CAPACITY, SINKS, *angles(torch.arange(CAPACITY)), caches_halves=caches_halves)
    num_read = 0
    for size in sizes:
        new = slice(num_read, num_read + size)
        cache.make_room(size)
        num_read += size
        held = [t for t in range(num_read) if t < SINKS or t >= num_read - (CAPACITY - SINKS)]
        assert cache.next_position == [len(held) - size] * LAYERS
        for layer in range(LAYERS):
            unused = torch.full_like(keys[layer][:, :, new], torch.nan)
            seen = cache.append(layer, keys[layer][:, :, new], unused, values[layer][:, :, new])
            torch.testing.assert_close(seen[0], rotated(keys[layer][:, :, held], 0))
            torch.testing.assert_close(seen[1], values[layer][:, :, held])
        cache.commit(size, -2)
        assert cache.num_cached == [len(held)] * LAYERS
    num_tensors = 3 if caches_halves else 2
    assert cache.nbytes == num_tensors * LAYERS * BATCH * HEADS * CAPACITY * DIM * 4


@pytest.mark.parametrize("sizes", [[1] * 30, [5, 4, 3, 1, 1, 3, 1, 2, 4, 1]])
def test_gather_and_append_holds_what_each_head_has_attended_to_most(sizes: list[int]) -> None:
    num_recent = 4
    keys, values = tokens(sum(sizes))
    cache = GatherAppendCache(LAYERS, CAPACITY, SINKS, num_recent)
    heads = [(layer, b, h) for layer in range(LAYERS) for b in range(BATCH) for h in range(HEADS)]
    held: dict[tuple[int, int, int], list[int]] = {head: [] for head in heads}
    received: dict[tuple[int, int, int], dict[int, float]] = {head: {} for head in heads}
    generator, num_read = torch.Generator().manual_seed(1), 0
    for size in sizes:
        new = list(range(num_read, num_read + size))
        if num_read and len(held[heads[0]]) + size > CAPACITY:
            for head in heads:
                ranked = sorted(held[head][SINKS:-num_recent], key=lambda t, head=head: -received[head][t])
                kept = {*held[head][:SINKS], *held[head][-num_recent:]}
                kept |= set(ranked[: CAPACITY - size - len(kept)])
                held[head] = sorted(kept)
        cache.make_room(size)
        assert cache.next_position == [num_read] * LAYERS
        mass = []
        for layer in range(LAYERS):
            args = keys[layer][:, :, new], rotated(keys[layer][:, :, new], num_read), values[layer][:, :, new]
            seen = cache.append(layer, *args)
            mass.append(torch.rand(seen[0].shape[:3], generator=generator))
            for b in range(BATCH):
                for h in range(HEADS):
                    head = layer, b, h
                    held[head] += new
                    expected = rotated(keys[layer], 0)[b, h, held[head]]
                    torch.testing.assert_close(seen[0][b, h], expected)
                    torch.testing.assert_close(seen[1][b, h], values[layer][b, h, held[head]])
                    for t, share in zip(held[head], mass[layer][b, h].tolist(), strict=True):
                        received[head][t] = received[head].get(t, 0.0) + share
        cache.commit(size, -2)
        cache.observe(mass)
        num_read += size
    assert len({tuple(kept) for kept in held.values()}) > 1  # heads do differ


@pytest.mark.parametrize("make", [
    lambda decoder: ShiftAppendCache(3, 40, SINKS, *plain_angles(decoder, 40)),
    lambda decoder: GatherAppendCache(3, 40, SINKS, 8),
])  # fmt: skip
def test_until_they_are_full_the_baselines_are_plain_caches(make) -> None:
    decoder = Decoder(tiny_loaded().model)
    ids = torch.randint(0, 256, (2, 40), generator=torch.Generator().manual_seed(2))
    expected = decoder.forward(ids, decoder.new_pot(40, batch=2)).hidden_states
    cache, parts = make(decoder), []
    for part in ids.split((20, 1, 1, 18), dim=1):
        cache.make_room(part.shape[1])
        out = decoder.forward(part, cache, num_observed=1)
        cache.observe(out.mass)
        parts.append(out.hidden_states)
    torch.testing.assert_close(torch.cat(parts, dim=1), expected, atol=1e-4, rtol=1e-4)


def plain_angles(decoder: Decoder, num_positions: int) -> tuple[Tensor, Tensor]:
    cos, sin = decoder.parts.rotary(torch.empty(0), torch.arange(num_positions)[None])
    return cos[0], sin[0]


# -- cutting a long cache down -----------------------------------------------------------------------


def test_snapkv_keeps_its_window_and_what_the_window_looks_at() -> None:
    generator = torch.Generator().manual_seed(0)
    keys = 0.1 * torch.randn(1, 2, 100, DIM, generator=generator)
    query = torch.randn(1, 4, 8, DIM, generator=generator).abs()
    keys[0, 0, 30] = keys[0, 1, 60] = 5.0  # what every query of the window looks at
    slots, num_last = snapkv(query, keys, 24, scale=1.0, num_observed=8, kernel_size=5)
    assert slots.shape == (1, 2, 24)
    assert num_last == 8
    for head, looked_at in ((0, 30), (1, 60)):
        kept = slots[0, head].tolist()
        assert kept == sorted(set(kept))
        assert kept[-8:] == list(range(92, 100))
        assert set(range(looked_at - 2, looked_at + 3)) <= set(kept)  # its neighbours too


def test_lagkv_keeps_what_stands_out_from_the_next_partition() -> None:
    generator = torch.Generator().manual_seed(0)
    keys, values = torch.rand(2, 1, 2, 64, DIM, generator=generator).unbind()
    keys[0, 0, 10, ::2] = 9.0
    values[0, 1, 25, ::2] = 9.0
    slots, num_last = lagkv(keys, values, 34, num_sinks=4, lag=12)  # 4 partitions are cut to 4 tokens, the fifth stays
    assert num_last == 12
    assert slots.shape == (1, 2, 4 + 4 * 4 + 12)
    for head, outlier in ((0, 10), (1, 25)):
        kept = slots[0, head].tolist()
        assert kept == sorted(set(kept))
        assert kept[:4] == [0, 1, 2, 3]
        assert kept[-12:] == list(range(52, 64))
        assert outlier in kept


@pytest.mark.parametrize("seed", [0, 1])
def test_cutting_in_place_keeps_the_same_tokens_in_another_order(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(2, 2, 3, 50, DIM, generator=generator).unbind()
    chosen = torch.rand(2, 3, 40, generator=generator).topk(13, dim=-1).indices.sort(dim=-1).values
    choice = Choice(torch.cat((chosen, torch.arange(40, 50).expand(2, 3, -1)), dim=-1), num_last=10)
    copied = cut_by_copies(keys, values, choice)
    torch.testing.assert_close(copied[0], keys.gather(2, choice.slots[..., None].expand(-1, -1, -1, DIM)))
    query = torch.randn(2, 6, 1, DIM, generator=generator)
    expected = attention(query, *copied, scale=0.25)
    address = keys.data_ptr()
    in_place = cut_in_place_(keys, values, choice)
    assert in_place[0].data_ptr() == address
    assert in_place[0].shape == copied[0].shape
    torch.testing.assert_close(attention(query, *in_place, scale=0.25), expected)


# -- the update alone --------------------------------------------------------------------------------


def test_an_update_in_place_holds_the_same_tokens_as_one_by_copies() -> None:
    case = UpdateCase(batch=2, heads=3, head_dim=DIM, cache=40, evicted=6)
    query = torch.randn(2, 3, 1, DIM, generator=torch.Generator().manual_seed(5))
    for method in (STREAMING, H2O):
        contenders = update_contenders(case, torch.device("cpu"))
        expected = attention(query, *contenders[method](), scale=0.25)  # leaves the buffers as they are
        updated = contenders[EQUIP + method]()
        assert updated[0].shape == (2, 3, 40, DIM)
        torch.testing.assert_close(attention(query, *updated, scale=0.25), expected)
    assert len(update_contenders(case, torch.device("cpu"))[WITH_ROTATED]()) == 3


def test_both_ways_to_cut_give_the_same_attention() -> None:
    for method, contenders in cut_contenders(QUICK_CUTS[0], torch.device("cpu")).items():
        torch.testing.assert_close(contenders[EQUIP + method](), contenders[method]())


def test_updates_give_rows_and_a_mean_and_say_what_they_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    case, device = UpdateCase(1, 2, DIM, 40, 6), torch.device("cpu")
    monkeypatch.setattr("ondevice.bench.equip_update.free_memory_bytes", lambda device: 10 * case.nbytes)
    rows, left_out = run_updates([case, replace(case, batch=8)], device, 0.0)
    assert left_out == "KV update at batch 8, 2 heads of 16 left out: it takes 0.0 GB, and 0.0 GB are free."
    assert {row.n for row in rows} == {5}
    assert rows[0].case == {"batch": 1, "heads": 2, "head_dim": DIM, "cache": 40, "evicted": 6}
    assert set(update_summary(rows)) == {"kv_update_vs_shift_geomean", "kv_update_vs_gather_geomean"}
    assert all(value > 0 for value in update_summary(rows).values())
    cuts = [row for rows in run_cuts(QUICK_CUTS, device, 0.0) for row in rows]
    assert {row.contender for row in cuts} == {"SnapKV", "EQUIP SnapKV", "LagKV", "EQUIP LagKV"}


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []
    contenders = {name: lambda name=name: calls.append(name) for name in "ab"}
    seconds = take_turns(contenders, torch.device("cpu"), min_rounds=3, max_rounds=9, budget_seconds=0.0)
    assert calls == ["a", "b"] * 4
    assert [len(values) for values in seconds.values()] == [3, 3]
    assert speedup_row({"a": [1.0, 4.0, 9.0], "b": [1.0, 2.0, 3.0]}, {}, "m", "b", "a").p50 == 2.0


# -- random models -----------------------------------------------------------------------------------


def test_a_random_model_is_a_model_like_any_other() -> None:
    loaded = random_model("llama-2-like-small")
    ids = torch.as_tensor(loaded.tokenizer.encode("Bread and ß.")[0], dtype=torch.int64)[None]
    assert loaded.tokenizer.decode(ids[0].tolist()) == "Bread and ß."
    expected = loaded.model(ids).logits
    decoder = Decoder(loaded.model)
    logits = decoder.logits(decoder.forward(ids, decoder.new_pot(20)).hidden_states)
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    assert 0.1 < float(logits.std()) < 10.0
    assert torch.equal(random_model("llama-2-like-small").model(ids).logits, expected)
    assert not torch.equal(random_model("llama-2-like-small", seed=1).model(ids).logits, expected)


@pytest.mark.parametrize(("name", "num_parameters"), [("llama-2-like", 826_345_472), ("llama-3.1-8b", 8_030_261_248)])
def test_random_shapes_have_the_size_of_what_they_stand_for(name: str, num_parameters: int) -> None:
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(SHAPES[name].config())
    assert sum(parameter.numel() for parameter in model.parameters()) == num_parameters
