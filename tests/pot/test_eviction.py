"""Decoding in a full pot: in-place replacement against the shifting and gathering caches that define each rule."""

import pytest
import torch
import torch.nn.functional as F
from ondevice.kernels.attention import additive_mask, attention, observed_attention
from ondevice.kernels.rope import rotate, rotate_half, rotate_with_half_, signed_sine

from ondevice.config import DECODE_POLICIES, PotConfig
from ondevice.documents import Document
from ondevice.documents.types import Page
from ondevice.errors import PotError
from ondevice.events import AnswerFinished, AnswerToken
from ondevice.model.decoder import Decoder
from ondevice.model.passes import PassStopped
from ondevice.pot.eviction import FixedOrder, LongAnswer, SinkRecent
from ondevice.pot.undo import UndoLog
from ondevice.session.engine import Engine
from ondevice_bench.speed.equip.baselines import ShiftAppendCache
from ondevice_bench.speed.equip.sides import plain_angles
from ondevice_bench.speed.references import attention_mass_ref, attention_ref
from tests.builders.grids import KEY_ROTATIONS, first_of, slow
from tests.builders.models import plain_config, plain_generation, tiny_loaded, tiny_model
from tests.builders.pots import check_invariants

CAPACITY, SINKS = 40, 4


def _ids(num_tokens, batch=1):
    return torch.randint(0, 256, (batch, num_tokens), generator=torch.Generator().manual_seed(5))


def _filled(decoder, ids, key_rotation="stored"):
    pot = decoder.new_pot(ids.shape[1], batch=ids.shape[0], key_rotation=key_rotation)
    decoder.forward(ids, pot)
    return pot


def _answer(pot, decoder, num_document=0, max_positions=80, **options):
    """An answer whose question attended the more to a slot, the later it lies."""
    mass = [torch.arange(float(num_document)).expand(1, 2, -1)] * 3
    pot.num_protected = SINKS
    return LongAnswer(pot, max_positions, mass, [num_document] * 3, **options)


def _shifting(decoder):
    """StreamingLLM by its definition: evicted slots are cut out, all keys rotated at positions 0..n-1 every step."""
    return ShiftAppendCache(len(decoder.parts.layers), CAPACITY, SINKS, *plain_angles(decoder, CAPACITY))


@pytest.mark.parametrize("key_rotation", first_of(*KEY_ROTATIONS))
@pytest.mark.parametrize("batch", [1, slow(2)])
def test_sink_and_recent_in_place_equals_shift_and_append(batch, key_rotation):
    decoder = Decoder(tiny_model("llama"))
    ids = _ids(CAPACITY, batch)
    pot, shifting = _filled(decoder, ids, key_rotation), _shifting(decoder)
    decoder.forward(ids, shifting)
    eviction = SinkRecent(_answer(pot, decoder))
    addresses = [buffer.data_ptr() for buffer in pot.buffers()]
    for tokens in _ids(210, batch).split(1, dim=1):
        eviction.make_room()
        shifting.make_room()
        ours, theirs = decoder.forward(tokens, pot), decoder.forward(tokens, shifting)
        torch.testing.assert_close(ours.hidden_states, theirs.hidden_states, atol=2e-4, rtol=2e-4)
        check_invariants(pot, 1)
    assert [buffer.data_ptr() for buffer in pot.buffers()] == addresses
    assert pot.num_cached == [CAPACITY] * 3
    assert max(pot.next_position) <= 4 * CAPACITY, "positions run on for ever"


@pytest.mark.parametrize("key_rotation", first_of(*KEY_ROTATIONS))
def test_greedy_tokens_equal_shift_and_append(key_rotation):
    decoder = Decoder(tiny_model("llama"))
    ids = _ids(CAPACITY)
    pot, shifting = _filled(decoder, ids, key_rotation), _shifting(decoder)
    decoder.forward(ids, shifting)
    eviction, written = SinkRecent(_answer(pot, decoder)), []
    for cache, make_room in ((pot, eviction.make_room), (shifting, shifting.make_room)):
        token, tokens = ids[:, -1:], []
        for _ in range(200):
            make_room()
            hidden = decoder.forward(token, cache).hidden_states[:, -1]
            token = decoder.head.logits(hidden).argmax(dim=-1, keepdim=True)
            tokens.append(int(token))
        written.append(tokens)
    assert written[0] == written[1]


def test_positions_are_counted_anew_before_they_leave_the_window():
    decoder = Decoder(tiny_model("llama"))
    ids = _ids(CAPACITY)
    pot = _filled(decoder, ids)
    eviction = FixedOrder(_answer(pot, decoder, CAPACITY, max_positions=64))
    for _ in range(100):
        eviction.make_room()
        decoder.forward(_ids(1), pot)
        assert max(pot.next_position) <= 64
        check_invariants(pot, 1)
    rotated = decoder.rotate_keys(pot.keys[1], pot.positions[1], pot.max_positions)
    torch.testing.assert_close(pot.rotated[1], rotated)


def test_a_pot_of_sinks_alone_gives_up_nothing():
    decoder = Decoder(tiny_model("llama"))
    pot = _filled(decoder, _ids(SINKS))
    with pytest.raises(PotError, match="none of the pot"):
        SinkRecent(_answer(pot, decoder)).make_room()


@pytest.mark.parametrize("policy", DECODE_POLICIES)
@pytest.mark.parametrize("key_rotation", first_of(*KEY_ROTATIONS))
def test_a_long_answer_stays_in_the_pot_and_leaves_no_trace(policy, key_rotation):
    settings = PotConfig(
        capacity=96,
        num_kept=40,
        reserve=24,
        catalyst="text",
        catalyst_text="Recall.",
        decode_policy=policy,
        key_rotation=key_rotation,
    )
    session = Engine(tiny_loaded(max_positions=128), plain_config(pot=settings)).session()
    text = "All the books of the library were read aloud. " * 12
    list(session.read(Document("books", "txt", "part", (Page(1, text),), 1, len(text))))
    before = [buffer.clone() for buffer in session.context.pot.buffers()]
    addresses = [buffer.data_ptr() for buffer in session.context.pot.buffers()]
    answers = []
    for _ in range(2):
        events = list(session.ask("Why?", plain_generation(max_new_tokens=150, temperature=1.0)))
        answers.append([event.token_id for event in events if isinstance(event, AnswerToken)])
        finished = events[-1]
        assert isinstance(finished, AnswerFinished)
        assert finished.stop_reason == "end" or finished.num_overwritten > 100
        workspace = {session.context.pot.workspace.data_ptr()} if session.context.pot.workspace is not None else set()
        for buffer, saved in zip(session.context.pot.buffers(), before, strict=True):
            assert buffer.data_ptr() in workspace or torch.equal(buffer, saved)
    assert answers[0] == answers[1]
    assert [buffer.data_ptr() for buffer in session.context.pot.buffers()] == addresses


@pytest.mark.parametrize("key_rotation", first_of(*KEY_ROTATIONS))
def test_a_long_answer_without_any_sink_leaves_no_trace(key_rotation):
    settings = PotConfig(
        capacity=96,
        num_kept=40,
        reserve=24,
        num_sink_tokens=0,
        catalyst="text",
        catalyst_text="Recall.",
        decode_policy="streaming-llm",
        key_rotation=key_rotation,
    )
    loaded = tiny_loaded(max_positions=128)
    loaded.tokenizer.eos_ids = frozenset()
    generation = plain_generation(max_new_tokens=600, temperature=1.0, chat=False)
    session = Engine(loaded, plain_config(pot=settings, generation=generation)).session()
    text = "All the books of the library were read aloud. " * 12
    list(session.read(Document("books", "txt", "part", (Page(1, text),), 1, len(text))))
    assert session.context.num_protected == 0
    before = session.context.pot.state()
    events = list(session.ask("Why?"))
    assert events[-1].num_overwritten > 500, "positions were numbered again, too"
    for name, tensor in session.context.pot.state().items():
        assert torch.equal(tensor, before[name]), name


def _uneven(decoder, key_rotation="stored"):
    """A pot that is full in its middle layer, and has room for 6 and 10 tokens in the others."""
    pot = decoder.new_pot(CAPACITY, key_rotation=key_rotation)
    decoder.forward(_ids(CAPACITY), pot, origin=torch.arange(CAPACITY, dtype=torch.int32))
    for layer, num_free in ((0, 6), (2, 10)):
        kept = torch.cat((torch.arange(SINKS), torch.arange(SINKS + num_free, CAPACITY)))
        pot.compact_(slice(layer, layer + 1), kept.expand(1, 1, 2, -1))
    pot.is_uniform = False
    return pot


def _rule(name, pot, decoder, save):
    if name == "sinks":
        return SinkRecent(_answer(pot, decoder, save=save))
    return FixedOrder(_answer(pot, decoder, 20, max_positions=80, save=save))


@pytest.mark.parametrize("rule", ["sinks", "fixed"])
def test_a_layer_with_room_gives_up_nothing(rule):
    """Whatever is kept beside the keys; layers run full one after another, and then give up slots for every token."""
    decoder = Decoder(tiny_model("llama"))
    states = []
    for key_rotation in KEY_ROTATIONS:
        pot = _uneven(decoder, key_rotation)
        log, before = UndoLog(pot), [buffer.clone() for buffer in pot.buffers()]
        first, eviction = pot.origin.clone(), _rule(rule, pot, decoder, log.save)
        out = []
        for new in _ids(60).split(1, dim=1):
            eviction.make_room()
            num_free = [pot.num_free_in(layer) for layer in range(3)]
            passed = decoder.forward(new, pot)
            check_invariants(pot, CAPACITY)
            out.append(passed.hidden_states)
            for layer, room in enumerate(num_free):
                assert pot.num_free_in(layer) == max(room - 1, 0)
                is_lost = bool(((first[layer] >= 0) & (pot.origin[layer] != first[layer])).any())
                assert is_lost == (room < 1)
        if pot.rotated:
            for layer, used in enumerate(pot.num_cached):
                turned = decoder.rotate_keys(pot.keys[layer], pot.positions[layer], pot.max_positions)
                torch.testing.assert_close(pot.rotated[layer][:, :, :used], turned[:, :, :used])
        states.append(torch.cat(out, dim=1))
        log.rewind()
        workspace = set() if pot.workspace is None else {pot.workspace.data_ptr()}
        for buffer, saved in zip(pot.buffers(), before, strict=True):
            assert buffer.data_ptr() in workspace or torch.equal(buffer, saved)
    for other in states[1:]:
        torch.testing.assert_close(other, states[0], atol=2e-4, rtol=2e-4)


def test_sinks_follow_the_query_only_in_layers_that_give_up_slots():
    decoder = Decoder(tiny_model("llama"))
    pot, before = _uneven(decoder), _uneven(decoder)
    SinkRecent(_answer(pot, decoder)).make_room()
    assert pot.victims[0] is None
    assert pot.victims[2] is None
    for layer, moved in ((0, 0), (1, 1), (2, 0)):
        assert torch.equal(pot.positions[layer, ..., :SINKS], before.positions[layer, ..., :SINKS] + moved)
        assert torch.equal(pot.rotated[layer], before.rotated[layer]) == (moved == 0)


def test_a_pass_stopped_half_way_leaves_free_slots_free():
    decoder = Decoder(tiny_model("llama"))
    pot = _uneven(decoder)
    log, before, polls = UndoLog(pot), [buffer.clone() for buffer in pot.buffers()], iter([False, False, True])
    SinkRecent(_answer(pot, decoder, save=log.save)).make_room()
    with pytest.raises(PassStopped):
        decoder.forward(_ids(1), pot, is_stopped=lambda: next(polls))
    log.rewind()
    assert all(torch.equal(a, b) for a, b in zip(pot.buffers(), before, strict=True))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_attention_does_not_care_about_the_order_of_slots(dtype):
    """EQUIP, theorems 1 and 2: without positions, with a mask, and with ALiBi's bias, all permuted alike."""
    generator = torch.Generator().manual_seed(2)
    query = torch.randn(2, 6, 1, 24, dtype=dtype, generator=generator)
    keys, values = torch.randn(2, 2, 3, 131, 24, dtype=dtype, generator=generator)
    order = torch.randperm(131, generator=generator)
    hidden = additive_mask(torch.rand(2, 3, 1, 131, generator=generator) < 0.6, dtype)
    distance = torch.arange(131, dtype=dtype).flip(0)
    alibi = -distance * 2.0 ** -torch.arange(1, 4, dtype=dtype)[:, None, None]
    bound = 1e-9 if dtype == torch.float64 else 1e-5
    for mask in (None, hidden, alibi.expand(2, 3, 1, 131)):
        permuted = None if mask is None else mask[..., order]
        straight = attention(query, keys, values, mask=mask, scale=0.2)
        shuffled = attention(query, keys[:, :, order], values[:, :, order], mask=permuted, scale=0.2)
        assert (straight - shuffled).abs().max() < bound
        torch.testing.assert_close(straight.float(), attention_ref(query, keys, values, mask=mask, scale=0.2).float())


def test_in_place_attention_deviates_less_than_1e_9_from_shift_and_append_in_float64():
    generator = torch.Generator().manual_seed(3)
    keys, values = torch.randn(2, 1, 4, 64, 32, dtype=torch.float64, generator=generator)
    shifted = keys.clone(), values.clone()
    for step in range(150):
        query, key, value = torch.randn(3, 1, 4, 1, 32, dtype=torch.float64, generator=generator)
        shifted = tuple(
            torch.cat((t[:, :, :SINKS], t[:, :, SINKS + 1 :], new), dim=2)
            for t, new in zip(shifted, (key, value), strict=True)
        )
        slot = SINKS + step % (64 - SINKS)
        keys[:, :, slot : slot + 1], values[:, :, slot : slot + 1] = key, value
        ours = attention(query, keys, values, scale=0.2)
        theirs = F.scaled_dot_product_attention(query, *shifted, scale=0.2)
        assert (ours - theirs).abs().max() < 1e-9


@pytest.mark.parametrize("rotary_dim", [24, 16])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("shape", [(1, 9, 3, 1), (2, 4, 4, 137), (1, 8, 1, 600)])
def test_rotating_from_halves_equals_rotating(shape, dtype, bound, rotary_dim):
    batch, _, num_kv_heads, num_slots = shape
    generator = torch.Generator().manual_seed(sum(shape))
    keys = torch.randn(batch, num_kv_heads, num_slots, 24, generator=generator).to(dtype)
    angle = torch.arange(1000)[:, None] * 100.0 ** -(torch.arange(rotary_dim // 2) / rotary_dim)
    cos, sin = torch.cat((angle.cos(),) * 2, -1).to(dtype), signed_sine(torch.cat((angle.sin(),) * 2, -1)).to(dtype)
    for heads in (1, num_kv_heads):
        positions = torch.randint(0, 1000, (1, heads, num_slots), generator=generator, dtype=torch.int32)
        halves, workspace = rotate_half(keys, rotary_dim), torch.full_like(keys, 7.0)
        rotate_with_half_(workspace, keys, halves, cos[positions], sin[positions])
        torch.testing.assert_close(workspace, rotate(keys, cos[positions], sin[positions]), atol=bound, rtol=bound)


@pytest.mark.parametrize("softcap", [None, 2.5])
@pytest.mark.parametrize("num_queries", [1, 5])
def test_observed_attention_is_attention_with_its_mass(num_queries, softcap):
    generator = torch.Generator().manual_seed(6)
    query = torch.randn(2, 6, num_queries, 16, generator=generator)
    keys, values = torch.randn(2, 2, 3, 40, 16, generator=generator)
    out, mass = observed_attention(query, keys, values, scale=0.25, softcap=softcap)
    torch.testing.assert_close(out, attention_ref(query, keys, values, scale=0.25, softcap=softcap))
    torch.testing.assert_close(mass, attention_mass_ref(query, keys, scale=0.25, softcap=softcap))


@pytest.mark.slow
def test_20_000_tokens_in_512_slots_neither_grow_nor_stop():
    settings = PotConfig(capacity=512, num_kept=256, reserve=64, catalyst="text", catalyst_text="Recall.")
    loaded = tiny_loaded(num_layers=1, num_heads=2, num_kv_heads=1, head_dim=8, max_positions=2048)
    loaded.tokenizer.eos_ids = frozenset()
    session = Engine(loaded, plain_config(pot=settings)).session()
    text = "A short note. " * 20
    list(session.read(Document("note", "txt", "part", (Page(1, text),), 1, len(text))))
    addresses, nbytes = [buffer.data_ptr() for buffer in session.context.pot.buffers()], session.context.pot.nbytes
    events = session.ask("Go on.", plain_generation(max_new_tokens=20_000, temperature=1.0))
    num_tokens, finished = 0, None
    for event in events:
        num_tokens += isinstance(event, AnswerToken)
        finished = event
    assert num_tokens == finished.num_tokens == 20_000
    assert finished.stop_reason == "length"
    assert [buffer.data_ptr() for buffer in session.context.pot.buffers()] == addresses
    assert session.context.pot.nbytes == nbytes
