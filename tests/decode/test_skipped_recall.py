"""Skipped tokens that a question has read after all: which, where they come to stand, and that they leave again."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ondevice.config import PotConfig, SlimConfig, SpecConfig, TierConfig
from ondevice.decode.prompt import Turn
from ondevice.documents import Document, Page
from ondevice.errors import PotMismatch
from ondevice.events import AnswerFinished, TokensRecalled
from ondevice.model.decoder import Decoder
from ondevice.model.late_tokens import read_late
from ondevice.session.engine import Engine
from ondevice.session.saving import load_session, save_session
from ondevice.speculator.unit_keys import MemoryOfKeys
from ondevice_bench.quality.completion import complete
from tests.builders.models import FAMILIES, plain_config, plain_generation, tiny_loaded, tiny_model
from tests.builders.pots import check_invariants
from tests.speculator.test_speculator import TEXT, document

POT = PotConfig(capacity=400, num_kept=96, reserve=160, step_size=50)
SPEC = SpecConfig(keep=0.3, layers=1, chunk_size=8, num_restored=128)


@pytest.fixture(scope="module")
def loaded():
    return tiny_loaded("llama")


def session_of(loaded, spec=SPEC, doc=None, **fields):
    generation = plain_generation(max_new_tokens=6, chat=False)
    session = Engine(loaded, plain_config(**{"pot": POT, "spec": spec, "generation": generation} | fields)).session()
    for _ in session.read(doc or document()):
        pass
    return session


def ask(session, text="kk wu"):
    restored, finished = None, None
    for event in complete(session, text):
        if isinstance(event, TokensRecalled):
            restored = event
            check_invariants(session.context.pot, len(TEXT))
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
    everything, odd = np.arange(300), np.arange(1, 300, 2)

    def best(num_tokens, among=everything, memory=memory):
        return memory.best(queries, num_tokens, among, scale=0.25, softcap=None).tolist()

    found = best(64)
    assert found == list(range(150 + 64, 150 + 128))
    assert best(99_999) == list(range(300))
    assert best(32, odd) == found[1::2]
    assert len(best(100, odd)) == 100, "tokens that do not count leave their places to others"
    assert set(found[1::2]) < set(best(100, odd)) < set(odd.tolist())
    assert best(16) == list(range(222, 238)), "the best units of the block"
    other = MemoryOfKeys()
    other.restore(memory.state(), 300, (2, 2, 16))
    assert best(64, memory=other) == found
    before, after = memory.state()["memory.keys"], memory.state()["memory.keys"]
    assert before.data_ptr() == after.data_ptr(), "nothing is copied again"
    assert memory.nbytes == other.nbytes == 2 * 38 * 2 * 2 * 16  # 19 units of either stretch
    assert best(64, memory=MemoryOfKeys()) == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("key_rotation", ["stored", "half-cache", "on-read"])
def test_tokens_read_late_stand_as_if_read_in_their_place(family, key_rotation):
    """Tokens after the last one that was read see all that is before: then late is the same as in time."""
    decoder = Decoder(tiny_model(family))
    ids = torch.randint(0, 256, (1, 60), generator=torch.Generator().manual_seed(5))
    in_time, late = (decoder.new_pot(80, key_rotation=key_rotation) for _ in range(2))
    origin = torch.arange(60, dtype=torch.int32)
    for pot in (in_time, late):
        decoder.forward(ids[:, :5], pot)
        decoder.forward(ids[:, 5:40], pot, origin=origin[:35])
    decoder.forward(ids[:, 40:], in_time, origin=origin[35:55])
    read_late(decoder, ids[:, 40:], origin[35:55], late)
    check_invariants(late, 60)
    for pot in (late, in_time):
        if pot.workspace is not None:
            pot.workspace.zero_()  # what the last pass left there
    for ours, theirs in zip(late.buffers(), in_time.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=2e-4)


def test_a_question_has_read_what_was_skipped_and_leaves_the_pot_as_it_was(loaded):
    session = session_of(loaded)
    before = session.context.pot.state()
    skipped = set(session.context.depths.skipped.tolist())
    restored, finished = ask(session)
    tokens = [token for start, stop in restored.tokens for token in range(start, stop)]
    assert tokens
    assert set(tokens) <= skipped
    assert restored.num_tokens == finished.num_recalled("skipped") == len(tokens) <= 128
    assert restored.pages == finished.pages_recalled("skipped")
    assert set(restored.pages) <= {1, 2, 3, 4}
    after = session.context.pot.state()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert finished.ledger == session.context.ledger
    assert finished.ledger.tokens_skipped == len(skipped), "the account is of the reading"


@pytest.mark.parametrize("num_restored", [7, 64, 128, 200])
def test_as_many_come_back_as_are_asked_for(loaded, num_restored):
    """Blocks of which a part was read do not count for what was read."""
    session = session_of(loaded, replace(SPEC, num_restored=num_restored), pot=replace(POT, capacity=600))
    assert session.context.depths.skipped.size > 200
    for question in ("kk wu", "why?", "the end"):
        assert ask(session, question)[0].num_tokens == num_restored


def test_it_changes_what_is_answered_from(loaded):
    with_it, without = session_of(loaded), session_of(loaded, replace(SPEC, num_restored=0))
    assert ask(without)[0] is None
    assert ask(with_it)[1].text != ask(without)[1].text


def test_with_nothing_skipped_there_is_nothing_to_restore(loaded):
    assert ask(session_of(loaded, replace(SPEC, keep=1.0, adaptive_keep=(1.0, 1.0))))[0] is None


def test_a_stopped_question_leaves_the_pot_as_it_was(loaded):
    session = session_of(loaded)
    before = session.context.pot.state()
    for event in complete(session, "kk wu"):
        if isinstance(event, TokensRecalled):
            session.stop()
        finished = event
    assert finished.stop_reason == "cancelled"
    events = complete(session, "kk wu")
    assert isinstance(next(events), TokensRecalled)
    events.close()
    after = session.context.pot.state()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_with_pruning_host_tier_and_drafts(loaded):
    session = session_of(
        loaded,
        replace(SPEC, num_draft=2),
        slim=SlimConfig("1:50%,2:25%", block_size=8, unit_size=4, window=2),
        tier=TierConfig(budget_bytes=4_000_000, max_tokens=32, every=2),
    )
    before = session.context.pot.state()
    restored, finished = ask(session)
    assert restored is not None
    assert finished.num_recalled("host") > 0
    after = session.context.pot.state()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_stream_has_nothing_to_read_again(loaded):
    pages = (Page(i + 1, TEXT[at : at + 90]) for i, at in enumerate(range(0, len(TEXT), 90)))
    session = session_of(loaded, doc=Document("stream", "txt", "part", pages))
    assert session.context.num_skipped > 0
    assert ask(session)[0] is None


def test_a_saved_session_still_finds_what_was_skipped(loaded, tmp_path):
    session = session_of(loaded)
    save_session(session, tmp_path / "a.pot")
    again = load_session(Engine(loaded, session.context.config), tmp_path / "a.pot")
    assert ask(again)[0].tokens.tolist() == ask(session)[0].tokens.tolist()


def test_a_saved_session_without_mean_keys_cannot_restore_and_says_so(loaded, tmp_path):
    without, config = session_of(loaded, replace(SPEC, num_restored=0)), session_of(loaded).context.config
    save_session(without, tmp_path / "a.pot")
    with pytest.raises(PotMismatch, match=r"without spec\.num_restored"):
        load_session(Engine(loaded, config), tmp_path / "a.pot")
    save_session(session_of(loaded), tmp_path / "b.pot")
    assert ask(load_session(Engine(loaded, without.context.config), tmp_path / "b.pot"))[0] is None


def test_layers_that_hold_fewer_tokens_limit_what_is_read_again(loaded, tmp_path):
    """Pruning leaves deeper layers fewer slots; a reopened pot is not as large as the settings of now would make it."""
    fields = {
        "pot": replace(POT, policy="full"),
        "slim": SlimConfig("1:50%,2:25%", block_size=8, unit_size=4, window=2),
    }
    save_session(session_of(loaded, replace(SPEC, num_restored=8), **fields), tmp_path / "a.pot")
    config = session_of(loaded, replace(SPEC, num_restored=700), **fields).context.config
    session = load_session(Engine(loaded, config), tmp_path / "a.pot")
    before = session.context.pot.state()
    restored, _ = ask(session)
    assert 0 < restored.num_tokens < 700
    after = session.context.pot.state()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_earlier_turns_leave_room_for_what_is_read_again(loaded):
    """The pot here has many free slots: without earlier turns giving way they would be taken by those."""
    session = session_of(loaded, pot=replace(POT, capacity=1000))
    turns = [Turn("kk wu?", "x" * 100)] * 30
    finished = list(session.ask("kk wu", history=turns))[-1]
    alone = list(session.ask("kk wu"))[-1]
    assert finished.history.num_forgotten > finished.history.num_remembered
    assert finished.num_recalled("skipped") == alone.num_recalled("skipped") > 0
