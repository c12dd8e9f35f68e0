"""Speculative decoding: the same answers as without, whatever the drafts, and both pots as they were."""

from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest
import torch

from ondevice.config import ArtConfig, PotConfig, SpecConfig
from ondevice.decode.drafting import DraftedStep
from ondevice.decode.sampling import accept_or_replace, probabilities
from ondevice.decode.steps import PlainStep
from ondevice.events import AnswerFinished, AnswerToken
from ondevice.model.decoder import Decoder
from ondevice.session.engine import Engine
from ondevice_bench.quality.completion import complete
from tests.builders.grids import first_of, slow
from tests.builders.models import plain_config, plain_generation, tiny_loaded
from tests.builders.pots import check_invariants
from tests.speculator.test_speculator import TEXT, document

POT = PotConfig(capacity=400, num_kept=96, reserve=160, step_size=50)
DRAFTS = SpecConfig(num_draft=3, layers=2, falls_back=False)


@pytest.fixture(scope="module")
def loaded():
    return tiny_loaded("llama", vocab_size=260, seed=1)


def session_of(loaded, spec, *, max_new_tokens=60, temperature=0.0, **fields):
    generation = plain_generation(max_new_tokens=max_new_tokens, temperature=temperature, chat=False, num_sources=0)
    engine = Engine(loaded, plain_config(pot=POT, spec=spec, generation=generation, **fields))
    session = engine.session()
    for _ in session.read(document()):
        pass
    return session


def ask(session, text="why?"):
    tokens, finished = [], None
    for event in complete(session, text):
        if isinstance(event, AnswerToken):
            tokens.append(event.token_id)
        if isinstance(event, AnswerFinished):
            finished = event
    return tokens, finished


@pytest.mark.parametrize(("layers", "num_draft"), [(1, 3), (3, 8), slow(1, 1), slow(2, 8), slow(3, 1)])
def test_greedy_answers_are_those_of_plain_decoding(loaded, layers, num_draft):
    plain = session_of(loaded, SpecConfig())
    # With its own loss for novelty the whole model distils its pot for drafts just as the other one.
    drafting = session_of(loaded, replace(DRAFTS, layers=layers, num_draft=num_draft, novelty="speculator"))
    for question in ("why?", "kk wu"):
        expected, _ = ask(plain, question)
        tokens, finished = ask(drafting, question)
        assert tokens == expected
        assert finished.drafts.num_drafted >= num_draft
        assert 0 <= finished.drafts.num_accepted <= finished.drafts.num_drafted
        if layers == 3:  # the model drafts for itself
            assert finished.drafts.acceptance > 0.9
            assert finished.drafts.num_rounds <= len(tokens) / num_draft + 1


def test_both_pots_are_afterwards_as_they_were(loaded):
    session = session_of(loaded, DRAFTS)
    pots = session.context.pot, session.context.speculator.opened_pot()
    before = [[buffer.clone() for buffer in pot.buffers()] for pot in pots]
    lengths = [(list(pot.num_cached), list(pot.next_position)) for pot in pots]
    ask(session)
    stopping = complete(session, "what then")
    for event in stopping:
        if isinstance(event, AnswerToken) and event.index == 7:
            session.stop()
    ask(session)
    for pot, saved, length in zip(pots, before, lengths, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(pot.buffers(), saved, strict=True))
        assert (pot.num_cached, pot.next_position) == length


def test_the_speculator_reads_what_the_model_reads(loaded):
    session = session_of(loaded, DRAFTS)
    assert session.context.num_skipped == 0
    assert session.context.speculator.num_seen == len(TEXT)
    check_invariants(session.context.speculator.opened_pot(), len(TEXT))
    plain = session_of(loaded, SpecConfig())
    for ours, theirs in zip(session.context.pot.buffers(), plain.context.pot.buffers(), strict=True):
        assert torch.equal(ours, theirs), "drafts change nothing about reading"


def test_together_with_skipping(loaded):
    spec = replace(DRAFTS, keep=0.5)
    drafting, plain = session_of(loaded, spec), session_of(loaded, replace(spec, num_draft=0))
    assert ask(drafting)[0] == ask(plain)[0]


@pytest.mark.parametrize("decode_policy", first_of("question", "streaming-llm", "h2o"))
def test_a_full_pot_ends_the_drafts_and_changes_no_token(loaded, decode_policy):
    """The reserve is used up in the middle of the answer; from there every token overwrites a slot."""
    pot = replace(POT, decode_policy=decode_policy)
    sessions = []
    for spec in (SpecConfig(), DRAFTS):
        session = session_of(loaded, spec, max_new_tokens=200)
        session.context.config = replace(session.context.config, pot=pot)
        sessions.append(session)
    (expected, plain), (tokens, finished) = (ask(session) for session in sessions)
    assert tokens == expected
    assert finished.num_overwritten == plain.num_overwritten > 0
    assert (finished.drafts.num_drafted > 0) == (decode_policy != "h2o")


def test_near_ties_are_read_again_one_by_one(loaded, monkeypatch):
    """With a huge margin everything is a near tie: the answer is then plain decoding's by construction."""
    import ondevice.decode.drafting

    monkeypatch.setattr(ondevice.decode.drafting, "_TIE_UNITS", {torch.float32: 1e9})
    expected, _ = ask(session_of(loaded, SpecConfig()))
    tokens, finished = ask(session_of(loaded, DRAFTS))
    assert tokens == expected
    assert finished.drafts.num_read_again >= finished.drafts.num_rounds - 1


def test_it_falls_back_where_drafts_do_not_pay(loaded, monkeypatch):
    class Costly(DraftedStep):
        def _draft(self, token, num_draft):
            self._seconds += 1.0
            return super()._draft(token, num_draft)

    monkeypatch.setattr("ondevice.decode.drafting.DraftedStep", Costly)
    expected, _ = ask(session_of(loaded, SpecConfig()))
    session = session_of(loaded, replace(DRAFTS, layers=1, falls_back=True))
    tokens, finished = ask(session)
    assert tokens == expected
    assert finished.drafts.fell_back
    assert finished.drafts.num_rounds == (4 if finished.drafts.num_accepted else 2)
    drafted = []
    for _ in range(9):  # it is not tried again in every answer
        tokens, finished = ask(session)
        assert tokens == expected
        drafted.append(finished.drafts.num_drafted > 0)
    assert drafted == [False] * 8 + [True]


def test_reading_again_counts_against_drafts(loaded, monkeypatch):
    """By a clock on which all that is timed takes equally long, drafts that are always right pay, unless every one is
    read again."""
    monkeypatch.setattr("ondevice.decode.drafting.time", SimpleNamespace(perf_counter=count().__next__))
    spec = replace(DRAFTS, layers=3, falls_back=True)
    assert not ask(session_of(loaded, spec))[1].drafts.fell_back
    monkeypatch.setattr("ondevice.decode.drafting._TIE_UNITS", {torch.float32: 1e9})
    tokens, finished = ask(session_of(loaded, spec))
    assert finished.drafts.fell_back
    assert tokens == ask(session_of(loaded, SpecConfig()))[0]


@pytest.mark.parametrize(("size", "other_size"), [(260, 300), (300, 260)])
def test_a_speculator_whose_vocabulary_is_filled_up_otherwise_can_draft(size, other_size):
    """Beyond the tokens of the tokenizer the models have ids that mean nothing, more or fewer of them."""
    loaded, other = (tiny_loaded("llama", vocab_size=n, seed=7) for n in (size, other_size))
    plain, greedy = session_of(loaded, SpecConfig()), None
    for temperature in (0.0, 1.5):
        generation = plain_generation(max_new_tokens=60, temperature=temperature, chat=False, num_sources=0)
        config = plain_config(pot=POT, generation=generation)
        engine = Engine(loaded, config)
        engine.add_speculator("other", other)
        session = engine.session(replace(config, spec=replace(DRAFTS, layers=0, model="other")))
        for _ in session.read(document()):
            pass
        tokens, finished = ask(session)
        assert finished.drafts.num_drafted > 0
        greedy = greedy or tokens
    assert greedy == ask(plain)[0]
    assert size == 260 or max(tokens) >= 260, "an id that the speculator does not have"


def test_drafts_follow_a_document_whose_middle_is_left_out(loaded):
    generation = plain_generation(max_new_tokens=20, chat=False, num_sources=0)
    pot = replace(POT, policy="truncate")
    answers = []
    for spec in (SpecConfig(), DRAFTS):
        session = Engine(loaded, plain_config(pot=pot, spec=spec, generation=generation)).session()
        for _ in session.read(document()):
            pass
        answers.append(ask(session)[0])
    small = session.context.speculator.opened_pot()
    assert torch.equal(small.origin[0].unique(), session.context.pot.origin[0].unique())
    assert session.context.speculator.num_seen == len(TEXT)
    assert answers[0] == answers[1]


def test_with_an_early_end_of_attention_drafts_are_looked_at_by_all_of_the_pot(loaded):
    """Passes over drafts read everything, so that an answer of drafts alone is that without an early end."""
    art = ArtConfig(enabled=True, tau=10.0, phi=10.0, patience=1, block_size=16)
    expected, _ = ask(session_of(loaded, SpecConfig(), max_new_tokens=20))
    tokens, finished = ask(session_of(loaded, DRAFTS, max_new_tokens=20, art=art))
    assert tokens == expected
    assert finished.share_read == 1.0


def test_rejection_sampling_gives_the_target_distribution():
    """A chi-squared test over many draws, for drafts that are good, bad and without the likeliest tokens."""
    generator = torch.Generator().manual_seed(0)
    target = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0])
    num_draws = 4_000
    for draft in ([0.5, 0.3, 0.15, 0.05, 0.0], [0.05, 0.1, 0.2, 0.3, 0.35], [0.0, 0.0, 0.5, 0.5, 0.0]):
        chances = torch.tensor(draft)
        drawn = torch.multinomial(chances, num_draws, replacement=True, generator=generator).tolist()
        counts = torch.zeros(5)
        for token in drawn:
            counts[accept_or_replace(target, chances, token, generator=generator)] += 1
        assert counts[4] == 0
        expected = target[:4] * num_draws
        statistic = float(((counts[:4] - expected) ** 2 / expected).sum())
        assert statistic < 16.27, draft  # 3 degrees of freedom, p = 0.001


@pytest.mark.slow
@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_sampled_answers_are_distributed_as_those_of_plain_decoding(loaded, top_p):
    """The second and third token of many sampled answers, against their exact distribution."""
    whole = Decoder(loaded.model)
    options = {"temperature": 0.7, "top_p": top_p}
    generation = plain_generation(max_new_tokens=8, chat=False, **options)
    session = session_of(loaded, DRAFTS)
    pot, ids = session.context.pot, session.context.decoder.ids(list(b"why?"))
    lengths = list(pot.num_cached), list(pot.next_position)
    state = session.context.decoder.forward(ids, pot).hidden_states
    asked = list(pot.num_cached), list(pot.next_position)
    first = int(whole.head.logits(state[:, -1]).argmax())
    generator = torch.Generator().manual_seed(3)
    num_draws, pairs = 200, []
    for _ in range(num_draws):
        plain = PlainStep(session.context.decoder, pot, generation, generator, None, lambda: False)
        drafter = DraftedStep(plain, plain, session.context.speculator, session.context.config.spec)
        drafter.begin(ids)
        token, drawn = first, []
        for _ in range(2):
            out = drafter.next(token)
            token = drafter.choose(session.context.decoder.head.logits(out.hidden_states[:, -1]))
            drawn.append(token)
        pairs.append(tuple(drawn))
        drafter.end()
        pot.rewind_to_(*asked)
    out = session.context.decoder.forward(session.context.decoder.ids([first]), pot)
    target = probabilities(session.context.decoder.head.logits(out.hidden_states[:, -1])[0], **options)
    target = target / target.sum()
    assert_drawn_from(target, [pair[0] for pair in pairs])
    likeliest = int(target.argmax())
    out = session.context.decoder.forward(session.context.decoder.ids([likeliest]), pot)
    second = probabilities(session.context.decoder.head.logits(out.hidden_states[:, -1])[0], **options)
    assert_drawn_from(second / second.sum(), [pair[1] for pair in pairs if pair[0] == likeliest])
    pot.rewind_to_(*lengths)


def assert_drawn_from(target, drawn):
    """Chi-squared over the likely tokens, each by itself, and the others together; p = 0.001 by Wilson and Hilferty."""
    counts = torch.bincount(torch.tensor(drawn), minlength=target.shape[0]).double()
    is_likely = target * len(drawn) >= 8
    rest = 1.0 - float(target[is_likely].sum())
    expected = target[is_likely].double() * len(drawn)
    statistic = float(((counts[is_likely] - expected) ** 2 / expected).sum())
    degrees = int(is_likely.sum()) - 1
    has_rest = rest * len(drawn) >= 8
    assert int(is_likely.sum()) + has_rest >= 2, "too few draws to tell anything"
    if has_rest:
        statistic += (float(counts[~is_likely].sum()) - rest * len(drawn)) ** 2 / (rest * len(drawn))
        degrees += 1
    limit = degrees * (1 - 2 / (9 * degrees) + 3.09 * (2 / (9 * degrees)) ** 0.5) ** 3
    assert statistic < limit, (statistic, limit)
    assert (counts[target == 0] == 0).all()
