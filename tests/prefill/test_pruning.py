"""SlimInfer's pruning: what it chooses, that it changes nothing where it keeps everything, and its account."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from ondevice.kernels.block_score import best_unit, block_scores

from ondevice.config import (
    DECODE_POLICIES,
    POLICIES,
    PotConfig,
    SlimConfig,
    SlimLayer,
)
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError, PotMismatch
from ondevice.events import AnswerFinished, AnswerToken, DocumentRead, TokensRead
from ondevice.model.decoder import Decoder
from ondevice.model.layer import finish, project_heads
from ondevice.pot.depths import Depths
from ondevice.pot.novelty import Novelty, WordCounts
from ondevice.pot.shape import PROMPT, UNKNOWN
from ondevice.prefill.pruning import Pruning, slim_steps, stored_tokens
from ondevice.session.engine import Engine
from ondevice.session.saving import load_session, save_session, saved_config
from ondevice_bench.speed.references import block_scores_ref
from tests.builders.grids import KEY_ROTATIONS, first_of
from tests.builders.models import FAMILIES, plain_config, plain_generation, tiny_loaded, tiny_model
from tests.builders.pots import check_invariants

TEXT = "The lamp is lit at dusk by the keeper. " * 40
SLIM = SlimConfig(schedule="1:50%,2:25%", block_size=8, unit_size=4, window=2)
POT = {"capacity": 400, "num_kept": 96, "reserve": 160, "step_size": 120}


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(4, 4), (9, 3), (4, 1)])
@pytest.mark.parametrize("num_tokens", [1, 7, 8, 63, 64, 65, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_block_scores_equal_the_reference(num_heads, num_kv_heads, num_tokens, dtype):
    generator = torch.Generator().manual_seed(num_tokens)
    query = torch.randn(2, num_heads, 3, 16, generator=generator).to(dtype)
    keys = torch.randn(2, num_kv_heads, num_tokens, 16, generator=generator).to(dtype)
    ours = block_scores(query, keys, block_size=64, unit_size=8)
    torch.testing.assert_close(ours, block_scores_ref(query, keys, block_size=64, unit_size=8), atol=1e-4, rtol=1e-4)


def test_the_best_unit_of_each_block_is_averaged_over_the_tokens_that_it_has():
    values = torch.tensor([[1.0, 3.0, 9.0, 1.0, 4.0]])
    assert best_unit(values, block_size=4, unit_size=2).tolist() == [[5.0, 4.0]]


def test_schedules_are_read_and_refused():
    assert SlimConfig().steps() == ()
    assert SlimConfig("10:50%, 20:2048").steps() == (SlimLayer(10, share=0.5), SlimLayer(20, tokens=2048))
    assert [step.layer for step in slim_steps(SlimConfig("auto"), 30)] == [10, 20]
    for wrong in ("10", "10:0%", "0:50%", "10:120%", "20:50%,10:25%", "10:50%,10:25%", "ten:50%", ""):
        with pytest.raises(ConfigError):
            SlimConfig(wrong)
    with pytest.raises(ConfigError, match="the model has 3"):
        slim_steps(SlimConfig("3:50%"), 3)


def test_budgets_are_token_counts():
    assert SlimLayer(1, share=0.25).budget(100) == 25
    assert SlimLayer(1, tokens=64).budget(100) == 64
    assert SlimLayer(1, tokens=64).budget(10) == 10


def test_the_highest_blocks_the_first_and_the_tail_survive():
    config = SlimConfig("1:24", block_size=8, unit_size=4, window=2, rarity=0.0)
    pruning = Pruning(slim_steps(config, 3), config, num_tokens=44, num_tail=3, is_first=True)
    query = torch.zeros(1, 2, 47, 4)
    query[:, :, -2:, 0] = 1.0
    keys = torch.zeros(1, 1, 47, 4)
    keys[0, 0, 18, 0] = 1.0  # block 2
    keys[0, 0, 41, 0] = 5.0  # block 5, which is cut short
    assert pruning.survivors(1, query, keys) is None
    kept = pruning.survivors(0, query, keys)
    assert kept.tolist() == [*range(8), *range(16, 24), *range(40, 47)]


def test_rare_words_fill_their_share_first():
    config = SlimConfig("1:16,2:8", block_size=8, unit_size=4, window=1, rarity=0.5)
    rarity = torch.zeros(40)
    rarity[33] = 9.0
    pruning = Pruning(slim_steps(config, 3), config, 40, 1, is_first=False, rarity=rarity)
    query, keys = torch.zeros(1, 2, 41, 4), torch.zeros(1, 2, 41, 4)
    query[:, :, -1, 0] = 1.0
    keys[0, :, 8:24, 0] = torch.linspace(2.0, 1.0, 16)
    first = pruning.survivors(0, query, keys)
    assert first.tolist() == [*range(8, 16), *range(32, 41)]
    second = pruning.survivors(1, query[:, :, first], keys[:, :, first])
    assert second.tolist() == [*range(8), 16]  # half of one block rounds to none


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("key_rotation", first_of(*KEY_ROTATIONS))
def test_a_schedule_that_keeps_everything_changes_nothing(family, key_rotation):
    decoder = Decoder(tiny_model(family))
    ids = torch.randint(0, 256, (1, 90), generator=torch.Generator().manual_seed(3))
    plain, slim = (decoder.new_pot(120, key_rotation=key_rotation) for _ in range(2))
    config = SlimConfig("1:100%,2:4096", block_size=8, unit_size=4)
    for start in (0, 45):
        part, origin = ids[:, start : start + 45], torch.arange(start, start + 40, dtype=torch.int32)
        expected = decoder.forward(part, plain, origin=origin, num_transient=5, num_observed=5)
        pruning = Pruning(slim_steps(config, 3), config, 40, 5, is_first=start == 0)
        got = decoder.forward(part, slim, origin=origin, num_transient=5, num_observed=5, pruning=pruning)
        torch.testing.assert_close(got.hidden_states, expected.hidden_states, atol=1e-5, rtol=1e-5)
        for ours, theirs in zip(got.mass, expected.mass, strict=True):
            torch.testing.assert_close(ours, theirs)
    for ours, theirs in zip(slim.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert (slim.num_cached, slim.next_position) == (plain.num_cached, plain.next_position)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("key_rotation", first_of(*KEY_ROTATIONS))
def test_pruned_tokens_are_as_if_deeper_layers_had_masked_them(family, key_rotation):
    """The same pass with all tokens in all layers, where a mask hides the pruned ones from the layers below."""
    decoder = Decoder(tiny_model(family))
    ids = torch.randint(0, 256, (1, 100), generator=torch.Generator().manual_seed(4))
    pot = decoder.new_pot(120, key_rotation=key_rotation)
    decoder.forward(ids[:, :20], pot)
    pruning = Pruning(slim_steps(SLIM, 3), SLIM, 70, 10, is_first=False)
    got = decoder.forward(
        ids[:, 20:], pot, origin=torch.arange(70, dtype=torch.int32), num_transient=10, num_observed=10, pruning=pruning
    )
    assert [-(-given.shape[0] // 8) for given in got.offsets] == [9, 4, 2]
    assert pot.num_cached == [20 + given.shape[0] for given in got.offsets]
    assert pot.next_position == [90] * 3
    check_invariants(pot, 70)
    for layer, given in enumerate(got.offsets):
        assert pot.origin[layer, 0, 0, 20 : pot.num_cached[layer]].tolist() == given.tolist()
        assert pot.positions[layer, 0, 0, 20 : pot.num_cached[layer]].tolist() == (given + 20).tolist()
    expected = _masked(decoder, ids, got.offsets)
    tail = torch.arange(70, 80)
    reached = torch.cat((got.offsets[-1], tail))
    torch.testing.assert_close(got.hidden_states, expected[:, 20 + reached], atol=2e-4, rtol=2e-4)


def _masked(decoder, ids, offsets):
    """Layer by layer without a pot: attention over the tokens that reached the layer and stand before the query."""
    parts, num_tokens = decoder.parts, ids.shape[1]
    hidden, positions = parts.embed(ids), torch.arange(num_tokens)
    for layer, given in zip(parts.layers, offsets, strict=True):
        cos, sin = (t[:, None] for t in layer.turn(hidden, positions[None]))
        half = sin.shape[-1] // 2
        signed = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
        _, query, _, keys, values, _ = project_heads(layer, layer.input_norm(hidden), cos, signed)
        if layer.query_scale is not None:
            query = query * layer.query_scale(positions)[:, None]
        distance = positions[:, None] - positions[None]
        is_visible = distance >= 0
        if layer.sliding_window is not None:
            is_visible &= distance < layer.sliding_window
        is_there = torch.zeros(num_tokens, dtype=torch.bool)
        is_there[:20] = is_there[90:] = True
        is_there[20 + given] = True
        groups = parts.num_heads // parts.num_kv_heads
        scores = query @ keys.repeat_interleave(groups, 1).transpose(-1, -2) * parts.scale
        if parts.attention_softcap is not None:
            scores = parts.attention_softcap * torch.tanh(scores / parts.attention_softcap)
        scores = scores.masked_fill(~(is_visible & is_there), -torch.inf).nan_to_num(neginf=-1e30)
        hidden, _ = finish(layer, hidden, scores.softmax(-1) @ values.repeat_interleave(groups, 1), parts.norm)
    return parts.norm(hidden)


def _engine(slim: SlimConfig, **pot: object) -> Engine:
    settings = POT | pot
    return Engine(
        tiny_loaded(), plain_config(pot=PotConfig(**settings), slim=slim, generation=plain_generation(max_new_tokens=6))
    )


def _read(engine: Engine, text: str = TEXT):
    session = engine.session()
    page = Page(1, text)
    events = list(session.read(Document("text", "txt", "part", (page,), num_pages=1, size_bytes=len(text))))
    return session, events


@pytest.mark.parametrize("policy", POLICIES)
def test_a_document_is_read_with_an_account_of_every_token(policy):
    slim = SlimConfig("1:50%,2:25%", block_size=8, unit_size=4)
    session, events = _read(_engine(slim, policy=policy))
    check_invariants(session.context.pot, session.context.tokens.num_tokens)
    ledger = events[-1].ledger
    assert isinstance(events[-1], DocumentRead)
    assert ledger.tokens_read == ledger.tokens_kept + ledger.tokens_evicted + ledger.tokens_pruned
    assert ledger.tokens_total == ledger.tokens_read + ledger.tokens_skipped
    assert ledger.pruned_per_layer[0] == 0
    assert 0 < ledger.pruned_per_layer[1] < ledger.pruned_per_layer[2] < ledger.tokens_read
    for kept, pruned in zip(ledger.kept_per_layer, ledger.pruned_per_layer, strict=True):
        assert kept + pruned <= ledger.tokens_read
    assert (ledger.tokens_pruned > 0) == POLICIES[policy].distills


def test_an_answer_leaves_a_pruned_pot_bit_identical():
    uneven = {"capacity": 500, "num_kept": 300, "reserve": 100, "step_size": 120}
    session, _ = _read(_engine(SLIM, **uneven), TEXT[:480])
    before = {name: tensor.clone() for name, tensor in session.context.pot.state().items()}
    assert len(set(session.context.pot.num_cached)) > 1
    session.context.loaded.tokenizer.eos_ids = frozenset()
    for policy in DECODE_POLICIES:
        config = session.context.config
        session.context.config = plain_config(pot=PotConfig(**uneven, decode_policy=policy), slim=config.slim)
        events = list(session.ask("What is lit?", plain_generation(max_new_tokens=400, chat=False)))
        assert sum(isinstance(event, AnswerToken) for event in events) == 400
        assert isinstance(events[-1], AnswerFinished)
        assert events[-1].num_overwritten > 0
        check_invariants(session.context.pot, session.context.tokens.num_tokens)
        for name, tensor in session.context.pot.state().items():
            assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("policy", DECODE_POLICIES)
@pytest.mark.parametrize("key_rotation", first_of(*KEY_ROTATIONS))
def test_an_answer_overwrites_no_document_token_in_a_layer_with_free_slots(policy, key_rotation):
    uneven = {"capacity": 500, "num_kept": 300, "reserve": 100, "step_size": 120}
    session, _ = _read(_engine(SLIM, **uneven, decode_policy=policy, key_rotation=key_rotation), TEXT[:480])
    session.context.loaded.tokenizer.eos_ids = frozenset()
    pot = session.context.pot
    document, before, used = pot.origin.clone(), pot.state(), list(pot.num_cached)
    num_free = [pot.num_free_in(layer) for layer in range(3)]
    assert min(num_free) < max(num_free) < 400
    num_spared = 0
    for event in session.ask("What is lit?", plain_generation(max_new_tokens=400, chat=False)):
        if not isinstance(event, AnswerToken):
            continue
        for layer, num_document in enumerate(used):
            if pot.num_free_in(layer):
                assert torch.equal(pot.origin[layer, ..., :num_document], document[layer, ..., :num_document])
                num_spared += pot.num_free == 0
    assert num_spared > 0
    assert event.num_overwritten > max(num_free) - min(num_free)
    for name, tensor in pot.state().items():
        assert torch.equal(tensor, before[name]), name


def test_stopping_inside_a_pruned_pass_leaves_a_whole_pot(monkeypatch):
    session = _engine(SLIM).session()
    document = Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))
    for _ in session.open(document):
        pass
    before, polls = list(session.context.pot.num_cached), iter([False] * 3 + [True] * 100)
    monkeypatch.setattr(session._stop, "is_set", lambda: next(polls))
    events = list(session.resume())
    assert events[-1].ledger.tokens_read == 0
    check_invariants(session.context.pot, 0)
    assert session.context.pot.num_cached == before


def test_a_reading_stopped_inside_a_pass_goes_on_as_if_it_had_not_been(monkeypatch):
    whole, _ = _read(_engine(SLIM))
    session = _engine(SLIM).session()
    document = Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))
    for _ in session.open(document):
        pass
    for num_polls in (4, 9, 2):
        polls = iter([False] * num_polls + [True] * 100)
        with monkeypatch.context() as patch:
            patch.setattr(session._stop, "is_set", lambda polls=polls: next(polls))
            list(session.resume())
    list(session.resume())
    assert session.context.ledger == whole.context.ledger
    for name, tensor in session.context.pot.state().items():
        assert torch.equal(tensor, whole.context.pot.state()[name]), name


def test_a_whole_prompt_stopped_at_its_end_can_be_resumed():
    session = _engine(SLIM, policy="full").session()
    document = Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))
    for _ in session.open(document):
        pass
    reading = session.resume()
    next(event for event in reading if isinstance(event, TokensRead))
    reading.close()
    assert list(session.resume())[-1].ledger.tokens_unread == 0


@pytest.mark.parametrize("policy", ["tova", "infinipot"])
@pytest.mark.parametrize("step", first_of(3, 1, 4))
def test_passes_shorter_than_the_window_are_read(policy, step):
    session, _ = _read(_engine(SLIM, policy=policy, step_size=step), TEXT[:420])
    check_invariants(session.context.pot, 420)


def test_novelty_is_known_behind_a_survivor_only():
    losses = lambda states, targets: states[..., 0] + 0.0 * targets  # noqa: E731
    novelty = Novelty(losses)
    states = torch.arange(10, dtype=torch.float32).view(1, 10, 1) + 1
    ids = torch.zeros(1, 5, dtype=torch.int64)
    novelty.add(0, ids, states[:, [0, 1, 4]], torch.tensor([0, 1, 4]))
    novelty.add(5, ids, states[:, 5:8], torch.tensor([0, 1, 2]))
    tokens, values = novelty.take()
    assert tokens.tolist() == list(range(10))
    assert values.tolist() == [[UNKNOWN, 1, 2, UNKNOWN, UNKNOWN, 5, 6, 7, 8, UNKNOWN]]
    novelty.add(10, ids, states[:, :5])  # the token before was pruned
    assert novelty.take()[1].tolist() == [[UNKNOWN, 1, 2, 3, 4]]
    novelty.add(15, ids, states[:, :5])
    assert novelty.take()[1].tolist() == [[5, 1, 2, 3, 4]]
    assert novelty.take() is None
    novelty.add(20, ids, -states[:, :5])
    assert novelty.take()[1].tolist() == [[5, 0, 0, 0, 0]], "a loss below 0 is rounding, and not unknown"


def test_rarity_is_surprise_under_the_counts_of_the_document():
    words = WordCounts(4)
    rarity = words.rarity(torch.tensor([0, 0, 1]))
    np.testing.assert_allclose(rarity, -np.log(np.array([3, 3, 2]) / 7), rtol=1e-6)
    other = deepcopy(words)
    assert torch.equal(other.rarity(torch.tensor([0])), words.rarity(torch.tensor([0])))


def test_depths_count_what_each_layer_never_saw():
    depths = Depths(3)
    depths.note(0, 4, [torch.arange(4), torch.tensor([0, 2]), torch.tensor([2])])
    depths.note(6, 8, [torch.arange(2)] * 3)
    assert depths.state.tolist() == [2, 1, 3, 1, 0, 0, 3, 3]
    assert depths.pruned_per_layer == (0, 2, 3)
    assert depths.num_pruned(np.array([1, 2, 7], np.int32)) == 2


def test_a_whole_prompt_is_pruned_in_one_pass_into_layers_of_fitting_size():
    slim = SlimConfig("1:256,2:64", block_size=64, unit_size=8)
    session, events = _read(_engine(slim, policy="full"))
    pot, total, beside = session.context.pot, session.context.tokens.num_tokens, len(session.context.chat.prefix) + 160
    assert [keys.shape[2] for keys in pot.keys] == [beside + total, beside + 256, beside + 64]
    assert pot.num_cached[0] == len(session.context.chat.prefix) + total
    assert pot.num_cached[1] <= len(session.context.chat.prefix) + 256
    assert pot.num_cached[2] <= len(session.context.chat.prefix) + 64
    check_invariants(pot, total)
    assert sum(isinstance(event, TokensRead) for event in events) == 1
    full = _read(_engine(SlimConfig(), policy="full"))[0]
    assert pot.nbytes < full.context.pot.nbytes
    answer = list(session.ask("What is lit?", plain_generation(max_new_tokens=20, chat=False)))[-1]
    assert isinstance(answer, AnswerFinished)
    check_invariants(pot, total)


def test_models_with_sliding_windows_read_a_full_cache_in_steps():
    config = plain_config(
        pot=PotConfig(**POT, policy="full"),
        slim=SlimConfig("1:64", block_size=8, unit_size=4),
        generation=plain_generation(chat=False),
    )
    session, events = _read(Engine(tiny_loaded("gemma2"), config))
    assert sum(isinstance(event, TokensRead) for event in events) == -(-session.context.tokens.num_tokens // 120)
    assert len({keys.shape[2] for keys in session.context.pot.keys}) == 1
    check_invariants(session.context.pot, session.context.tokens.num_tokens)


def test_a_saved_pruned_session_opens_again_and_no_other(tmp_path):
    for number, (slim, pot) in enumerate(((SLIM, {}), (SlimConfig("1:256,2:64"), {"policy": "full"}))):
        session, _ = _read(_engine(slim, **pot))
        path = tmp_path / f"{number}.pot"
        save_session(session, path)
        again = load_session(_engine(slim, **pot), path)
        assert again.context.ledger == session.context.ledger
        for ours, theirs in zip(again.context.pot.buffers(), session.context.pot.buffers(), strict=True):
            assert torch.equal(ours, theirs)
        assert saved_config(path).slim == slim
        with pytest.raises(PotMismatch, match="slim"):
            load_session(_engine(SlimConfig(), **pot), path)


def test_table_2_of_the_paper():
    """Prompt cache of Llama 3.1 8B at 8k to 32k tokens: 0.80, 1.11, 1.42, 1.58 and 1.73 GB."""
    config, gigabytes = SlimConfig("10:8192,20:4096,30:2048"), []
    for num_tokens in (8192, 16384, 24576, 28672, 32768):
        stored = stored_tokens(slim_steps(config, 32), config, num_tokens, 32)
        gigabytes.append(round(sum(stored) * 2 * 8 * 128 * 2 / 2**30, 2))
    assert gigabytes == [0.80, 1.11, 1.42, 1.58, 1.73]


def test_prompt_tokens_are_never_pruned():
    session, _ = _read(_engine(SLIM))
    assert bool((session.context.pot.origin[:, :, :, : len(session.context.chat.prefix)] == PROMPT).all())
