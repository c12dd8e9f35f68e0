"""Sessions on a tiny model: reading, the ledger, asking, stopping, keeping."""

import json

import numpy as np
import pytest
import torch

from ondevice.config import POLICIES, PotConfig
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError, EmptyDocument, PotError, PotMismatch
from ondevice.events import AnswerFinished, AnswerToken, DocumentRead, PotDistilled, TokensRead
from ondevice.pot import numbering
from ondevice.pot.shape import UNKNOWN
from ondevice.session.engine import Engine
from ondevice.session.saving import load_session, save_session, saved_config
from ondevice_bench.quality.completion import complete
from ondevice_bench.quality.shared_prefix import continue_from
from tests.builders.grids import slow
from tests.builders.models import plain_config, plain_generation, tiny_loaded
from tests.builders.pots import check_invariants

POT = PotConfig(capacity=192, num_kept=64, reserve=70, step_size=40)
TEXT = "".join(chr(97 + (i * i + i // 7) % 26) for i in range(900))


@pytest.fixture(scope="module")
def loaded():
    return tiny_loaded("llama")


def engine(loaded, *, max_new_tokens=12, chat=True, **pot):
    fields = {name: getattr(POT, name) for name in ("capacity", "num_kept", "reserve", "step_size")}
    generation = plain_generation(max_new_tokens=max_new_tokens, chat=chat)
    return Engine(loaded, plain_config(pot=PotConfig(**fields | pot), generation=generation))


def document(text=TEXT, pages=3):
    size = -(-len(text) // pages)
    parts = tuple(Page(i + 1, text[i * size : (i + 1) * size]) for i in range(pages))
    return Document("tiny.txt", "txt", "part", parts, pages, len(text))


def stream(text=TEXT, size=50):
    pages = (Page(i + 1, text[at : at + size]) for i, at in enumerate(range(0, len(text), size)))
    return Document("stream", "txt", "part", pages)


def read(session, doc=None):
    events = []
    for event in session.read(doc or document()):
        events.append(event)
        if session.context.is_open:
            check_invariants(session.context.pot, session.context.tokens.num_tokens)
    return events


def check_ledger(ledger):
    parts = ledger.tokens_kept + ledger.tokens_evicted + ledger.tokens_pruned
    assert parts == ledger.tokens_read
    assert parts + ledger.tokens_skipped + ledger.tokens_unread == ledger.tokens_total


@pytest.mark.parametrize(
    ("chat", "reset"), [(True, "always"), slow(False, "always"), slow(True, "late"), (False, "late")]
)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_reads_to_the_end_and_accounts_for_every_token(loaded, policy, reset, chat):
    session = engine(loaded, policy=policy, context_reset=reset, chat=chat).session()
    events = read(session)
    ledger = session.context.ledger
    check_ledger(ledger)
    assert ledger.tokens_total == len(TEXT)
    assert ledger.tokens_unread == 0
    assert isinstance(events[-1], DocumentRead)
    assert events[-1].ledger == ledger
    assert int((session.context.retention.dense() > 0).sum()) == ledger.tokens_kept
    distilled = [e for e in events if isinstance(e, PotDistilled)]
    if POLICIES[policy].keeps_all:
        assert ledger.tokens_kept == len(TEXT)
        assert not distilled
    else:
        assert len(distilled) > 5
        assert ledger.tokens_read == len(TEXT)
        assert all(e.num_kept == POT.num_kept for e in distilled)
        num_sinks = max(4 - len(session.context.chat.prefix), 0)
        assert (session.context.retention.dense()[:num_sinks] == session.context.num_heads_total).all(), "sinks stay"


def test_positions_are_numbered_again_late_and_never_leave_the_window(loaded):
    session = engine(loaded, context_reset="late").session()
    window, highest, numbered = loaded.max_positions, [0], 0
    for event in session.read(document(12 * TEXT)):
        if isinstance(event, PotDistilled):
            highest.append(max(session.context.pot.next_position))
            numbered += highest[-1] < highest[-2]
    assert max(highest) <= window - session.context.config.pot.room
    assert max(highest) > POT.capacity, "not at every distillation"
    assert numbered > 1
    read_on = session.context.pot.positions[..., : session.context.pot.num_cached[0]]
    assert int(read_on.max()) < window


def test_a_long_answer_rotates_all_keys_seldom_wherever_positions_stand(loaded, monkeypatch):
    fields = {"context_reset": "late", "decode_policy": "streaming-llm"}
    session = engine(loaded, max_new_tokens=150, **fields).session()
    for _ in session.read(document(8 * TEXT)):
        pass
    calls, real = [], numbering.refresh_keys_
    monkeypatch.setattr(numbering, "refresh_keys_", lambda pot, *given: calls.append(1) or real(pot, *given))
    session.context.loaded.tokenizer.eos_ids, kept = frozenset(), session.context.loaded.tokenizer.eos_ids
    finished = list(session.ask("why?"))[-1]
    session.context.loaded.tokenizer.eos_ids = kept
    assert finished.num_overwritten > 40
    assert len(calls) <= 2


def test_full_pot_answers_like_transformers(loaded):
    session = engine(loaded, policy="full", chat=False, max_new_tokens=20).session()
    read(session)
    ids = torch.tensor([session.context.chat.prefix + tuple((TEXT + "why?").encode())])
    expected = loaded.model.generate(
        ids, max_new_tokens=20, do_sample=False, attention_mask=torch.ones_like(ids), pad_token_id=259
    )[0, ids.shape[1] :]
    tokens = [e.token_id for e in complete(session, "why?") if isinstance(e, AnswerToken)]
    assert tokens == [t for t in expected.tolist() if t not in loaded.tokenizer.eos_ids]


def test_a_document_that_fits_is_never_distilled_nor_scored(loaded):
    session = engine(loaded).session()
    events = read(session, document(TEXT[:60]))
    assert session.context.num_cycles == 0
    pot = session.context.pot
    assert bool((pot.novelty[..., : pot.num_cached[0]] == UNKNOWN).all())
    assert session.context.ledger.tokens_kept == 60
    assert sum(isinstance(e, TokensRead) for e in events) == 2


def test_a_distillation_tells_as_much_however_long_the_stream_has_become(loaded):
    *_, last = (one for one in read(engine(loaded).session(), stream(TEXT * 4)) if isinstance(one, PotDistilled))
    slots = POT.num_kept * last.num_heads_total
    assert last.retention.tokens.size == last.retention.counts.size <= slots < last.retention.num_tokens // 8


def test_a_stream_of_unknown_length_gives_the_same_pot(loaded):
    whole, streamed = engine(loaded).session(), engine(loaded).session()
    read(whole)
    events = read(streamed, stream())
    for a, b in zip(whole.context.pot.buffers(), streamed.context.pot.buffers(), strict=True):
        assert torch.equal(a, b)
    check_ledger(streamed.context.ledger)
    assert streamed.context.tokens.texts == []
    reads = [e for e in events if isinstance(e, TokensRead)]
    assert reads[0].num_total is None
    assert reads[-1].num_read == len(TEXT)


@pytest.mark.parametrize("policy", [row.name for row in POLICIES.values() if row.keeps_all])
def test_policies_that_need_the_length_refuse_a_stream(loaded, policy):
    with pytest.raises(PotError, match="length"):
        read(engine(loaded, policy=policy).session(), stream())


@pytest.mark.parametrize("policy", [row.name for row in POLICIES.values() if row.keeps_all])
def test_a_pot_that_is_never_distilled_scores_no_token(loaded, policy, tmp_path):
    session = engine(loaded, policy=policy).session()
    read(session)
    save_session(session, tmp_path / "whole.pot")  # waits for every score
    assert not bool((session.context.pot.novelty > 0).any())


def test_novelty_is_the_cross_entropy_of_each_token(loaded):
    """Nothing was evicted before the first distillation, so its novelty is that of transformers' own forward."""
    session = engine(loaded, chat=False).session()
    seen = []
    for event in session.read(document()):
        if isinstance(event, PotDistilled):
            seen = event.novelty_tokens.tolist()
            break
    num_read = session.context.num_read
    ids = torch.tensor([list(TEXT.encode()[:num_read])])
    prefix = torch.tensor([session.context.chat.prefix], dtype=torch.int64)
    logits = loaded.model(torch.cat((prefix, ids), 1)).logits[:, prefix.shape[1] :]
    expected = torch.zeros(num_read)
    expected[1:] = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none")
    pot = session.context.pot
    used = pot.num_cached[0]
    origin = pot.origin[0, 0, 0, :used]
    known = origin > 0
    torch.testing.assert_close(pot.novelty[0, 0, 0, :used][known], expected[origin[known].long()], atol=1e-3, rtol=1e-3)
    assert seen == sorted(expected.topk(POT.num_kept // 2).indices.tolist())


def test_passes_are_independent_of_their_size(loaded):
    pots = []
    for step in (7, 40, 1000):
        session = engine(loaded, step_size=step).session()
        read(session)
        pots.append(session.context.pot)
    for pot in pots[1:]:
        assert torch.equal(pot.origin, pots[0].origin)
        torch.testing.assert_close(pot.keys[0], pots[0].keys[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("max_new_tokens", [3, 40, 200])
def test_asking_leaves_the_pot_bit_identical_and_reads_nothing(loaded, max_new_tokens):
    session = engine(loaded, max_new_tokens=max_new_tokens).session()
    read(session)
    pot, num_read = session.context.pot, session.context.num_read
    before, addresses = [b.clone() for b in pot.buffers()], [b.data_ptr() for b in pot.buffers()]
    answers = [list(session.ask("what?"))[-1] for _ in range(2)]
    assert all(isinstance(a, AnswerFinished) for a in answers)
    assert answers[0].text == answers[1].text
    assert all(torch.equal(a, b) for a, b in zip(before, pot.buffers(), strict=True))
    assert [b.data_ptr() for b in pot.buffers()] == addresses
    assert session.context.num_read == num_read
    assert answers[0].ledger == session.context.ledger
    if answers[0].num_tokens > POT.reserve:
        assert answers[0].num_overwritten > 0


def test_closing_an_answer_half_way_rewinds_too(loaded):
    session = engine(loaded, max_new_tokens=100).session()
    read(session)
    before = [b.clone() for b in session.context.pot.buffers()]
    answering = session.ask("what?")
    for _ in range(20):
        next(answering)
    answering.close()
    assert all(torch.equal(a, b) for a, b in zip(before, session.context.pot.buffers(), strict=True))


def test_stop_ends_an_answer_as_cancelled(loaded):
    session = engine(loaded, max_new_tokens=100).session()
    read(session)
    events = []
    for event in session.ask("what?"):
        events.append(event)
        if isinstance(event, AnswerToken) and event.index == 4:
            session.stop()
    assert events[-1].stop_reason == "cancelled"
    assert events[-1].num_tokens == 5


@pytest.mark.parametrize("how", ["close", "stop", "stop inside a pass"])
@pytest.mark.parametrize("num_events", [9, 21, *map(slow, (5, 13, 17, 25, 29))])
def test_reading_stops_anywhere_and_resumes_to_the_same_pot(loaded, how, num_events):
    whole, stopped = engine(loaded).session(), engine(loaded).session()
    read(whole)
    list(stopped.open(document()))
    reading = stopped.resume()
    for _ in range(num_events):
        next(reading)
    if how == "close":
        reading.close()
    elif how == "stop":
        stopped.stop()
        assert isinstance(list(reading)[-1], DocumentRead)
    else:
        polls = iter([False, True])
        stopped._stop.is_set = lambda: next(polls, True)
        assert isinstance(list(reading)[-1], DocumentRead)
        del stopped._stop.is_set
    check_invariants(stopped.context.pot, stopped.context.num_read)
    assert 0 < stopped.context.ledger.tokens_unread < len(TEXT)
    check_ledger(stopped.context.ledger)
    assert list(stopped.ask("so far?"))[-1].stop_reason in ("end", "length")
    list(stopped.resume())
    check_ledger(stopped.context.ledger)
    # A pause may cut a chunk into other passes, which changes sums in their last bits and nothing else.
    assert torch.equal(whole.context.pot.origin, stopped.context.pot.origin)
    torch.testing.assert_close(whole.context.pot.keys[2], stopped.context.pot.keys[2], atol=1e-3, rtol=1e-3)


def test_a_shared_beginning_is_taken_over_bit_for_bit(loaded):
    e = engine(loaded)
    trunk, branch, apart = e.session(), e.session(), e.session()
    other = TEXT[:500] + TEXT[200:600]
    list(trunk.open(document()))
    reading = trunk.resume()
    while trunk.context.num_read < 400:
        next(reading)
    list(branch.open(document(other)))
    continue_from(branch, trunk)
    events = list(branch.resume())
    read(apart, document(other))
    assert sum(e.num_tokens for e in events if isinstance(e, TokensRead)) == len(other) - trunk.context.num_read
    for a, b in zip(branch.context.pot.buffers(), apart.context.pot.buffers(), strict=True):
        assert torch.equal(a, b)
    assert branch.context.ledger == apart.context.ledger


def test_saved_session_answers_the_same_and_knows_its_text(loaded, tmp_path):
    session = engine(loaded, max_new_tokens=30).session()
    read(session)
    save_session(session, tmp_path / "a.pot")
    again = load_session(engine(loaded, max_new_tokens=30), tmp_path / "a.pot")
    assert [p.name for p in tmp_path.iterdir()] == ["a.pot"], "no temporary file stays"
    for a, b in zip(session.context.pot.buffers(), again.context.pot.buffers(), strict=True):
        assert torch.equal(a, b)
    assert list(session.ask("q?"))[-1].text == list(again.ask("q?"))[-1].text
    assert again.context.ledger == session.context.ledger
    mine, theirs = session.context.tokens, again.context.tokens
    assert mine.texts == theirs.texts
    assert np.array_equal(mine.page_spans(1), theirs.page_spans(1))
    assert mine.page_of(650) == theirs.page_of(650)
    assert saved_config(tmp_path / "a.pot") == session.context.config


def test_saved_session_opens_with_other_settings_for_answers(loaded, tmp_path):
    session = engine(loaded, max_new_tokens=30).session()
    read(session)
    save_session(session, tmp_path / "a.pot")
    other = engine(loaded, max_new_tokens=30, key_rotation="half-cache", decode_policy="streaming-llm")
    again = load_session(other, tmp_path / "a.pot")
    assert again.context.pot.halves
    assert list(session.ask("q?"))[-1].text == list(again.ask("q?"))[-1].text


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"num_kept": 60}, "num_kept=64 instead of 60"),
        ({"novelty": 0.25}, "novelty=0.5 instead of 0.25"),
        ({"chat": False}, "chat=True instead of False"),
    ],
)
def test_saved_session_of_another_method_is_refused_with_the_reason(loaded, tmp_path, other, reason):
    session = engine(loaded).session()
    read(session)
    save_session(session, tmp_path / "a.pot")
    with pytest.raises(PotMismatch, match=reason):
        load_session(engine(loaded, **other), tmp_path / "a.pot")


def test_saved_session_of_another_model_is_refused(loaded, tmp_path):
    session = engine(loaded).session()
    read(session)
    save_session(session, tmp_path / "a.pot")
    with pytest.raises(PotMismatch, match="another model"):
        load_session(engine(tiny_loaded("llama", seed=1)), tmp_path / "a.pot")


def test_damaged_and_missing_pots_are_refused(loaded, tmp_path):
    session = engine(loaded).session()
    read(session)
    path = tmp_path / "a.pot"
    save_session(session, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(PotError, match="damaged"):
        load_session(engine(loaded), path)
    (tmp_path / "b.pot").write_text("hello")
    with pytest.raises(PotError, match="not a saved pot"):
        saved_config(tmp_path / "b.pot")
    with pytest.raises(PotError, match="no such file"):
        saved_config(tmp_path / "c.pot")


def test_saving_half_a_document_is_refused(loaded, tmp_path):
    session = engine(loaded).session()
    list(session.open(document()))
    reading = session.resume()
    next(reading)
    reading.close()
    with pytest.raises(PotError, match="not read to its end"):
        save_session(session, tmp_path / "a.pot")
    assert not list(tmp_path.iterdir())


def test_errors_say_what_to_do_and_lose_nothing(loaded):
    session = engine(loaded).session()
    with pytest.raises(PotError, match="no document"):
        list(session.ask("what?"))
    with pytest.raises(EmptyDocument):
        list(session.read(document("", pages=1)))
    session = engine(loaded).session()
    read(session)
    before = session.context.ledger
    with pytest.raises(PotError, match="free slots"):
        list(session.ask("why " * 100))
    with pytest.raises(PotError, match="empty"):
        list(session.ask("  "))
    with pytest.raises(PotError, match="already"):
        list(session.read(document()))
    assert session.context.ledger == before
    with pytest.raises(ConfigError, match="catalyst prompt"):
        engine(loaded, catalyst="text", catalyst_text="x" * 200).session()
    with pytest.raises(ConfigError, match="prompt and the sinks"):
        engine(loaded, num_kept=6).session()


def test_pages_without_text_are_in_the_ledger(loaded):
    pages = (Page(1, TEXT[:100]), Page(2, "", "scan", "page 2 is an image"), Page(3, TEXT[100:200]))
    session = engine(loaded).session()
    read(session, Document("d.pdf", "pdf", "page", pages, 3, 1000))
    assert [(n.page, n.code) for n in session.context.ledger.pages_without_text] == [(2, "scan")]
    assert session.context.tokens.page_of(99) == 1
    assert session.context.tokens.page_of(100) == 3


def test_a_ledger_lists_so_many_pages_and_counts_the_others(loaded):
    blank = (Page(number, "\n", "blank", f"page {number} is blank") for number in range(2, 502))
    session = engine(loaded).session()
    read(session, Document("d.txt", "txt", "page", (Page(1, TEXT[:100]), *blank), 501, 1000))
    ledger = session.context.ledger
    assert [note.page for note in ledger.pages_without_text] == list(range(2, 202))
    assert ledger.num_pages_without_text == 500
    assert len(json.dumps(ledger.to_dict())) < 20_000


@pytest.mark.parametrize("family", ["gemma2", "qwen3", "phi3", "mistral"])
def test_other_families_read_and_answer(family):
    fields = {"sliding_window": 48} if family == "mistral" else {}
    session = engine(tiny_loaded(family, **fields), max_new_tokens=90).session()
    read(session)
    before = [b.clone() for b in session.context.pot.buffers()]
    finished = list(session.ask("what?"))[-1]
    assert isinstance(finished, AnswerFinished)
    assert all(torch.equal(a, b) for a, b in zip(before, session.context.pot.buffers(), strict=True))
