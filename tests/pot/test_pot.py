"""The pot: its invariants under any sequence of operations, the policies, distillation, the undo log."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ondevice.kernels.rope import rotate, signed_sine

from ondevice.config import POLICIES, PotConfig
from ondevice.config.pot import PROMPTS
from ondevice.errors import ConfigError
from ondevice.pot.depths import count_heads, tokens_per_layer
from ondevice.pot.distill import distill
from ondevice.pot.eviction import FixedOrder, LongAnswer, SinkRecent
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.policies import LayerView, make_policy
from ondevice.pot.shape import FREE, PROMPT, UNKNOWN, PotShape
from ondevice.pot.undo import UndoLog
from tests.builders.pots import check_invariants

LAYERS, HEADS, DIM, CAPACITY = 2, 3, 8, 48


def new_pot(capacity=CAPACITY, batch=1, key_rotation="stored"):
    shape = PotShape(LAYERS, HEADS, DIM, capacity, batch, key_rotation, DIM)
    pot = MemoryPot(shape, dtype=torch.float32, device="cpu", rotate_keys=rotate_keys)
    pot.num_protected = 2
    return pot


def rotate_keys(keys, positions, max_positions=CAPACITY, end=None, rope=0):
    angle = positions[..., None] * torch.tensor([1.0, 0.1, 0.01, 0.001])
    cos, sin = torch.cat((angle.cos(),) * 2, -1), torch.cat((angle.sin(),) * 2, -1)
    return rotate(keys, cos, signed_sine(sin))


def feed(pot, num_tokens, first, *, seed=0):
    """Append document tokens [first, first + num_tokens) with random keys, rotated at their positions."""
    generator = torch.Generator().manual_seed(1000 * seed + first)
    for layer in range(LAYERS):
        keys, values = torch.randn(2, pot.shape.batch, HEADS, num_tokens, DIM, generator=generator)
        positions = torch.arange(num_tokens) + pot.next_position[layer]
        pot.append_(layer, keys, rotate_keys(keys, positions.expand(pot.shape.batch, HEADS, -1)), values)
    tokens = torch.arange(first, first + num_tokens, dtype=torch.int32)
    pot.commit_(num_tokens, tokens)
    pot.set_novelty_(tokens, torch.rand(pot.shape.batch, num_tokens, generator=generator))


def random_mass(pot, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(pot.shape.batch, HEADS, n, generator=generator) for n in pot.num_cached]


def config(**fields):
    return PotConfig(
        **{
            "capacity": CAPACITY,
            "num_kept": 16,
            "reserve": 8,
            "num_sink_tokens": 2,
            "context_reset": "always",
            **fields,
        }
    )


def run_distill(pot, mass, settings_, **options):
    policy = make_policy(settings_, seed=0)
    return distill(pot, policy, mass, settings_, **options)


def make_eviction(rule, pot, log):
    eviction = SinkRecent if rule == "streaming-llm" else FixedOrder
    return eviction(LongAnswer(pot, 100, random_mass(pot), pot.num_cached, log.save))


def contents(pot):
    return [buffer.clone() for buffer in pot.buffers()]


def assert_same(pot, before):
    assert all(torch.equal(a, b) for a, b in zip(before, pot.buffers(), strict=True))


@settings(max_examples=60)
@given(
    chunks=st.lists(st.integers(1, 24), min_size=1, max_size=8),
    policy=st.sampled_from([row.name for row in POLICIES.values() if row.distills]),
    novelty=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    num_kept=st.integers(3, 20),
    context_reset=st.sampled_from(["always", "late"]),
    answer_tokens=st.integers(0, 70),
    rule=st.sampled_from(["question", "streaming-llm"]),
    key_rotation=st.sampled_from(["stored", "half-cache", "on-read"]),
)
def test_invariants_hold_after_every_operation(
    chunks, policy, novelty, num_kept, context_reset, answer_tokens, rule, key_rotation
):
    settings_ = config(policy=policy, novelty=novelty, num_kept=num_kept, context_reset=context_reset)
    pot, num_read = new_pot(key_rotation=key_rotation), 0
    addresses, nbytes = [b.data_ptr() for b in pot.buffers()], pot.nbytes
    for i, size in enumerate(chunks):
        if size > pot.num_free:
            run_distill(pot, random_mass(pot, i), settings_)
            check_invariants(pot, num_read)
            assert pot.num_cached == [min(num_kept, pot.num_cached[0])] * LAYERS
        size = min(size, pot.num_free)
        feed(pot, size, num_read)
        num_read += size
        check_invariants(pot, num_read)
    before, log = contents(pot), UndoLog(pot)
    if pot.num_cached[0] > 2:
        eviction = make_eviction(rule, pot, log)
        for i in range(answer_tokens):
            if pot.num_free == 0:
                eviction.make_room()
            tokens = torch.full((1, HEADS, 1, DIM), float(i))
            for layer in range(LAYERS):
                pot.append_(layer, tokens, tokens, tokens)
            pot.commit_(1, PROMPT)
            check_invariants(pot, num_read)
    log.rewind()
    assert_same(pot, before)
    assert [b.data_ptr() for b in pot.buffers()] == addresses
    assert pot.nbytes == nbytes


def test_integrity_check_notices_damage():
    pot = new_pot()
    feed(pot, 10, 0)
    check_invariants(pot, 10)
    for damage in (
        lambda: pot.origin[0, 0, 1].__setitem__(3, 4),  # a token twice in a head
        lambda: pot.origin[1, 0, 0].__setitem__(0, FREE),
        lambda: pot.origin[1, 0, 0].__setitem__(0, 10),  # never read
        lambda: pot.origin[0, 0, 0].__setitem__(20, 1),  # beyond the used slots
        lambda: pot.keys[0][0, 0, 20].fill_(1.0),
        lambda: pot.positions[0, 0, 0].__setitem__(1, 2),
        lambda: pot.novelty[0, 0, 0].__setitem__(1, -0.5),
        lambda: pot.novelty[0, 0, 0].__setitem__(20, UNKNOWN),
    ):
        before = contents(pot)
        damage()
        with pytest.raises(AssertionError):
            check_invariants(pot, 10)
        for buffer, old in zip(pot.buffers(), before, strict=True):
            buffer.copy_(old)


def test_appending_beyond_the_capacity_is_our_mistake():
    pot = new_pot()
    with pytest.raises(AssertionError, match="do not fit"):
        feed(pot, CAPACITY + 1, 0)


def test_kept_slots_are_the_best_and_keep_their_contents():
    pot = new_pot()
    feed(pot, 40, 0)
    keys, mass = [k.clone() for k in pot.keys], random_mass(pot)
    run_distill(pot, mass, config(novelty=0.0))
    for layer in range(LAYERS):
        for head in range(HEADS):
            kept = pot.origin[layer, 0, head, :16]
            others = mass[layer][0, head, 2:].topk(14).indices + 2
            assert set(kept.tolist()) == {0, 1, *others.tolist()}, "two sinks and the 14 best others"
            assert torch.equal(pot.keys[layer][0, head, :16], keys[layer][0, head, kept.long()])


def test_novelty_fills_its_share_first():
    pot = new_pot()
    feed(pot, 40, 0)
    mass, novelty = random_mass(pot), pot.novelty.clone()
    result = run_distill(pot, mass, config(novelty=0.5))
    novel = set(novelty[0, 0, 0, :40].topk(8).indices.tolist())
    for layer in range(LAYERS):
        for head in range(HEADS):
            kept = set(pot.origin[layer, 0, head, :16].tolist())
            assert novel - {0, 1} <= kept
            best = [t for t in mass[layer][0, head].argsort(descending=True).tolist() if t not in novel | {0, 1}]
            assert set(best[: 16 - len(novel | {0, 1})]) <= kept
    assert set(result.novelty_tokens.tolist()) == novel


def test_a_share_of_unknown_novelty_goes_to_the_catalyst():
    """Of 20 kept slots novelty may choose 10, and knows 5 tokens, one of them with a loss of exactly 0."""
    pot = new_pot()
    feed(pot, 40, 0)
    known = torch.tensor([7, 11, 12, 20, 31])
    novelty = torch.full((1, 40), UNKNOWN)
    novelty[0, known] = torch.tensor([0.0, 3.0, 1.0, 2.0, 0.5])
    pot.set_novelty_(torch.arange(40, dtype=torch.int32), novelty)
    mass = random_mass(pot)
    result = run_distill(pot, mass, config(num_kept=20, novelty=0.5))
    check_invariants(pot, 40)
    for layer in range(LAYERS):
        for head in range(HEADS):
            chosen = {0, 1, *known.tolist()}
            best = [t for t in mass[layer][0, head].argsort(descending=True).tolist() if t not in chosen]
            assert set(pot.origin[layer, 0, head, :20].tolist()) == chosen | set(best[:13])
    assert result.novelty_tokens.tolist() == known.tolist()


def test_only_survivors_are_told_as_chosen_for_novelty():
    """Two sinks stay although they are not novel, so that two novel tokens fall out in each head."""
    pot = new_pot()
    feed(pot, 40, 0)
    mass = [layer[:, :1].expand(-1, HEADS, -1) for layer in random_mass(pot)[:1] * LAYERS]
    result = run_distill(pot, mass, config(novelty=1.0))
    assert set(result.novelty_tokens.tolist()) <= set(pot.origin[..., :16].unique().tolist())


def test_layout_is_most_important_first_behind_the_sinks():
    pot = new_pot()
    feed(pot, 40, 0)
    mass = random_mass(pot)
    run_distill(pot, mass, config(novelty=0.25))
    importance = pot.importance[:, :, :, :16]
    assert torch.equal(importance, importance.sort(dim=-1, descending=True).values)
    assert bool((importance[..., :2] == torch.inf).all())
    assert pot.origin[0, 0, 0, :2].sort().values.tolist() == [0, 1]


def test_context_reset_renumbers_in_document_order_and_rotates_anew():
    pot = new_pot()
    feed(pot, 40, 0)
    run_distill(pot, random_mass(pot), config())
    for layer in range(LAYERS):
        for head in range(HEADS):
            positions, origin = pot.positions[layer, 0, head, :16], pot.origin[layer, 0, head, :16]
            assert sorted(positions.tolist()) == list(range(16))
            assert origin[positions.argsort()].tolist() == sorted(origin.tolist())
        expected = rotate_keys(pot.keys[layer][:, :, :16], pot.positions[layer][:, :, :16])
        torch.testing.assert_close(pot.rotated[layer][:, :, :16], expected)
    assert pot.next_position == [16] * LAYERS


def test_without_context_reset_positions_run_on():
    pot = new_pot()
    feed(pot, 40, 0)
    rotated = pot.rotated[0].clone()
    run_distill(pot, random_mass(pot), config(context_reset="late"))
    kept = pot.origin[0, 0, 0, :16]
    assert torch.equal(pot.positions[0, 0, 0, :16], kept)
    assert torch.equal(pot.rotated[0][0, 0, :16], rotated[0, 0, kept.long()])
    assert pot.next_position == [40] * LAYERS


def test_many_resets_do_not_drift():
    """Keys are rotated from what was stored before RoPE, so the hundredth reset is as exact as the first."""
    pot, num_read = new_pot(), 0
    originals = {}
    for i in range(100):
        feed(pot, 20, num_read)
        for slot in range(pot.num_cached[0]):
            originals.setdefault(int(pot.origin[0, 0, 0, slot]), pot.keys[0][0, 0, slot].clone())
        num_read += 20
        run_distill(pot, random_mass(pot, i), config())
    for slot, token in enumerate(pot.origin[0, 0, 0, :16].tolist()):
        assert torch.equal(pot.keys[0][0, 0, slot], originals[token])


@pytest.mark.parametrize("policy", [row.name for row in POLICIES.values() if row.distills and not row.keeps_per_head])
def test_shared_policies_keep_the_same_tokens_in_every_head(policy):
    pot, num_read = new_pot(), 0
    for i in range(4):
        feed(pot, 30, num_read)
        num_read += 30
        run_distill(pot, random_mass(pot, i), config(policy=policy))
        assert bool((pot.origin == pot.origin[:, :, :1]).all())
    if policy == "streaming-llm":
        assert set(pot.origin[0, 0, 0, :16].tolist()) == {0, 1, *range(106, 120)}


def test_tova_averages_over_heads_and_random_differs_between_heads():
    view = LayerView(torch.rand(1, 1, 3, 10), torch.rand(1, 1, 3, 10), torch.arange(10).expand(1, 1, 3, 10), 5)
    tova = make_policy(config(policy="tova"), 0).scores(view)
    torch.testing.assert_close(tova[:, :, 0], view.mass.mean(2))
    assert torch.equal(tova[:, :, 0], tova[:, :, 2])
    scores = make_policy(config(policy="random"), 0).scores(view)
    assert not torch.equal(scores[:, :, 0], scores[:, :, 1])
    assert torch.equal(scores, make_policy(config(policy="random"), 0).scores(view))


def test_retention_counts_heads_per_token():
    pot = new_pot()
    feed(pot, 5, 0)
    pot.origin[0, 0, 0, 2] = PROMPT
    assert count_heads(pot.origin, 7).dense().tolist() == [6, 6, 5, 6, 6, 0, 0]
    per_layer, tokens = tokens_per_layer(pot.origin)
    assert per_layer == (5, 5)
    assert tokens.tolist() == [0, 1, 2, 3, 4]


def test_overwriting_takes_what_the_question_heeds_least():
    pot = new_pot(capacity=12)
    feed(pot, 10, 0)
    mass, eviction = random_mass(pot), make_eviction("question", pot, UndoLog(pot))
    new = torch.ones(1, HEADS, 1, DIM)
    for _ in range(4):
        if pot.num_free == 0:
            eviction.make_room()
        for layer in range(LAYERS):
            pot.append_(layer, new, new, new)
        pot.commit_(1, PROMPT)
    least = mass[0][0, 0, 2:10].argsort()[:2] + 2
    gone = set(range(10)) - set(pot.origin[0, 0, 0].tolist())
    assert gone == set(least.tolist())


def test_catalyst_prompts_are_those_of_table_2():
    assert set(PROMPTS) == {"general", "question", "text"}
    question = config(catalyst="question", catalyst_text="Who wrote it? {text}").catalyst_prompt
    assert question.endswith("Question: Who wrote it? {text}")
    assert config(catalyst="text", catalyst_text=" List the dates. ").catalyst_prompt.strip() == "List the dates."


@pytest.mark.parametrize(
    "fields",
    [
        {"capacity": 8},
        {"num_kept": 2},
        {"num_kept": 44},
        {"novelty": 1.5},
        {"catalyst": "text"},
        {"catalyst": "question", "catalyst_text": "  "},
        {"policy": "best"},
        {"reserve": 0},
        {"step_size": -1},
    ],
)
def test_settings_that_cannot_work_are_refused_with_a_way_out(fields):
    with pytest.raises(ConfigError) as caught:
        config(**fields)
    assert caught.value.fix
