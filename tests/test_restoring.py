"""Skipped tokens that a question has read after all: which, where they come to stand, and that they leave again."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ondevice.config import EngineConfig, GenerationConfig, PotConfig
from ondevice.documents import Document, Page
from ondevice.engine import Engine
from ondevice.errors import PotMismatch
from ondevice.events import AnswerFinished, TokensRestored
from ondevice.history import Turn
from ondevice.method_config import SlimConfig, SpecConfig, TierConfig
from ondevice.model.decoder import Decoder
from ondevice.model.read_on import read_late
from ondevice.prefill.memory_of_keys import MemoryOfKeys
from ondevice.session_file import load_session, save_session
from tests.test_speculate import TEXT, document
from tests.tiny import FAMILIES, tiny_loaded, tiny_model

POT = PotConfig(capacity=400, num_kept=96, reserve=160, step_size=50)
SPEC = SpecConfig(keep=0.3, layers=1, chunk_size=8, num_restored=128)


@pytest.fixture(scope="module")
def loaded():
    return tiny_loaded("llama")


def session_of(loaded, spec=SPEC, doc=None, **fields):
    generation = GenerationConfig(max_new_tokens=6, chat=False)
    session = Engine(loaded, EngineConfig(**{"pot": POT, "spec": spec, "generation": generation} | fields)).session()
    for _ in session.read(doc or document()):
        pass
    return session


def ask(session, text="kk wu"):
    restored, finished = None, None
    for event in session.complete(text):
        if isinstance(event, TokensRestored):
            restored = event
            session.used_pot().check_integrity(len(TEXT))
        if isinstance(event, AnswerFinished):
            finished = event
    return restored, finished


def test_the_best_blocks_of_a_question_are_found():
    memory, generator = MemoryOfKeys(), torch.Generator().manual_seed(0)
    keys = [0.1 * torch.randn(1, 2, 300, 16, generator=generator) for _ in range(2)]
    memory.add([layer[:, :, :150] for layer in keys], 0)
    second = [layer[:, :, 150:].clone() for layer in keys]
    second[1][:, :, 76:82] += 3.0  # tokens 226 to 231 of the document, in the second block of their stretch
    memory.add(second, 150)
    queries = [torch.ones(1, 4, 3, 16)] * 2
    found = memory.best(queries, 1, scale=0.25, softcap=None)
    assert found.tolist() == list(range(150 + 64, 150 + 128))
    assert memory.best(queries, 99, scale=0.25, softcap=None).tolist() == list(range(300))
    other = MemoryOfKeys()
    other.restore(memory.state())
    assert np.array_equal(other.best(queries, 1, scale=0.25, softcap=None), found)
    before, after = memory.state()["memory.keys"], memory.state()["memory.keys"]
    assert before.data_ptr() == after.data_ptr(), "nothing is copied again"
    assert memory.nbytes == other.nbytes == 2 * 38 * 2 * 2 * 16  # 19 units of either stretch
    assert MemoryOfKeys().best(queries, 1, scale=0.25, softcap=None).size == 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("key_rotation", ["stored", "half-cache", "on-read"])
def test_tokens_read_late_stand_as_if_read_in_their_place(family, key_rotation):
    """Tokens behind the last one that was read see all that is before: then late is the same as in time."""
    decoder = Decoder(tiny_model(family))
    ids = torch.randint(0, 256, (1, 60), generator=torch.Generator().manual_seed(5))
    in_time, late = (decoder.new_pot(80, key_rotation=key_rotation) for _ in range(2))
    origin = torch.arange(60, dtype=torch.int32)
    for pot in (in_time, late):
        decoder.forward(ids[:, :5], pot)
        decoder.forward(ids[:, 5:40], pot, origin=origin[:35])
    decoder.forward(ids[:, 40:], in_time, origin=origin[35:55])
    read_late(decoder, ids[:, 40:], origin[35:55], late)
    late.check_integrity(60)
    for pot in (late, in_time):
        if pot.workspace is not None:
            pot.workspace.zero_()  # what the last pass left there
    for ours, theirs in zip(late.buffers(), in_time.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=2e-4)


def test_a_question_has_read_what_was_skipped_and_leaves_the_pot_as_it_was(loaded):
    session = session_of(loaded)
    before = session.used_pot().state()
    skipped = set(session.depths.skipped.tolist())
    restored, finished = ask(session)
    tokens = [token for start, stop in restored.tokens for token in range(start, stop)]
    assert tokens
    assert set(tokens) <= skipped
    assert restored.num_tokens == finished.num_restored == len(tokens) <= 128
    assert restored.pages == finished.pages_restored
    assert set(restored.pages) <= {1, 2, 3, 4}
    after = session.used_pot().state()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert finished.ledger == session.ledger
    assert finished.ledger.tokens_skipped == len(skipped), "the account is of the reading"


def test_it_changes_what_is_answered_from(loaded):
    with_it, without = session_of(loaded), session_of(loaded, replace(SPEC, num_restored=0))
    assert ask(without)[0] is None
    assert ask(with_it)[1].text != ask(without)[1].text


def test_with_nothing_skipped_there_is_nothing_to_restore(loaded):
    assert ask(session_of(loaded, replace(SPEC, keep=1.0, adaptive_keep=(1.0, 1.0))))[0] is None


def test_a_stopped_question_leaves_the_pot_as_it_was(loaded):
    session = session_of(loaded)
    before = session.used_pot().state()
    for event in session.complete("kk wu"):
        if isinstance(event, TokensRestored):
            session.stop()
        finished = event
    assert finished.stop_reason == "cancelled"
    events = session.complete("kk wu")
    assert isinstance(next(events), TokensRestored)
    events.close()
    after = session.used_pot().state()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_with_pruning_host_tier_and_drafts(loaded):
    session = session_of(
        loaded,
        replace(SPEC, num_draft=2),
        slim=SlimConfig("1:50%,2:25%", block_size=8, unit_size=4, window=2),
        tier=TierConfig(budget_bytes=4_000_000, max_tokens=32, every=2),
    )
    before = session.used_pot().state()
    restored, finished = ask(session)
    assert restored is not None
    assert finished.num_revived > 0
    after = session.used_pot().state()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_stream_has_nothing_to_read_again(loaded):
    pages = (Page(i + 1, TEXT[at : at + 90]) for i, at in enumerate(range(0, len(TEXT), 90)))
    session = session_of(loaded, doc=Document("stream", "txt", "part", pages))
    assert session.num_skipped > 0
    assert ask(session)[0] is None


def test_a_saved_session_still_finds_what_was_skipped(loaded, tmp_path):
    session = session_of(loaded)
    save_session(session, tmp_path / "a.pot")
    again = load_session(Engine(loaded, session.config), tmp_path / "a.pot")
    assert ask(again)[0].tokens.tolist() == ask(session)[0].tokens.tolist()


def test_a_saved_session_without_mean_keys_cannot_restore_and_says_so(loaded, tmp_path):
    without, config = session_of(loaded, replace(SPEC, num_restored=0)), session_of(loaded).config
    save_session(without, tmp_path / "a.pot")
    with pytest.raises(PotMismatch, match="without --spec-restore"):
        load_session(Engine(loaded, config), tmp_path / "a.pot")
    save_session(session_of(loaded), tmp_path / "b.pot")
    assert ask(load_session(Engine(loaded, without.config), tmp_path / "b.pot"))[0] is None


def test_layers_that_hold_fewer_tokens_limit_what_is_read_again(loaded, tmp_path):
    """Pruning leaves deeper layers fewer slots; a reopened pot is not as large as the settings of now would make it."""
    fields = {
        "pot": replace(POT, policy="full"),
        "slim": SlimConfig("1:50%,2:25%", block_size=8, unit_size=4, window=2),
    }
    save_session(session_of(loaded, replace(SPEC, num_restored=8), **fields), tmp_path / "a.pot")
    config = session_of(loaded, replace(SPEC, num_restored=700), **fields).config
    session = load_session(Engine(loaded, config), tmp_path / "a.pot")
    before = session.used_pot().state()
    restored, _ = ask(session)
    assert 0 < restored.num_tokens < 700
    after = session.used_pot().state()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_earlier_turns_leave_room_for_what_is_read_again(loaded):
    """The pot here has many free slots: without earlier turns giving way they would be taken by those."""
    session = session_of(loaded, pot=replace(POT, capacity=1000))
    turns = [Turn("kk wu?", "x" * 100)] * 30
    finished = list(session.ask("kk wu", history=turns))[-1]
    alone = list(session.ask("kk wu"))[-1]
    assert finished.num_forgotten > finished.num_remembered
    assert finished.num_restored == alone.num_restored > 0
