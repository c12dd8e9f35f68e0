"""SpecPrefill: what the speculator scores, what is chosen, and what reading with it leaves."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from ondevice.kernels.attention import head_maximum

from ondevice.config import PotConfig, SlimConfig, SpecConfig, TierConfig
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError, PotMismatch
from ondevice.events import AnswerFinished, AnswerToken, DocumentRead, PotDistilled, TokensChosen, TokensRead
from ondevice.model.decoder import Decoder
from ondevice.model.passes import PassStopped
from ondevice.pot.shape import UNKNOWN
from ondevice.session.engine import Engine
from ondevice.session.saving import load_session, reopened, save_session, saved_config
from ondevice.speculator.choose import choose, chunk_scores, importance, most_chosen
from ondevice.speculator.speculator import Speculator
from ondevice.words import skipped_pages
from ondevice_bench.quality.completion import complete
from ondevice_bench.results.names import contender_name
from ondevice_bench.speed.references import head_maximum_ref
from tests.builders.models import FAMILIES, plain_config, plain_generation, tiny_loaded, tiny_model
from tests.builders.pots import check_invariants

TEXT = "".join(chr(97 + (i * i + i // 7) % 26) for i in range(1100))
POT = {"capacity": 400, "num_kept": 96, "reserve": 160, "step_size": 50}
HALF = SpecConfig(keep=0.5, layers=1, num_lookahead=2, pool_size=3, chunk_size=8)


@pytest.fixture(scope="module")
def loaded():
    return tiny_loaded("llama")


def document(text=TEXT, pages=4):
    size = -(-len(text) // pages)
    parts = tuple(Page(i + 1, text[i * size : (i + 1) * size]) for i in range(pages))
    return Document("tiny.txt", "txt", "part", parts, pages, len(text))


def engine(loaded, spec=HALF, *, slim=SlimConfig(), tier=TierConfig(budget_bytes=0), chat=False, **pot):  # noqa: B008
    generation = plain_generation(max_new_tokens=8, chat=chat)
    config = plain_config(pot=PotConfig(**POT | pot), spec=spec, slim=slim, tier=tier, generation=generation)
    return Engine(loaded, config)


def read(session, doc=None):
    events = []
    for event in session.read(doc or document()):
        events.append(event)
        if not session.context.is_open:
            continue
        check_invariants(session.context.pot, session.context.tokens.num_tokens)
        check_ledger(session)
    return events


def check_ledger(session):
    ledger = session.context.ledger
    parts = ledger.tokens_kept + ledger.tokens_evicted + ledger.tokens_pruned
    assert parts == ledger.tokens_read
    assert parts + ledger.tokens_skipped + ledger.tokens_unread == ledger.tokens_total
    if session.context.speculator is not None:
        assert sum(n for _, n in ledger.skipped_per_page) == ledger.tokens_skipped


# -- scores ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(4, 4), (9, 3), (4, 1)])
@pytest.mark.parametrize("num_queries", [1, 9])
@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_head_maximum_equals_the_reference(num_heads, num_kv_heads, num_queries, softcap, dtype):
    generator = torch.Generator().manual_seed(num_heads)
    query = torch.randn(2, num_heads, num_queries, 16, generator=generator).to(dtype)
    keys = torch.randn(2, num_kv_heads, 37, 16, generator=generator).to(dtype)
    options = {"scale": 0.25, "softcap": softcap}
    tolerance = 1e-6 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(
        head_maximum(query, keys, **options), head_maximum_ref(query, keys, **options), atol=tolerance, rtol=tolerance
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("key_rotation", "model_name"), [("stored", "small"), ("half-cache", "")])
def test_scores_are_the_attention_of_the_last_prompt_token_and_of_those_decoded_from_there(
    family, key_rotation, model_name
):
    """Against transformers' own attention weights over the whole text, prompt and look-ahead."""
    model = tiny_model(family)
    ids = torch.randint(0, 256, (1, 60), generator=torch.Generator().manual_seed(3))
    prompt = torch.randint(0, 256, (1, 7), generator=torch.Generator().manual_seed(4))
    config = SpecConfig(keep=0.5, model=model_name, num_lookahead=3)
    pot = PotConfig(**POT | {"key_rotation": key_rotation})
    speculator = Speculator(
        Decoder(model), pot, config, prompt=prompt, prefix=(), eos_ids=frozenset(), seed=0
    )  # fmt: skip
    speculator.begin(None)
    maxima = speculator.read(ids)
    text = torch.cat((ids, prompt), dim=1)
    for _ in range(3):
        text = torch.cat((text, model(text).logits[:, -1].argmax(-1, keepdim=True)), dim=1)
    weights = torch.stack(model(text, output_attentions=True).attentions)  # (layers, 1, heads, n, n)
    expected = weights[-(3 if model_name else 2) :, 0, :, -4:, :60].amax(dim=(0, 1)).mean(dim=0)
    torch.testing.assert_close(importance(maxima), expected, atol=1e-5, rtol=1e-4)
    assert speculator.opened_pot().num_cached == [60] * 3, "prompt and look-ahead left"


def test_look_ahead_ends_with_the_answer(loaded):
    def scores(eos_ids, num_lookahead):
        config = SpecConfig(keep=0.5, num_lookahead=num_lookahead)
        prompt = loaded_ids("what?")
        speculator = Speculator(
            Decoder(loaded.model), PotConfig(**POT), config, prompt=prompt, prefix=(), eos_ids=eos_ids, seed=0
        )
        speculator.begin(None)
        return importance(speculator.read(loaded_ids(TEXT[:100])))

    everything = frozenset(range(260))
    assert torch.equal(scores(everything, 4), scores(frozenset(), 0))
    assert not torch.equal(scores(frozenset(), 4), scores(frozenset(), 0))


def loaded_ids(text):
    return torch.tensor([list(text.encode())])


def test_own_layers_share_their_weights(loaded):
    whole = Decoder(loaded.model)
    cut = whole.first_layers(2)
    assert len(cut.parts.layers) == 2
    assert cut.parts.layers[1].qkv.weight.data_ptr() == whole.parts.layers[1].qkv.weight.data_ptr()
    assert cut.head is whole.head  # with what it rounds for novelty
    ids, one = torch.arange(1, 9)[None], torch.tensor([[5]])
    pots = [decoder.new_pot(16) for decoder in (whole, cut)]
    for decoder, pot in zip((whole, cut), pots, strict=True):
        decoder.forward(ids, pot)
        decoder.forward(one, pot)  # the shorter way for one token
    for ours, theirs in zip(pots[1].keys, pots[0].keys, strict=False):
        torch.testing.assert_close(ours, theirs)


# -- choices ---------------------------------------------------------------------------------------


def test_chunks_are_smoothed_then_averaged():
    config = SpecConfig(keep=0.5, pool_size=3, chunk_size=4)
    scores = torch.tensor([0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 6.0])
    # smoothed: 0 0 1 1 | 1 0 0 0 | 2, 3 (two tokens there)
    torch.testing.assert_close(chunk_scores(scores, config), torch.tensor([0.5, 0.25, 2.5]))
    raw = SpecConfig(keep=0.5, pool_size=1, chunk_size=1)
    assert torch.equal(chunk_scores(scores, raw), scores)


def test_the_best_chunks_and_the_first_are_chosen():
    config = SpecConfig(keep=0.5, pool_size=1, chunk_size=4)
    scores = torch.zeros(14)
    scores[[9, 13]] = torch.tensor([1.0, 5.0])
    assert choose(scores, config, is_first=False).tolist() == [8, 9, 10, 11, 12, 13]
    assert choose(scores, config, is_first=True).tolist() == [0, 1, 2, 3, 12, 13]
    assert choose(scores, SpecConfig(keep=0.01, chunk_size=4), is_first=False).shape == (2,)


# -- reading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("key_rotation", ["stored", "half-cache"])
def test_skipped_tokens_are_as_if_masked_and_keep_their_places(family, key_rotation):
    """A pass over some tokens of a stretch equals transformers with their original position ids (section 3.2.4)."""
    model = tiny_model(family)
    decoder = Decoder(model)
    ids = torch.randint(0, 256, (1, 70), generator=torch.Generator().manual_seed(4))
    offsets = torch.tensor([0, 1, 2, 9, 10, 30, 31, 32, 33, 58])
    pot = decoder.new_pot(80, key_rotation=key_rotation)
    origin = torch.arange(60, dtype=torch.int32)
    out = decoder.forward(
        torch.cat((ids[:, offsets], ids[:, 60:]), dim=1), pot, origin=origin, num_transient=10, offsets=offsets, span=60
    )
    assert pot.next_position == [60] * 3
    assert pot.positions[1, 0, 1, :10].tolist() == pot.origin[1, 0, 0, :10].tolist() == offsets.tolist()
    check_invariants(pot, 60)
    positions = torch.cat((offsets, torch.arange(60, 70)))
    expected = expected_states(model, ids[:, positions], positions)
    torch.testing.assert_close(out.hidden_states, expected, atol=2e-4, rtol=2e-4)
    # Decoding goes on at the original length.
    more = decoder.forward(ids[:, 60:], pot)
    torch.testing.assert_close(more.hidden_states, expected[:, 10:], atol=2e-4, rtol=2e-4)


def expected_states(model, ids, positions):
    """transformers' own pass with position ids that leave places out; a mask of distances for sliding windows."""
    window = getattr(model.config, "sliding_window", None)
    distance = positions[:, None] - positions[None]
    causal = torch.zeros(distance.shape).masked_fill(distance < 0, torch.finfo(torch.float32).min)
    masks = {"full_attention": causal[None, None]}
    if window is not None:
        masks["sliding_attention"] = causal.masked_fill(distance >= window, torch.finfo(torch.float32).min)[None, None]
    mask = masks if getattr(model.config, "layer_types", None) and window is not None else causal[None, None]
    return model.model(inputs_embeds=model.model.embed_tokens(ids), attention_mask=mask, position_ids=positions[None])[
        0
    ]


def test_reading_all_that_is_chosen_equals_plain_reading_when_everything_is(loaded):
    """A share that rounds to every chunk skips nothing: the pot is then as without a speculator, to rounding."""
    spec = SpecConfig(keep=0.9999, layers=1, num_lookahead=2, chunk_size=8)
    plain, skimmed = engine(loaded, SpecConfig()).session(), engine(loaded, spec).session()
    read(plain)
    read(skimmed)
    assert skimmed.context.num_skipped == 0
    assert skimmed.context.num_cycles == plain.context.num_cycles > 2
    assert skimmed.context.pot.num_cached == plain.context.pot.num_cached
    torch.testing.assert_close(skimmed.context.pot.values[2], plain.context.pot.values[2], atol=1e-4, rtol=1e-4)
    assert torch.equal(skimmed.context.pot.origin, plain.context.pot.origin)


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("policy", ["infinipot", "streaming-llm", "snapkv", "tova", "sirllm", "random", "full"])
def test_every_policy_reads_what_is_chosen_and_accounts_for_the_rest(loaded, policy, chat):
    session = engine(loaded, replace(HALF, layers=2), policy=policy, chat=chat).session()
    events = read(session)
    chosen = [e for e in events if isinstance(e, TokensChosen)]
    ledger = session.context.ledger
    assert isinstance(events[-1], DocumentRead)
    assert ledger.tokens_unread == 0
    assert ledger.tokens_read == sum(e.num_chosen for e in chosen)
    assert sum(e.num_chosen for e in chosen) == sum(int((e.tokens[:, 1] - e.tokens[:, 0]).sum()) for e in chosen)
    assert 0.4 < ledger.tokens_read / sum(e.stop - e.start for e in chosen) < 0.6
    assert chosen[0].tokens[0, 0] == 0, "the sinks are read"
    reads = [e for e in events if isinstance(e, TokensRead)]
    assert reads[-1].num_read + reads[-1].num_skipped == len(TEXT)
    assert reads[0].num_read + reads[0].num_skipped <= chosen[0].stop, "what lies ahead is not passed"
    if policy != "full":
        assert len([e for e in events if isinstance(e, PotDistilled)]) == session.context.num_cycles > 1
    speculator = session.context.speculator
    check_invariants(speculator.opened_pot(), len(TEXT))
    assert speculator.num_seen == len(TEXT)
    if policy == "full":
        origin = speculator.opened_pot().origin.unique()
        expected = [np.arange(e.start, e.stop) for e in chosen]
        assert origin[origin >= 0].tolist() == np.concatenate(expected).tolist()
    assert [e for e in complete(session, "why?") if isinstance(e, AnswerFinished)]
    check_ledger(session)


def new_speculator(loaded, config, **pot):
    speculator = Speculator(
        Decoder(loaded.model), PotConfig(**POT | pot), config, prompt=loaded_ids("what?"), prefix=(),
        eos_ids=frozenset(), seed=0,
    )  # fmt: skip
    speculator.begin(None)
    return speculator


def test_skipped_tokens_are_told_by_page(loaded):
    session = engine(loaded).session()
    events = read(session)
    is_chosen = np.zeros(len(TEXT), bool)
    for event in events:
        if isinstance(event, TokensChosen):
            for start, stop in event.tokens:
                is_chosen[start:stop] = True
    expected = [(page + 1, int((~is_chosen[page * 275 : (page + 1) * 275]).sum())) for page in range(4)]
    assert list(session.context.ledger.skipped_per_page) == expected
    assert (session.context.retention.dense()[~is_chosen] == 0).all()


def test_a_stopped_reading_goes_on_where_it_was(loaded):
    whole, stopped = engine(loaded).session(), engine(loaded).session()
    read(whole)
    events = stopped.read(document())
    for i, event in enumerate(events):
        if isinstance(event, TokensRead) and i > 4:
            stopped.stop()
    for _ in range(100):
        if not stopped.context.spans:
            break
        for event in stopped.resume():
            if isinstance(event, TokensChosen | TokensRead):
                stopped.stop()
        check_ledger(stopped)
    for ours, theirs in zip(stopped.context.pot.buffers(), whole.context.pot.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert stopped.context.ledger == whole.context.ledger


def test_a_speculator_that_is_stopped_has_read_nothing(loaded):
    speculator = new_speculator(loaded, HALF)
    speculator.read(loaded_ids(TEXT[:60]))
    before = speculator.opened_pot().state()
    calls = iter(range(100))
    with pytest.raises(PassStopped):
        speculator.read(loaded_ids(TEXT[60:160]), lambda: next(calls) > 7)
    after = speculator.opened_pot().state()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert speculator.num_seen == 60


def test_with_pruning_and_host_tier(loaded):
    slim = SlimConfig("1:50%,2:25%", block_size=8, unit_size=4, window=2)
    session = engine(loaded, slim=slim, tier=TierConfig(budget_bytes=4_000_000, max_tokens=32)).session()
    events = read(session)
    ledger = session.context.ledger
    assert ledger.tokens_pruned > 0
    assert ledger.tokens_skipped > 400
    assert ledger.tokens_unread == 0
    state = session.context.pot.state()
    for _ in range(2):
        *_, finished = complete(session, "kk wu")
        assert finished.num_recalled > 0
    after = session.context.pot.state()
    assert all(torch.equal(state[name], after[name]) for name in state)
    held = session.context.host.tier.origin(0)
    skipped = session.context.depths.skipped
    assert not np.isin(held.numpy(), skipped).any(), "what was skipped was never in the pot"
    assert any(isinstance(e, PotDistilled) for e in events)


def test_positions_stay_within_the_trained_window():
    loaded = tiny_loaded("llama", max_positions=420)
    session = engine(loaded, SpecConfig(keep=0.1, layers=1, num_lookahead=0, chunk_size=4)).session()
    for _ in session.read(document()):
        pot = session.context.pot
        assert pot is None or max(pot.next_position) <= 420
    pot = session.context.pot
    check_invariants(pot, len(TEXT))
    assert max(pot.next_position) + pot.num_free <= 420, "a question and its answer may take every free slot"


def test_the_novelty_of_a_token_behind_a_skipped_one_is_unknown(loaded):
    session = engine(loaded, capacity=1500).session()
    read(session)
    session.reader.score_novelty()
    pot = session.context.pot
    origin, values = pot.origin[0, 0, 0, : pot.num_cached[0]], pot.novelty[0, 0, 0, : pot.num_cached[0]]
    behind_skipped = torch.cat((torch.tensor([False]), origin[1:] != origin[:-1] + 1))
    assert behind_skipped.any()
    assert (values[~behind_skipped][1:] > 0).all()
    assert (values[behind_skipped] == UNKNOWN).all()


def test_a_saved_session_keeps_what_the_speculator_read(loaded, tmp_path):
    first = engine(loaded)
    session = first.session()
    read(session)
    save_session(session, tmp_path / "a.pot")
    assert saved_config(tmp_path / "a.pot") == first.config
    again = load_session(first, tmp_path / "a.pot")
    assert again.context.ledger == session.context.ledger
    ours, theirs = (s.context.speculator.opened_pot().buffers() for s in (again, session))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)
    assert tokens_of(again) == tokens_of(session)


def tokens_of(session):
    return [e.token_id for e in complete(session, "why?") if isinstance(e, AnswerToken)]


def test_another_model_can_be_the_speculator_if_it_has_the_same_vocabulary(loaded):
    other = tiny_loaded("qwen2", seed=5)
    plain = engine(loaded, SpecConfig())
    plain.add_speculator("other", other)
    spec = SpecConfig(keep=0.5, model="other", num_lookahead=1, chunk_size=8)
    session = plain.session(replace(plain.config, spec=spec))
    read(session)
    assert session.context.ledger.tokens_skipped > 0
    check_invariants(session.context.pot, len(TEXT))


def test_a_saved_session_belongs_to_the_speculators_weights_and_not_to_their_place(loaded, tmp_path):
    def with_other(name, seed):
        one = engine(loaded, SpecConfig(keep=0.5, model=name, chunk_size=8))
        one.add_speculator(name, tiny_loaded("qwen2", seed=seed))
        return one

    first = with_other("here", 5)
    session = first.session()
    read(session)
    save_session(session, tmp_path / "a.pot")
    assert tokens_of(load_session(with_other("moved", 5), tmp_path / "a.pot")) == tokens_of(session)
    with pytest.raises(PotMismatch):
        load_session(with_other("here", 6), tmp_path / "a.pot")


def test_a_saved_session_is_asked_as_is_wished_now(loaded, tmp_path):
    def reopen(path):
        pot, generation = PotConfig(key_rotation="half-cache"), plain_generation(max_new_tokens=12)
        asked = plain_config(pot=pot, seed=9, generation=generation)
        return load_session(Engine(loaded, asked), path, reopened(saved_config(path), asked))

    for spec in (HALF, SpecConfig()):
        session, path = engine(loaded, spec).session(), tmp_path / "a.pot"
        for _ in session.read(document(TEXT[:500])):
            pass
        save_session(session, path)
        again = reopen(path)
        assert (again.context.config.seed, again.context.config.spec) == (9, spec)
        assert not again.context.pot.rotated
        assert len(tokens_of(again)) == 12


def test_what_cannot_work_is_refused(loaded):
    named = engine(loaded, SpecConfig(keep=0.5, layers=4, model="other"))
    named.add_speculator("other", tiny_loaded("qwen2"))
    with pytest.raises(ConfigError, match="the model has 3"):
        named.session()
    with pytest.raises(ConfigError, match="the model has 3"):
        engine(loaded, SpecConfig(keep=0.5, layers=4)).session()
    with pytest.raises(ConfigError, match=r"pot\.reserve"):
        engine(loaded, SpecConfig(keep=0.5, layers=1, num_lookahead=150)).session()
    other = tiny_loaded("llama")
    other.tokenizer._prompt.add_tokens(["another"])
    with pytest.raises(ConfigError, match="another vocabulary"):
        engine(loaded).add_speculator("other", other)
    for wrong in (
        {"keep": 0.0}, {"keep": 1.2}, {"pool_size": 4}, {"chunk_size": 0}, {"num_lookahead": -1},
        {"layers": -1},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            SpecConfig(**wrong)


def test_the_terminal_names_the_pages_that_were_skipped():
    assert skipped_pages([(2, 1500)], "page") == "on page 2 (1,500)"
    assert skipped_pages([(1, 30), (4, 7)], "part") == "on parts 1 (30), 4 (7)"
    many = [(page, 10 + (page == 5)) for page in range(1, 9)]
    assert skipped_pages(many, "page") == "on pages 1–8, most of them (11) on 5"  # noqa: RUF001


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (SpecConfig(), ""),
        (SpecConfig(keep=0.3), " + SpecPrefill 30% full"),
        (SpecConfig(keep=0.3, pool_size=1, chunk_size=1), " + SpecPrefill 30% raw"),
        (SpecConfig(keep=0.1, num_lookahead=8), " + SpecPrefill 10% full LAH 8"),
        (SpecConfig(keep=0.5, layers=8), " + SpecPrefill 50% full + speculator 8 layers"),
        (SpecConfig(keep=0.5, model="small"), " + SpecPrefill 50% full + speculator small"),
    ],
)
def test_a_contender_says_what_its_speculator_does(spec, name):
    assert contender_name(plain_config(spec=spec)) == contender_name(plain_config()) + name


@pytest.mark.parametrize("spec", [HALF, SpecConfig()])
def test_a_full_cache_has_room_for_what_is_chosen_and_no_more(loaded, spec):
    session = engine(loaded, spec, policy="full").session()
    read(session)
    room = POT["reserve"] + most_chosen(len(TEXT), spec)
    assert session.context.pot.shape.capacity == room
    assert session.context.num_read <= most_chosen(len(TEXT), spec)
    if spec == HALF:
        assert session.context.pot.num_free < POT["reserve"] + spec.chunk_size, "only the last chunk may be short"


def test_no_choice_is_larger_than_the_bound():
    for size in (1, 7, 8, 100):
        scores = torch.arange(size).float()
        for spec in (SpecConfig(keep=0.3, chunk_size=8), SpecConfig(keep=0.6, chunk_size=3)):
            assert choose(scores, spec, is_first=True).shape[0] <= most_chosen(size, spec) <= size
