"""The host tier: what it holds, what a question brings back, and that an answer leaves no trace."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from ondevice.kernels.codes import Frame
from ondevice.kernels.quantize import dequantize, quantize

from ondevice.config import PotConfig, SlimConfig, TierConfig
from ondevice.config.policies import POLICIES
from ondevice.decode import host_recall
from ondevice.decode.host_recall import HostRecall
from ondevice.documents import Document, Page
from ondevice.errors import PotError
from ondevice.events import AnswerFinished, AnswerToken, TokensRecalled
from ondevice.model.decoder import Decoder
from ondevice.pot.host import host_memory, kv_tier
from ondevice.pot.host.kv_tier import HostTier, Taken, taken_from
from ondevice.pot.host.retrieve import rank_blocks
from ondevice.pot.host.swapping import Moved, bring_back
from ondevice.pot.saved_state import Extent
from ondevice.pot.shape import PROMPT, PotShape
from ondevice.pot.undo import UndoLog
from ondevice.session.engine import Engine
from ondevice.session.saving import load_session, save_session
from ondevice_bench.speed.references import quantize_ref
from tests.builders.grids import slow
from tests.builders.models import plain_config, plain_generation, tiny_loaded, tiny_model
from tests.builders.pots import check_invariants

SHAPE = PotShape(num_layers=2, num_kv_heads=3, head_dim=8, capacity=64)
POT = PotConfig(capacity=400, num_kept=96, reserve=160, step_size=120)
EVERY_TOKENS = TierConfig(budget_bytes=0).every
MOVED = Moved(0, 0, 0, np.empty(0, np.int32))
TEXT = "".join(f"The lamp {i} is lit at dusk by keeper {i * 7}. " for i in range(60))


@pytest.mark.parametrize("shape", [(3, 5, 8), (1, 1, 64), (2, 130, 16)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_eight_bits_equal_the_reference_and_are_half_a_step_off(shape, dtype):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    x[0, 0] = 0.0
    numbers, scales = quantize(x)
    for ours, theirs in zip((numbers, scales), quantize_ref(x), strict=True):
        assert torch.equal(ours, theirs)
    back = dequantize(numbers, scales, torch.float32)
    assert bool(((back - x.float()).abs() <= scales[..., None] * 0.5001).all())


def _tokens(first, count, seed=0):
    generator = torch.Generator().manual_seed(first + seed)
    keys, values = torch.randn(2, 3, count, 8, generator=generator)
    return keys, values, torch.arange(first, first + count, dtype=torch.int32)


def put(tier, layer, keys, values, origin):
    """Offload tokens of one layer, (kv_heads, n, dim)."""
    tier.take_over(Taken(layer, [keys[None], values[None]], origin))


def addresses(tier):
    return [next(iter(chunk.parts.values())).data_ptr() for ring in tier._rings for chunk in ring._chunks]


def test_a_tier_grows_up_to_its_bound_and_then_forgets_the_oldest():
    budget = 400_000
    tier = HostTier(SHAPE, budget, dtype=torch.float32)
    assert tier.nbytes == 0
    assert budget * 0.95 < tier.most_bytes <= budget
    assert tier.capacity > 600
    first, places = 0, []
    for count in (5, 600, tier.capacity - 605, 7, 3 * tier.capacity + 2, 1):
        keys, values, origin = _tokens(first, count)
        put(tier, 0, keys, values, origin)
        first += count
        assert tier.nbytes <= tier.most_bytes // 2, "the other layer has nothing"
        assert addresses(tier)[: len(places)] == places, "a chunk never moves"
        places = addresses(tier)
        held = tier.origin(0)
        assert sorted(held.tolist()) == list(range(max(first - tier.capacity, 0), first))
        # The newest token is there, in every head.
        place = int((held == first - 1).nonzero())
        back = torch.stack(tier.parts(0, slice(place, place + 1)))
        torch.testing.assert_close(back, torch.stack((keys, values))[:, :, -1:], atol=0.02, rtol=0)
        torch.testing.assert_close(tier.keys(0, torch.tensor([place])), back[0])
    assert len(places) > 1
    assert tier.num_held(1) == 0
    assert tier.origin(1).numel() == 0


def test_mean_keys_are_those_of_the_places():
    """Equation 1, also while the last unit fills up and after the ring has begun again."""
    tier = HostTier(SHAPE, 60_000, dtype=torch.float32)
    first = 0
    for count in (3, 9, tier.capacity - 2, 5):
        put(tier, 1, *_tokens(first, count))
        first += count
        keys = tier.keys(1, slice(0, tier.num_held(1)))
        expected = torch.stack([unit.mean(dim=1) for unit in keys.split(8, dim=1)], dim=1)
        torch.testing.assert_close(tier.unit_keys(1), expected, atol=0.02, rtol=0)


def test_a_gpu_keeps_mean_keys_until_more_come(monkeypatch):
    """Here the GPU is the CPU under another name, and what is copied there is counted."""
    copied = []
    monkeypatch.setattr(kv_tier, "to_device", lambda tensor, device: copied.append(device) or tensor)
    tier, first, gpu = HostTier(SHAPE, 60_000, dtype=torch.float32), 0, torch.device("cuda", 0)
    for count in (19, 9, tier.capacity):
        for layer in (0, 1):
            put(tier, layer, *_tokens(first, count, seed=layer))
        first, before = first + count, len(copied)
        at = torch.tensor([0, 2])
        for _ in range(2):
            for layer in (0, 1):
                assert torch.equal(tier.unit_keys(layer, device=gpu), tier.unit_keys(layer))
                assert torch.equal(tier.unit_keys(layer, at, gpu), tier.unit_keys(layer, at))
        assert copied[before:].count(gpu) == 2 * 2, "numbers and scales of two layers"
    other = HostTier(SHAPE, 60_000, dtype=torch.float32)
    assert other.unit_keys(0, device=gpu).shape[1] == 0
    other.restore(tier.state(as_it_lies=True), Extent(first, first), as_it_lies=True)
    assert torch.equal(other.unit_keys(0, device=gpu), tier.unit_keys(0))


def test_a_document_lowers_the_bound_to_what_it_can_bring():
    tier = HostTier(SHAPE, 10**9, dtype=torch.float32)
    tier.expect(2999)
    assert tier.capacity == 3000
    assert tier.most_bytes == 3000 * HostTier.token_bytes(SHAPE)


def test_a_text_of_3000_tokens_takes_less_than_50_mb():
    """The default model: 30 layers of 3 heads of 64."""
    shape = PotShape(num_layers=30, num_kv_heads=3, head_dim=64, capacity=2048)
    tier = HostTier(shape, 10**9, dtype=torch.float32)
    for layer in range(30):
        put(tier, layer, torch.randn(3, 3000, 64), torch.randn(3, 3000, 64), torch.arange(3000))
    assert tier.nbytes < 50e6


def test_a_tier_that_holds_too_little_is_refused():
    with pytest.raises(PotError, match="does not hold 8 tokens"):
        HostTier(SHAPE, 10, dtype=torch.float32)


def test_a_tier_that_would_not_fit_is_refused_before_it_is_read_into(monkeypatch):
    session = _engine(TierConfig(budget_bytes=10**7)).session()
    needed = session.context.pot.nbytes + len(TEXT) * 200
    monkeypatch.setattr(host_memory, "free_memory_bytes", lambda: needed)
    with pytest.raises(PotError, match="memory are free"):
        _open(session, TEXT)
    _open(_engine(TierConfig(budget_bytes=10**7)).session(), TEXT[:300])


@pytest.mark.parametrize("more", [0, 1000])
def test_a_restored_tier_forgets_the_oldest_first_too(more):
    tier = HostTier(SHAPE, 20_000, dtype=torch.float32)
    size = tier.capacity + 7
    put(tier, 0, *_tokens(0, size))
    other = HostTier(SHAPE, 20_000 + more, dtype=torch.float32)
    other.restore(tier.state(), Extent(size, size))
    torch.testing.assert_close(
        other.unit_keys(0)[:, 1:2], other.keys(0, slice(8, 16)).mean(dim=1, keepdim=True), atol=0.02, rtol=0
    )
    put(other, 0, *_tokens(size, other.capacity - tier.capacity + 3))
    held = sorted(other.origin(0).tolist())
    if more == 0:
        assert held == list(range(size + 3 - tier.capacity, size + 3))
    assert held[-1] == size + other.capacity - tier.capacity + 2
    assert len(held) == other.capacity


def test_blocks_are_ranked_by_the_attention_that_all_layers_pay():
    tier = HostTier(SHAPE, 100_000, dtype=torch.float32)
    keys = torch.zeros(3, 40, 8)
    keys[:, 27, 0] = 3.0
    for layer in range(2):
        put(tier, layer, keys, keys, torch.arange(40, dtype=torch.int32))
    query = torch.zeros(1, 6, 2, 8)
    query[..., 0] = 1.0
    ranked = rank_blocks(tier, [query, query], scale=1.0, softcap=None, block_size=8, first=4, coverage=1.0)
    assert {*ranked[:2]} == {3, 4}, "the block of the key, and what follows it"
    assert sorted(ranked) == [0, 1, 2, 3, 4]
    enough = rank_blocks(tier, [query, query], scale=1.0, softcap=None, block_size=8, first=4, coverage=0.9)
    assert {*enough} == {3, 4}


def _full_pot(decoder, num_tokens, capacity, frame=None):
    pot = decoder.allocate(decoder.pot_shape(capacity, kv_dtype="model" if frame is None else "int8"), frame)
    ids = torch.randint(0, 256, (1, num_tokens), generator=torch.Generator().manual_seed(3))
    decoder.forward(ids[:, :4], pot)
    decoder.forward(ids[:, 4:], pot, origin=torch.arange(num_tokens - 4, dtype=torch.int32))
    pot.num_protected = 4
    return pot, ids


def test_tokens_that_come_back_lie_at_their_place_in_the_document():
    """Everything evicted and brought back is as if it had never gone: what a pot has in 8 bits comes back as it was."""
    decoder = Decoder(tiny_model("llama"))
    frame = Frame(*(part.expand(3, 2, 16).clone() for part in (torch.zeros(()), torch.ones(()))))
    pot, ids = _full_pot(decoder, 44, 60, frame)
    whole, _ = _full_pot(decoder, 44, 60, frame)
    tier = HostTier(pot.shape, 10**6, dtype=torch.float32, frame=frame)
    tier.take_over(taken_from(pot, slice(0, 3), slice(4, 44)))
    # Every head keeps its prompt and 12 tokens of its own.
    heads = torch.stack([torch.randperm(40, generator=torch.Generator().manual_seed(i))[:12] + 4 for i in range(2)])
    index = torch.cat((torch.arange(4).expand(2, -1), heads), dim=1)
    pot.compact_(slice(0, 3), index[None, None].expand(3, 1, -1, -1).contiguous())
    moved = bring_back(
        pot, tier, [4, 0, 3, 1, 2],
        block_size=8, max_tokens=28, num_beside=99, num_free=10, num_more=[0] * 3,
    )  # fmt: skip
    assert moved.num_slots == 3 * 28
    assert pot.num_cached == pot.next_position == [44] * 3
    check_invariants(pot, 40)
    out, expected = (decoder.forward(ids[:, :6], one).hidden_states for one in (pot, whole))
    torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-4)


def test_what_lies_furthest_from_what_comes_back_makes_room():
    decoder = Decoder(tiny_model("llama"))
    pot, _ = _full_pot(decoder, 54, 60)
    tier = HostTier(pot.shape, 10**6, dtype=torch.float32)
    for layer in range(3):
        put(tier, layer, torch.randn(2, 8, 16), torch.randn(2, 8, 16), torch.arange(50, 58, dtype=torch.int32))
    bring_back(
        pot, tier, [6, 7],
        block_size=8, max_tokens=8, num_beside=99, num_free=6, num_more=[0] * 3,
    )  # fmt: skip
    assert pot.num_cached == [54] * 3
    for origin in pot.origin[:, 0].flatten(0, 1):
        held = sorted(origin[:54].tolist())
        assert held == [PROMPT] * 4 + list(range(8, 58))


def _bring_back(decoder, pot, tier, blocks, **options):
    settings = {"block_size": 8, "max_tokens": 64, "num_free": 6, "num_more": [0] * 3}
    settings["num_beside"] = 99
    return bring_back(pot, tier, blocks, **settings | options)


def _one_head_without(decoder, tokens, capacity, num_held):
    """A pot whose second head has dropped some of the document tokens that the first one holds, and a tier of all."""
    pot, _ = _full_pot(decoder, 54, capacity)
    tier = HostTier(pot.shape, 10**6, dtype=torch.float32)
    for layer in range(3):
        used = slice(4, 54)
        put(tier, layer, pot.keys[layer][0, :, used], pot.values[layer][0, :, used], pot.origin[layer, 0, 0, used])
    first, second = torch.arange(54), torch.tensor([slot for slot in range(54) if slot - 4 not in tokens])
    num_dropped = num_held or len(tokens)
    pot.compact_(
        slice(0, 3), torch.stack((first[: 54 - num_dropped], second[: 54 - num_dropped]))[None, None].repeat(3, 1, 1, 1)
    )
    return pot, tier


def _documents(pot, layer):
    return [sorted(token for token in head.tolist() if token >= 0) for head in pot.origin[layer, 0]]


def test_a_head_that_holds_a_block_does_not_keep_it_from_the_others():
    """One head has all of block 2, the other nothing of it, and there are free slots: the first takes neighbours."""
    decoder, block = Decoder(tiny_model("llama")), range(16, 24)
    pot, tier = _one_head_without(decoder, block, 60, 8)
    moved = _bring_back(decoder, pot, tier, [2])
    check_invariants(pot, 50)
    assert moved.tokens.tolist() == [*block]
    assert pot.num_cached == [54] * 3
    for layer in range(3):
        full, other = _documents(pot, layer)
        assert full == [*range(50)], "what it lacked at the end of the document filled its free slots"
        assert other == [*range(50)]


def test_a_head_that_has_all_of_the_tier_gives_up_nothing_for_the_others():
    """Nothing could fill a free slot of the first head: the second one overwrites what is attended to least."""
    decoder = Decoder(tiny_model("llama"))
    pot, _ = _one_head_without(decoder, range(16, 24), 100, 8)
    tier = HostTier(pot.shape, 10**6, dtype=torch.float32)
    for layer in range(3):
        put(tier, layer, torch.randn(2, 8, 16), torch.randn(2, 8, 16), torch.arange(16, 24, dtype=torch.int32))
    before, moved = _documents(pot, 0), _bring_back(decoder, pot, tier, [2])
    check_invariants(pot, 50)
    assert (moved.num_slots, moved.tokens.tolist()) == (3 * 8 // 2, [*range(16, 24)])
    assert pot.num_cached == [46] * 3
    for layer in range(3):
        full, other = _documents(pot, layer)
        assert full == before[0]
        assert other == sorted({*before[1], *range(16, 24)} - {*range(42, 50)}), "the furthest went"


def test_what_comes_back_lies_behind_what_is_ranked():
    """Run-time termination reads the newest slots first, and those are what the question wants."""
    decoder = Decoder(tiny_model("llama"))
    pot, tier = _one_head_without(decoder, range(16, 24), 54, 8)
    _bring_back(decoder, pot, tier, [2], num_free=8)
    assert pot.num_cached == [46] * 3
    assert pot.num_ranked == [38] * 3
    assert set(pot.origin[0, 0, 1, 38:46].tolist()) == {*range(16, 24)}


def test_only_what_lies_nearest_stays_beside_what_comes_back():
    decoder = Decoder(tiny_model("llama"))
    pot, tier = _one_head_without(decoder, range(16, 24), 60, 8)
    before = [_documents(pot, layer) for layer in range(3)]
    moved = _bring_back(decoder, pot, tier, [2], num_beside=10)
    check_invariants(pot, 50)
    for layer in range(3):
        full, other = _documents(pot, layer)
        assert {*range(16, 24)} < {*other}
        assert all(8 <= token < 32 for token in other), "tokens of the blocks before and behind it"
        assert len(full) == len(other) == 18
        assert other == sorted(other)
    gone = [{*old} - {*new} for i in range(3) for old, new in zip(before[i], _documents(pot, i), strict=True)]
    assert moved.num_aside == sum(map(len, gone)) // 2


def test_what_is_wanted_and_here_stays_before_neighbours_of_what_comes_back():
    decoder = Decoder(tiny_model("llama"))
    pot, tier = _one_head_without(decoder, range(16, 24), 60, 8)
    _bring_back(decoder, pot, tier, [2], num_beside=10, staying=[5])
    check_invariants(pot, 50)
    for layer in range(3):
        full, other = _documents(pot, layer)
        assert {*range(40, 42)} < {*full}, "what the first head still holds of that block"
        assert {*range(16, 24), *range(40, 48)} <= {*other}
        assert len(full) == len(other) == 18


def test_what_a_question_looks_for_in_what_was_read_last_stays():
    pot = PotConfig(capacity=300, num_kept=120, reserve=100, step_size=60)
    text = "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(70))
    session = Engine(
        tiny_loaded(), plain_config(pot=pot, tier=TierConfig(budget_bytes=10**6, num_beside=128))
    ).session()
    document = Document("text", "txt", "part", (Page(1, text),), num_pages=1, size_bytes=len(text))
    list(session.read(document))
    context = session.context
    parts, cached, ranked = context.decoder.parts, context.pot.num_cached[0], context.pot.num_ranked[0]
    assert cached - ranked > 20
    recall = HostRecall(context, 50)
    for slot in (ranked + 1, cached - 1):
        queries = [
            60 * keys[:, :, slot : slot + 1].repeat_interleave(parts.num_heads // parts.num_kv_heads, 1)
            for keys in context.pot.keys
        ]
        best, *others = recall._wanted_here(queries)
        token = int(context.pot.origin[0, 0, 0, slot])
        assert best == token // recall._block_size
        assert len(others) < 128 // (2 * recall._block_size)


def test_a_close_look_is_also_taken_where_words_say():
    tier = HostTier(SHAPE, 10**7, dtype=torch.float32)
    for layer in range(2):
        put(tier, layer, *_tokens(0, 640, seed=layer))
    queries = [torch.randn(1, 6, 2, 8, generator=torch.Generator().manual_seed(1))] * 2
    how = {"scale": 1.0, "softcap": None, "block_size": 16, "first": 4, "coverage": 1.0, "num_close": 2}
    without = rank_blocks(tier, queries, **how)
    (other, *_) = [block for block in range(40) if not {block, block + 1} & {*without}]
    ranked = rank_blocks(tier, queries, also_close=[other, 10**6], **how)
    assert other in ranked
    assert {other, other + 1} >= {*ranked} - {*without}
    assert other not in rank_blocks(tier, queries, also_close=[other], present={other}, **how)


@pytest.mark.parametrize(("num_free", "max_tokens"), [(58, 8), (56, 8), (200, 8), (6, 0), (6, -1)])
def test_without_room_nothing_comes_back_and_no_sink_goes(num_free, max_tokens):
    decoder = Decoder(tiny_model("llama"))
    pot, tier = _one_head_without(decoder, range(16, 24), 60, 8)
    moved = _bring_back(decoder, pot, tier, [2, 3], num_free=num_free, max_tokens=max_tokens)
    assert (moved.num_slots, moved.tokens.size) == (0, 0)
    check_invariants(pot, 50)
    assert bool(((pot.origin[..., : min(pot.num_cached)] == PROMPT).sum(dim=-1) == 4).all())


def test_part_of_a_block_comes_back():
    decoder = Decoder(tiny_model("llama"))
    pot, tier = _one_head_without(decoder, range(16, 24), 60, 8)
    moved = _bring_back(decoder, pot, tier, [2], max_tokens=3)
    assert moved.tokens.tolist() == [16, 17, 18]


def test_nothing_is_looked_for_in_an_empty_tier():
    tier = HostTier(SHAPE, 100_000, dtype=torch.float32)
    query = [torch.randn(1, 6, 4, 8)] * 2
    how = {"scale": 1.0, "softcap": None, "block_size": 8, "first": 4, "coverage": 1.0}
    assert rank_blocks(tier, query, **how) == []
    assert rank_blocks(tier, query, num_close=1, **how) == []
    put(tier, 1, *_tokens(0, 9))  # one layer alone has some
    assert rank_blocks(tier, query, **how) != []


@pytest.mark.parametrize("block_size", [8, 12, 64])
def test_a_close_look_at_few_blocks_finds_what_a_look_at_all_finds(block_size):
    """Tokens begin anywhere in a unit, and units reach over the ends of blocks."""
    tier, wanted = HostTier(SHAPE, 10**7, dtype=torch.float32), 333
    for layer in range(2):
        keys, values, origin = _tokens(5, 995, seed=layer)
        keys /= 10
        keys[:, wanted - 5] = 1.5
        put(tier, layer, keys, values, origin)
    queries = [torch.full((1, 6, 2, 8), 0.5)] * 2
    how = {"scale": 1.0, "softcap": None, "block_size": block_size, "first": 4, "coverage": 1.0}
    everything, close = rank_blocks(tier, queries, **how), rank_blocks(tier, queries, num_close=3, **how)
    found = {wanted // block_size, (wanted + min(16, block_size)) // block_size}
    assert {*close[: len(found)]} == {*everything[: len(found)]} == found
    assert 3 <= len(close) <= 6 < len(everything), "three that were compared, and what follows them"
    others = rank_blocks(tier, queries, num_close=3, present={everything[0]}, **how)
    assert everything[0] not in others
    assert 3 <= len(others) <= 6


def _engine(tier, slim=None, pot=POT, **generation):
    config = plain_config(
        pot=pot, tier=tier, slim=slim or SlimConfig(block_size=8, unit_size=8),
        generation=plain_generation(**{"max_new_tokens": 6} | generation),
    )  # fmt: skip
    return Engine(tiny_loaded(), config)


def recall_for(session, question, undo):
    """Bring back what a question needs, with 160 slots left free."""
    recall = host_recall.HostRecall(session.context, 160)
    recall.begin(session.context.decoder.ids(list(question)), np.frombuffer(question, np.uint8))
    return recall.recall(undo)


def _open(session, text):
    for _ in session.open(Document("text", "txt", "part", (Page(1, text),), num_pages=1, size_bytes=len(text))):
        pass


def _read(engine, text=TEXT):
    session = engine.session()
    for _ in session.read(Document("text", "txt", "part", (Page(1, text),), num_pages=1, size_bytes=len(text))):
        pass
    return session


@pytest.mark.parametrize("schedule", ["off", "1:50%,2:25%"])
@pytest.mark.parametrize("policy", ["infinipot", "streaming-llm"])
def test_an_answer_brings_back_what_it_needs_and_leaves_no_trace(schedule, policy):
    slim = SlimConfig(schedule, block_size=8, unit_size=8)
    tier = TierConfig(budget_bytes=10**7, max_tokens=64)
    session = _read(
        _engine(tier, slim, PotConfig(capacity=400, num_kept=96, reserve=160, step_size=120, policy=policy))
    )
    kept_whole = session.context.tokens.num_tokens - int(session.context.host.tier.origin(0).max()) - 1
    assert session.context.host.tier.num_held(0) == session.context.tokens.num_tokens - kept_whole
    assert 0 < kept_whole < POT.capacity, "the end of the document stays in the pot, and needs no copy"
    before = {name: tensor.clone() for name, tensor in session.context.pot.state().items()}
    answers = []
    for _ in range(2):
        events = list(session.ask("Who is the keeper?", plain_generation(max_new_tokens=3 * EVERY_TOKENS, chat=False)))
        revived = [event for event in events if isinstance(event, TokensRecalled)]
        assert revived
        assert 0 < revived[0].num_tokens <= 64
        assert revived[0].pages == (1,)
        finished = events[-1]
        assert isinstance(finished, AnswerFinished)
        assert finished.num_recalled == revived[-1].num_tokens
        answers.append([event.token_id for event in events if isinstance(event, AnswerToken)])
        check_invariants(session.context.pot, session.context.tokens.num_tokens)
        for name, tensor in session.context.pot.state().items():
            assert torch.equal(tensor, before[name]), name
    assert answers[0] == answers[1]


def _asked_without_a_trace(session, **generation):
    """The events of an answer, after which the pot is as it was, bit for bit."""
    before = {name: tensor.clone() for name, tensor in session.context.pot.state().items()}
    settings = plain_generation(**{"chat": False, "num_sources": 0} | generation)
    events = list(session.ask("Who is the keeper of lamp 7?", settings))
    assert isinstance(events[-1], AnswerFinished)
    check_invariants(session.context.pot, session.context.tokens.num_tokens)
    after = session.context.pot.state()
    assert after.keys() == before.keys()
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name]), name
    return events


@pytest.mark.parametrize("schedule", ["off", "1:50%,2:25%"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_tier_works_with_every_policy(policy, schedule):
    pot = PotConfig(capacity=400, num_kept=96, reserve=160, step_size=120, policy=policy)
    slim = SlimConfig(schedule, block_size=8, unit_size=8)
    session = _read(_engine(TierConfig(budget_bytes=10**7, max_tokens=64), slim, pot))
    events = _asked_without_a_trace(session, max_new_tokens=8)
    loses = POLICIES[policy].distills or schedule != "off"
    assert bool([event for event in events if isinstance(event, TokensRecalled)]) == loses
    if not loses:
        assert session.context.host is None, "nothing could come back, and no memory is taken for it"
    elif not POLICIES[policy].distills:
        assert events[0].num_read_on > 0, "what pruning dropped is read on"


def test_a_whole_prompt_leaves_room_for_what_comes_back():
    """SlimInfer's own mode: the deep layers have a slot for every token that they keep, and those that may return."""
    pot = PotConfig(capacity=400, num_kept=96, reserve=160, step_size=120, policy="full")
    slim = SlimConfig("1:50%,2:25%", block_size=8, unit_size=8)
    with_tier, without = (
        _read(_engine(tier, slim, pot)).context.pot.shape.capacities
        for tier in (TierConfig(budget_bytes=10**7, max_tokens=64), TierConfig(budget_bytes=0))
    )
    assert [a - b for a, b in zip(with_tier, without, strict=True)] == [0, 64, 64]


@pytest.mark.parametrize("policy", ["question", "streaming-llm"])
def test_an_answer_that_overwrites_slots_goes_on_looking(policy, monkeypatch):
    """Blocks change at every look: also after the reserve is used up, and then the answer has room again."""
    pot = PotConfig(capacity=240, num_kept=96, reserve=64, step_size=120, decode_policy=policy)
    session = _read(_engine(TierConfig(budget_bytes=10**7, max_tokens=64, every=20), pot=pot))
    looks = iter(range(20, 200, 10))
    monkeypatch.setattr(host_recall, "rank_blocks", lambda *args, **how: list(range(begin := next(looks), begin + 4)))
    events = _asked_without_a_trace(session, max_new_tokens=150)
    kinds = [type(event) for event in events if isinstance(event, AnswerToken | TokensRecalled)]
    assert kinds.count(AnswerToken) == 150
    assert kinds.count(TokensRecalled) == 8, "before the answer, and at every look while it is written"


def test_an_answer_that_has_overwritten_slots_gets_room_by_a_swap(monkeypatch):
    """The first looks find nothing new, so that the answer fills the pot; then one does."""
    pot = PotConfig(capacity=240, num_kept=96, reserve=64, step_size=120)
    session = _read(_engine(TierConfig(budget_bytes=10**7, max_tokens=64, every=20), pot=pot))
    looks, free = iter([range(20, 24)] * 7 + [range(60, 64)]), []
    monkeypatch.setattr(host_recall, "rank_blocks", lambda *args, **how: list(next(looks)))
    settings = plain_generation(chat=False, num_sources=0, max_new_tokens=150)
    before = {name: tensor.clone() for name, tensor in session.context.pot.state().items()}
    for event in session.ask("Who is the keeper of lamp 7?", settings):
        if isinstance(event, AnswerToken):
            free.append(session.context.pot.num_free)
    assert event.num_overwritten > 0
    assert free[138] == 0
    assert free[141] >= 18
    for name, tensor in session.context.pot.state().items():
        assert torch.equal(tensor, before[name]), name


def test_where_an_answer_leaves_no_room_nothing_is_swapped_any_more(monkeypatch):
    pot = PotConfig(capacity=200, num_kept=64, reserve=64, step_size=40)
    session = _read(_engine(TierConfig(budget_bytes=10**7, max_tokens=32, every=20), pot=pot))
    looks = iter(range(20, 200, 10))
    monkeypatch.setattr(host_recall, "rank_blocks", lambda *args, **how: list(range(begin := next(looks), begin + 4)))
    monkeypatch.setattr(session.context.loaded.tokenizer, "eos_ids", ())  # chance is not to end it early
    events = _asked_without_a_trace(session, max_new_tokens=160)
    assert 1 < len([event for event in events if isinstance(event, TokensRecalled)]) < 8


def test_the_pot_holds_the_chosen_blocks_while_it_answers():
    session = _read(_engine(TierConfig(budget_bytes=10**7, max_tokens=64)))
    undo = UndoLog(session.context.pot)
    event = recall_for(session, b"keeper 217", undo)
    wanted = {token for start, stop in event.tokens.tolist() for token in range(start, stop)}
    for origin in session.context.pot.origin[:, 0].flatten(0, 1):
        present = wanted & set(origin.tolist())
        assert len(present) >= event.num_tokens - 1
    undo.rewind()


def test_blocks_that_are_there_already_take_no_place(monkeypatch):
    session = _read(_engine(TierConfig(budget_bytes=10**7, max_tokens=16)))
    last = session.context.tokens.num_tokens // 8 - 1  # of the end of the document, which is never distilled
    asked = []
    monkeypatch.setattr(host_recall, "rank_blocks", lambda *args, **how: [last, last - 1, 20, 30, 40])
    monkeypatch.setattr(
        host_recall, "bring_back", lambda pot, tier, blocks, *rest, **how: asked.append(blocks) or MOVED
    )
    recall_for(session, bytes([1, 2, 3]), UndoLog(session.context.pot))
    assert asked == [[20, 30]]


def test_a_saved_session_brings_back_the_same(tmp_path):
    tier = TierConfig(budget_bytes=10**7, max_tokens=64)
    session = _read(_engine(tier))
    expected = [event for event in session.ask("Who is the keeper?") if isinstance(event, TokensRecalled)]
    save_session(session, tmp_path / "a.pot")
    again = load_session(_engine(tier), tmp_path / "a.pot")
    got = [event for event in again.ask("Who is the keeper?") if isinstance(event, TokensRecalled)]
    assert got[0].tokens.tolist() == expected[0].tokens.tolist()
    with pytest.raises(PotError, match="has room for"):
        load_session(_engine(TierConfig(budget_bytes=10**5)), tmp_path / "a.pot")
    assert load_session(_engine(TierConfig(budget_bytes=0)), tmp_path / "a.pot").context.host is None


def test_a_saved_session_may_be_asked_with_another_look(tmp_path):
    tier = TierConfig(budget_bytes=10**7, max_tokens=64)
    save_session(_read(_engine(tier)), tmp_path / "a.pot")
    narrow = replace(tier, max_tokens=16, num_beside=8, every=4)
    *_, finished = load_session(_engine(narrow), tmp_path / "a.pot").ask("Who is the keeper?")
    assert 0 < finished.num_recalled <= 16
    assert finished.num_aside > 0


@pytest.mark.parametrize("text", [TEXT, TEXT[:200]])
def test_nothing_comes_back_where_nothing_is_outside(text):
    budget = 0 if text == TEXT else 10**7  # there is no tier, or nothing was ever evicted
    session = _read(_engine(TierConfig(budget_bytes=budget)), text)
    assert (session.context.host is None) == (text == TEXT)
    assert not session.context.has_evicted_outside
    events = list(session.ask("Who?"))
    assert not [event for event in events if isinstance(event, TokensRecalled)]
    assert (events[-1].num_recalled, events[-1].pages_recalled) == (0, ())


def test_other_blocks_take_the_place_of_the_first_when_the_answer_looks_elsewhere(monkeypatch):
    """The first look brings one block, every later one as many as there may be: there is room for all of them."""
    session = _read(_engine(TierConfig(budget_bytes=10**7, max_tokens=200)))
    before = {name: tensor.clone() for name, tensor in session.context.pot.state().items()}
    looks = iter([[20], *([list(range(5 + i, 45 + i)) for i in range(0, 90, 30)])])
    monkeypatch.setattr(host_recall, "rank_blocks", lambda *args, **how: next(looks))
    events = list(session.ask("Who?", plain_generation(max_new_tokens=4 * EVERY_TOKENS - 3, chat=False)))
    revived = [event for event in events if isinstance(event, TokensRecalled)]
    assert len(revived) == 4
    assert revived[0].num_tokens <= 8 < revived[1].num_tokens <= 200
    assert revived[0].tokens.min() >= 160
    assert revived[0].tokens.max() <= 168
    assert sum(isinstance(event, AnswerToken) for event in events) == 4 * EVERY_TOKENS - 3
    for name, tensor in session.context.pot.state().items():
        assert torch.equal(tensor, before[name]), name


def test_blocks_stay_while_nine_of_ten_of_what_is_wanted_are_here(monkeypatch):
    session = _read(_engine(TierConfig(budget_bytes=10**7, max_tokens=200)))
    recall = host_recall.HostRecall(session.context, 0)
    looks = iter([list(range(20)), [*range(2, 20), 30, 31], [*range(2, 20), 30, 31, 32], []])
    monkeypatch.setattr(host_recall, "rank_blocks", lambda *args, **how: next(looks))
    monkeypatch.setattr(recall, "_present", frozenset())
    queries = [torch.zeros(1, 4, 1, 16)] * 3
    assert [recall.wants_others(queries) for _ in range(4)] == [True, False, True, False]


@pytest.mark.parametrize(("budget_bytes", "every"), [(200_000, 4), slow(200_000, 1), slow(300_000, 1)])
def test_rings_that_have_wrapped_at_different_places_swap_as_well(budget_bytes, every):
    """Pruning lets shallow rings wrap before deep ones: what is active may have gone from the first layer's alone."""
    tier = TierConfig(budget_bytes=budget_bytes, max_tokens=64, every=every)
    session = _read(_engine(tier, SlimConfig("1:50%,2:25%", block_size=8, unit_size=8)))
    assert session.context.host.tier.num_held(0) < session.context.tokens.num_tokens
    before = {name: tensor.clone() for name, tensor in session.context.pot.state().items()}
    for question in ("Who is the keeper?", "lamp 7 is"):
        events = list(session.ask(question, plain_generation(max_new_tokens=40, chat=False, num_sources=0)))
        assert isinstance(events[-1], AnswerFinished)
    for name, tensor in session.context.pot.state().items():
        assert torch.equal(tensor, before[name]), name


def test_a_stopped_question_leaves_the_pot_as_it_was(monkeypatch):
    session = _read(_engine(TierConfig(budget_bytes=10**7, max_tokens=64)))
    before = {name: tensor.clone() for name, tensor in session.context.pot.state().items()}
    for polls in range(1, 12):
        answers = iter([False] * polls + [True] * 1000)
        monkeypatch.setattr(session._stop, "is_set", lambda answers=answers: next(answers))
        events = list(session.ask("Who is the keeper?"))
        assert events[-1].stop_reason == "cancelled"
        for name, tensor in session.context.pot.state().items():
            assert torch.equal(tensor, before[name]), name
