"""Families with layers of several kinds read through a pot: constant bytes, a state that answers leave alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ondevice.config import PotConfig, SlimConfig, SpecConfig, TierConfig
from ondevice.decode.combine import combine
from ondevice.documents.types import Document, Page
from ondevice.errors import ConfigError
from ondevice.events import AnswerFinished, DocumentRead, TokensRead
from ondevice.session.engine import Engine, Session
from ondevice.session.saving import load_reading, load_session, most_saved_bytes, save_reading, save_session
from tests.builders.models import STATEFUL, plain_config, plain_generation, tiny_loaded
from tests.builders.pots import check_invariants

pytestmark = pytest.mark.usefixtures("one_thread")

POT = PotConfig(capacity=192, num_kept=64, reserve=70, step_size=40, context_reset="always")
TEXT = "The lamp was lit at dusk, and it burned until the morning; nobody saw who lit it. " * 24
LOADED = {family: tiny_loaded(family, max_positions=4096) for family in (*STATEFUL, "smollm3", "ministral3")}
for loaded in LOADED.values():
    loaded.tokenizer.eos_ids = frozenset()  # answers are as long as they may be


@pytest.fixture(params=LOADED)
def engine(request: pytest.FixtureRequest) -> Engine:
    config = plain_config(pot=POT, generation=plain_generation(max_new_tokens=90, num_sources=1))
    return Engine(LOADED[request.param], config)


def document() -> Document:
    half = len(TEXT) // 2
    return Document("lamp.txt", "txt", "part", (Page(1, TEXT[:half]), Page(2, TEXT[half:])), 2, len(TEXT))


def holds(session: Session) -> list[torch.Tensor]:
    return [buffer.clone() for buffer in session.context.pot.buffers()]


def is_as(session: Session, before: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(session.context.pot.buffers(), before, strict=True))


def ask(session: Session) -> AnswerFinished:
    *events, finished = session.ask("When was it lit?")
    assert isinstance(finished, AnswerFinished)
    assert not any(isinstance(event, TokensRead) for event in events)
    return finished


def test_ten_times_the_pot_in_constant_bytes_and_two_answers_that_change_nothing(
    engine: Engine, tmp_path: Path
) -> None:
    session = engine.session()
    pot = session.context.pot
    num_bytes, places = pot.nbytes, [buffer.data_ptr() for buffer in pot.buffers()]
    assert num_bytes == session.plan.pot_bytes()
    for event in session.read(document()):
        if isinstance(event, TokensRead):
            check_invariants(pot, event.num_read)
            assert pot.nbytes == num_bytes
    assert isinstance(event, DocumentRead)
    assert event.ledger.tokens_read >= 10 * POT.capacity
    assert [buffer.data_ptr() for buffer in pot.buffers()] == places

    session.reader.score_novelty()
    before, num_seen = holds(session), pot.native.num_seen
    first = ask(session)
    assert first.num_overwritten, "the answer is longer than what is free"
    assert is_as(session, before)
    assert pot.native.num_seen == num_seen
    second = ask(session)
    assert (second.text, is_as(session, before)) == (first.text, True)

    path = tmp_path / "pot"
    save_session(session, path)
    assert path.stat().st_size < most_saved_bytes(session) + 100_000
    again = load_session(engine, path)
    assert is_as(again, before)
    assert ask(again).text == first.text
    assert is_as(again, before)


def test_a_reading_goes_on_in_another_process_as_if_nothing_had_been(engine: Engine, tmp_path: Path) -> None:
    whole = engine.session()
    for _ in whole.read(document()):
        pass
    session = engine.session()
    for event in session.read(document()):
        if isinstance(event, TokensRead) and event.num_read > 1000:
            session.stop()
    assert session.context.spans, "it is in its middle"
    save_reading(session, tmp_path / "reading")
    again = load_reading(engine, tmp_path / "reading")
    assert is_as(again, holds(session))
    for one in (session, again):
        for _ in one.resume():
            pass
        for each in (one, whole):
            each.reader.score_novelty()
        assert is_as(one, holds(whole))


@pytest.mark.parametrize("family", STATEFUL)
def test_a_model_with_a_state_says_what_it_cannot_do(family: str) -> None:
    asked = plain_config(
        pot=POT,
        slim=SlimConfig("1:50%", block_size=8, unit_size=4, window=2),
        spec=SpecConfig(keep=0.5),
        tier=TierConfig(budget_bytes=200_000, max_tokens=24),
    )
    engine = Engine(LOADED[family], asked)
    session = engine.session()
    pruned, skipped, recalled = session.notices
    assert "pruned" in pruned
    assert "small model" in skipped
    assert "recalled" in recalled
    *_, event = session.read(document())
    assert isinstance(event, DocumentRead)
    assert (event.ledger.tokens_pruned, event.ledger.tokens_skipped) == (0, 0)
    before = holds(session)
    finished = ask(session)
    assert (finished.recalled, is_as(session, before)) == (None, True)
    with pytest.raises(ConfigError, match="cannot read first"):
        Engine(LOADED["smollm3"], asked).add_speculator("small", LOADED[family])


@pytest.mark.parametrize("family", STATEFUL)
def test_passages_are_read_again_as_text(family: str) -> None:
    generation = plain_generation(max_new_tokens=6, num_passage_tokens=300)
    engine = Engine(LOADED[family], plain_config(pot=POT, generation=generation))
    session = engine.session()
    for _ in session.read(document()):
        pass
    before = holds(session)
    finished = ask(session)
    assert finished.recalled is not None
    assert finished.recalled.is_text
    assert is_as(session, before)
    assert not combine(engine.config, engine.decoder).recalls_host
