"""Paged storage updated in place: equal to a contiguous pot under both policies, its blocks, its invariants."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ondevice.kernels.attention import attention, attention_mass
from ondevice.kernels.pot_update import replace_slots_
from ondevice.kernels.rope import rotate, signed_sine

from ondevice.errors import PotError
from ondevice.pot.shape import FREE, PROMPT
from ondevice_bench.paged.paged_attention import paged_attention, paged_attention_mass
from ondevice_bench.paged.paged_policies import HeavyHitters, SinkRecentRing
from ondevice_bench.paged.paged_pot import PagedPot, PagedShape

LAYERS, KV_HEADS, GROUPS, DIM, BLOCK = 2, 2, 3, 8, 4
SINKS, WINDOW, BUDGET = 2, 9, 22  # the ring's window is what the sinks leave of the budget
SCALE = DIM**-0.5
LIMITS = [(torch.float32, 1e-6), (torch.float64, 1e-12)]


def new_pot(batch=2, num_blocks=20, num_sinks=SINKS, dtype=torch.float32, max_blocks=8):
    shape = PagedShape(LAYERS, KV_HEADS, DIM, num_blocks, max_blocks, BLOCK, batch, num_sinks)
    return PagedPot(shape, dtype=dtype, device="cpu")


def random_tokens(num_rows, num_tokens, seed, dtype=torch.float32):
    """Keys and values of n tokens for every layer: (2, layers, rows, kv_heads, n, dim)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, LAYERS, num_rows, KV_HEADS, num_tokens, DIM, generator=generator).to(dtype)


def append(pot, num_tokens, rows=None, seed=0, origin=PROMPT):
    keys, values = random_tokens(pot.shape.batch if rows is None else len(rows), num_tokens, seed)
    for layer in range(LAYERS):
        pot.append_(layer, keys[layer], keys[layer], values[layer], rows=rows)
    pot.commit_(num_tokens, origin, rows=rows)


def rotate_keys(keys, positions):
    angle = positions[..., None] * torch.tensor([1.0, 0.1, 0.01, 0.001], dtype=keys.dtype)
    cos, sin = torch.cat((angle.cos(),) * 2, -1), torch.cat((angle.sin(),) * 2, -1)
    return rotate(keys, cos, signed_sine(sin))


def contents(pot):
    return [buffer.clone() for buffer in pot.buffers()]


def assert_same(pot, before):
    assert all(torch.equal(a, b) for a, b in zip(before, pot.buffers(), strict=True))


class Contiguous:
    """One sequence in tensors (1, kv_heads, budget, dim), updated by the contiguous kernel; no sharing."""

    def __init__(self, policy, dtype):
        self.policy = policy
        self.keys, self.values = torch.zeros(2, LAYERS, 1, KV_HEADS, BUDGET, DIM, dtype=dtype)
        self.mass = torch.zeros(LAYERS, KV_HEADS, BUDGET)
        self.position = torch.full((LAYERS, KV_HEADS, BUDGET), -1)
        self.num_seen = 0

    def add(self, keys, values):
        """Take one token, (layers, kv_heads, dim) each."""
        for layer in range(LAYERS):
            index = torch.tensor([[[self.slot(layer, head)] for head in range(KV_HEADS)]])
            replace_slots_(self.keys[layer], index, keys[layer][None, :, None])
            replace_slots_(self.values[layer], index, values[layer][None, :, None])
            self.mass[layer].scatter_(-1, index[0], 0.0)
            self.position[layer].scatter_(-1, index[0], self.num_seen)
        self.num_seen += 1

    def slot(self, layer, head):
        if self.num_seen < BUDGET:
            return self.num_seen
        position = self.position[layer, head]
        if self.policy == "ring":
            return SINKS + int(position[SINKS:].argmin())
        open_slots = (position >= SINKS) & (position < self.num_seen - WINDOW)
        return int(self.mass[layer, head].masked_fill(~open_slots, torch.inf).argmin())

    def attend(self, layer, query):
        """(heads, dim) -> the same; the mass is added up."""
        used, query = min(self.num_seen, BUDGET), query[None, :, None]
        keys, values = self.keys[layer][:, :, :used], self.values[layer][:, :, :used]
        self.mass[layer, :, :used] += attention_mass(query, keys, scale=SCALE)[0]
        return attention(query, keys, values, scale=SCALE)[0, :, 0]


@pytest.mark.parametrize(("dtype", "limit"), LIMITS)
@pytest.mark.parametrize("policy_name", ["ring", "heavy-hitters"])
def test_decoding_equals_contiguous_replacement(policy_name, dtype, limit):
    """40 tokens after prompts of different lengths: rows grow first, each for itself, then replace in place."""
    pot = new_pot(dtype=dtype)
    policy = (
        SinkRecentRing(pot, window_size=BUDGET - SINKS)
        if policy_name == "ring"
        else HeavyHitters(pot, window_size=WINDOW)
    )
    others = [Contiguous(policy_name, dtype) for _ in range(2)]
    addresses = [buffer.data_ptr() for buffer in pot.buffers()]
    generator = torch.Generator().manual_seed(5)
    for row, length in enumerate((20, 13)):
        keys, values = random_tokens(1, length, row, dtype)
        for layer in range(LAYERS):
            pot.append_(layer, keys[layer], keys[layer], values[layer], rows=[row])
        pot.commit_(length, PROMPT, rows=[row])
        for i in range(length):
            others[row].add(keys[:, 0, :, i], values[:, 0, :, i])
    for step in range(40):
        keys, values = random_tokens(2, 1, 100 + step, dtype)
        growing = [row for row in range(2) if pot.num_cached[row] < BUDGET]
        full = [row for row in range(2) if row not in growing]
        slots = policy.evict(1, rows=full) if full else None
        lengths = pot.lengths.clone()
        lengths[growing] += 1
        for row in range(2):
            others[row].add(keys[:, row, :, 0], values[:, row, :, 0])
        for layer in range(LAYERS):
            if growing:
                pot.append_(layer, keys[layer][growing], keys[layer][growing], values[layer][growing], rows=growing)
            if full:
                pot.replace_(layer, slots, keys[layer][full], values[layer][full], rows=full)
            query = torch.randn(2, KV_HEADS * GROUPS, DIM, generator=generator).to(dtype)
            seen = query, pot.key_blocks[layer]
            out = paged_attention(*seen, pot.value_blocks[layer], pot.block_tables, lengths, scale=SCALE)
            if policy_name == "heavy-hitters":
                policy.observe(layer, paged_attention_mass(*seen, pot.block_tables, lengths, scale=SCALE))
            for row in range(2):
                assert float((out[row] - others[row].attend(layer, query[row])).abs().max()) <= limit
        if growing:
            pot.commit_(1, PROMPT, rows=growing)
        if full:
            pot.commit_(1, PROMPT, slots=slots, rows=full)
    pot.check_integrity()
    assert [buffer.data_ptr() for buffer in pot.buffers()] == addresses
    assert pot.num_cached == [BUDGET, BUDGET]
    for row in range(2):
        held = pot.logical(pot.positions)[row, :, :, :BUDGET]
        assert torch.equal(held.long(), others[row].position)
    blocks = pot.tables.owned[0]
    assert any(b != a + 1 for a, b in pairwise(blocks)), "the blocks lie one after the other"
    if policy_name == "heavy-hitters":
        assert not torch.equal(held[0, 0], held[0, 1]), "the heads hold the same tokens"


def test_several_tokens_replace_several_slots_at_once():
    pot, turned = new_pot(), new_pot()
    for one in (pot, turned):
        append(one, BUDGET)
    ring = SinkRecentRing(pot, window_size=BUDGET - SINKS)
    keys, values = random_tokens(2, 7, seed=9)
    slots = ring.evict(7)
    for layer in range(LAYERS):
        pot.replace_(layer, slots, keys[layer], values[layer])
    pot.commit_(7, torch.arange(7, dtype=torch.int32).expand(2, -1), slots=slots)
    pot.check_integrity()
    one_by_one = SinkRecentRing(turned, window_size=BUDGET - SINKS)
    for i in range(7):
        slots = one_by_one.evict(1)
        for layer in range(LAYERS):
            turned.replace_(layer, slots, keys[layer][:, :, i : i + 1], values[layer][:, :, i : i + 1])
        turned.commit_(1, i, slots=slots)
    assert_same(turned, contents(pot))
    assert pot.next_position == [BUDGET + 7] * 2


def test_heavy_hitters_evict_several_of_the_lightest_per_head():
    pot = new_pot()
    append(pot, BUDGET)
    policy = HeavyHitters(pot, window_size=WINDOW)
    mass = torch.rand(2, KV_HEADS, BUDGET, generator=torch.Generator().manual_seed(3))
    for layer in range(LAYERS):
        policy.observe(layer, mass)
    slots = policy.evict(4)
    expected = mass[..., SINKS : BUDGET - WINDOW].argsort(-1)[..., :4] + SINKS
    assert torch.equal(slots.sort(-1).values, expected.sort(-1).values[:, None].expand(-1, LAYERS, -1, -1))
    assert not bool(policy.mass.gather(-1, slots).any())
    policy.forget(0)
    assert not bool(policy.mass[0].any())
    with pytest.raises(AssertionError, match="cannot replace"):
        policy.evict(BUDGET - SINKS - WINDOW + 1)


def test_turned_sinks_equal_positions_within_the_cache():
    """StreamingLLM numbers its cache 0..n-1 and rotates every key again; here only the sinks turn."""
    pot, size = new_pot(batch=1, dtype=torch.float64), BUDGET
    ring = SinkRecentRing(pot, window_size=size - SINKS)
    keys, values = (random_tokens(1, 60, seed=1, dtype=torch.float64)[i] for i in range(2))
    prompt = rotate_keys(keys[:, 0, :, :size], torch.arange(size).expand(LAYERS, KV_HEADS, -1))
    for layer in range(LAYERS):
        pot.append_(layer, keys[layer][:, :, :size], prompt[layer][None], values[layer][:, :, :size])
    pot.commit_(size, PROMPT)
    for position in range(size, 60):
        slots = ring.evict(1)
        pot.turn_sinks_(ring.sink_positions(1), rotate_keys)
        kept = [*range(SINKS), *range(position + 1 - size + SINKS, position + 1)]
        for layer in range(LAYERS):
            new, value = keys[layer][:, :, position : position + 1], values[layer][:, :, position : position + 1]
            pot.replace_(layer, slots, rotate_keys(new, torch.full((1, KV_HEADS, 1), position)), value)
            query = torch.randn(1, KV_HEADS * GROUPS, 1, DIM, dtype=torch.float64)
            at = rotate_keys(query, torch.full((1, KV_HEADS * GROUPS, 1), position))[:, :, 0]
            storage = pot.key_blocks[layer], pot.value_blocks[layer], pot.block_tables, pot.lengths
            out = paged_attention(at, *storage, scale=SCALE)
            in_cache = rotate_keys(keys[layer][:, :, kept], torch.arange(size).expand(1, KV_HEADS, -1))
            last = rotate_keys(query, torch.full((1, KV_HEADS * GROUPS, 1), size - 1))
            expected = attention(last, in_cache, values[layer][:, :, kept], scale=SCALE)[:, :, 0]
            assert float((out - expected).abs().max()) <= 1e-12
        pot.commit_(1, PROMPT, slots=slots)
        pot.check_integrity()


def test_blocks_of_a_finished_sequence_are_used_again():
    pot = new_pot(num_blocks=8)
    append(pot, 20, rows=[0])
    append(pot, 9, rows=[1])
    before, blocks = contents(pot), set(pot.tables.owned[0])
    assert pot.tables.num_free == 0
    with pytest.raises(PotError, match="No block is left") as caught:
        append(pot, 4, rows=[1])
    assert caught.value.fix
    assert_same(pot, before)
    assert pot.num_cached == [20, 9]
    pot.release_(0)
    pot.check_integrity()
    assert pot.tables.num_free == 5
    append(pot, 18, rows=[1])
    pot.check_integrity()
    assert set(pot.tables.owned[1]) & blocks
    assert pot.num_cached == [0, 27]
    assert not bool(pot.sink_keys[:, 0].any())


def test_one_sequence_without_room_stops_the_whole_batch_unchanged():
    pot = new_pot(num_blocks=7)
    append(pot, 12)  # three blocks each
    before, free = contents(pot), pot.tables.num_free
    with pytest.raises(PotError, match="2 more are needed, and 1 of 7"):
        append(pot, 1)
    assert_same(pot, before)
    assert pot.tables.num_free == free
    pot.check_integrity()


def test_a_table_that_is_too_short_is_reported():
    pot = new_pot(max_blocks=3)
    with pytest.raises(PotError, match="table of 3 blocks"):
        append(pot, 13)
    pot.check_integrity()


def test_truncating_takes_back_what_was_appended():
    pot = new_pot()
    append(pot, 10)
    before, owned = contents(pot), [list(blocks) for blocks in pot.tables.owned]
    append(pot, 15, seed=4)
    new = random_tokens(2, 3, seed=5)
    pot.append_(0, new[0, 0], new[0, 0], new[1, 0])  # never committed
    for row in range(2):
        pot.rewind_to_(row, 10, 10)
    assert_same(pot, before)
    assert pot.tables.owned == owned
    pot.check_integrity()


def test_integrity_check_notices_damage():
    pot = new_pot()
    append(pot, 10)
    block, spare = pot.tables.owned[0][2], pot.tables.owned[1][2]  # two slots of four are used
    for damage in (
        lambda: pot.origin[block, 1, 0].__setitem__(0, FREE),
        lambda: pot.origin[block, 2, 1].__setitem__(1, 3),
        lambda: pot.key_blocks[0][block, 3].fill_(1.0),
        lambda: pot.positions[block, 0, 0].fill_(2),
        lambda: pot.block_tables[0].__setitem__(2, spare),
        lambda: pot.lengths.__setitem__(0, 9),
    ):
        before = contents(pot)
        damage()
        with pytest.raises(AssertionError):
            pot.check_integrity()
        for buffer, old in zip(pot.buffers(), before, strict=True):
            buffer.copy_(old)
    pot.check_integrity()


steps = st.tuples(
    st.sampled_from(["append", "ring", "heavy-hitters", "rewind", "release"]),
    st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True),
    st.integers(1, 9),
)


@settings(max_examples=40)
@given(st.lists(steps, min_size=1, max_size=12))
def test_invariants_hold_after_every_operation(operations):
    pot = new_pot(batch=3, num_blocks=9, max_blocks=6)
    addresses, nbytes = [buffer.data_ptr() for buffer in pot.buffers()], pot.nbytes
    for i, (operation, rows, num_tokens) in enumerate(operations):
        before, row = contents(pot), rows[0]
        if operation == "append":
            try:
                append(pot, num_tokens, rows, seed=i)
            except PotError:
                assert_same(pot, before)
        elif operation == "rewind":
            length = max(0, pot.num_cached[row] - num_tokens)
            pot.rewind_to_(row, length, pot.next_position[row])
        elif operation == "release":
            pot.release_(row)
        elif pot.num_cached[row] >= SINKS + 1 + num_tokens:
            overwrite(pot, operation, row, num_tokens, seed=i)
        pot.check_integrity()
        used = sum(len(blocks) for blocks in pot.tables.owned)
        assert used + pot.tables.num_free == 9
    assert [buffer.data_ptr() for buffer in pot.buffers()] == addresses
    assert pot.nbytes == nbytes


def overwrite(pot, policy_name, row, num_tokens, seed):
    """Replace slots of one sequence, whatever its length: the ring is as long as the sequence leaves it."""
    if policy_name == "ring":
        slots = SinkRecentRing(pot, window_size=pot.num_cached[row] - SINKS).evict(num_tokens, rows=[row])
    else:
        slots = HeavyHitters(pot, window_size=1).evict(num_tokens, rows=[row])
    keys, values = random_tokens(1, num_tokens, seed)
    for layer in range(LAYERS):
        pot.replace_(layer, slots, keys[layer], values[layer], rows=[row])
    pot.commit_(num_tokens, PROMPT, slots=slots, rows=[row])
