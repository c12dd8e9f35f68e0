"""Answers that go on where they were cut off: the same tokens as if they had not been."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ondevice.config import EngineConfig, GenerationConfig, PotConfig, TierConfig
from ondevice.documents import Document, Page
from ondevice.errors import PotError
from ondevice.events import AnswerFinished, AnswerToken
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from tests.builders.models import plain_config, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(60))
QUESTION = "Which lamp did keeper 7 light?"
POT = PotConfig(capacity=400, num_kept=160, reserve=200, step_size=60)
LONG = GenerationConfig(max_new_tokens=60, stops_loops=False, num_passage_tokens=0)
CASES = {
    "in free slots": plain_config(pot=POT),
    "over slots of the document": plain_config(pot=replace(POT, reserve=80)),
    "with the host tier": plain_config(pot=POT, tier=TierConfig(budget_bytes=1_000_000, max_tokens=64, every=64)),
}


def session_of(config: EngineConfig) -> Session:
    session = Engine(tiny_loaded(), config).session()
    list(session.read(Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))))
    return session


def written(session: Session, generation: GenerationConfig, **how: object) -> tuple[list[int], AnswerFinished]:
    events = list(session.ask(QUESTION, generation, **how))  # type: ignore[arg-type]
    finished = events[-1]
    assert isinstance(finished, AnswerFinished)
    return [event.token_id for event in events if isinstance(event, AnswerToken)], finished


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("num_first", [1, 25, 59])
def test_an_answer_goes_on_as_if_it_had_not_been_cut(case: str, num_first: int) -> None:
    session = session_of(CASES[case])
    before = session.context.pot.state()
    whole, finished = written(session, LONG)
    assert len(whole) == 60
    first, cut = written(session, replace(LONG, max_new_tokens=num_first))
    assert (cut.stop_reason, cut.num_before) == ("length", 0)
    rest, joined = written(session, replace(LONG, max_new_tokens=60 - num_first), begun=first)
    assert first + rest == whole
    assert joined.text == finished.text
    assert (joined.num_before, joined.num_tokens) == (num_first, 60 - num_first)
    assert joined.sources.num_tokens == finished.sources.num_tokens
    after = session.context.pot.state()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_an_answer_longer_than_all_free_slots_goes_on_too() -> None:
    session = session_of(CASES["over slots of the document"])
    _, finished = written(session, replace(LONG, max_new_tokens=150))
    first, _ = written(session, replace(LONG, max_new_tokens=149))
    rest, joined = written(session, replace(LONG, max_new_tokens=1), begun=first)
    assert len(rest) == 1
    assert joined.num_overwritten >= finished.num_overwritten - 1 > 0


def test_a_loop_is_noticed_across_the_cut() -> None:
    session, looping = session_of(CASES["in free slots"]), [65, 66, 67] * 20
    guarded = replace(LONG, stops_loops=True, max_new_tokens=1)
    _, finished = written(session, guarded, begun=looping)
    assert finished.text.startswith("ABCABC")


def test_another_attempt_draws_other_tokens_and_the_same_one_the_same() -> None:
    session, drawn = session_of(CASES["in free slots"]), replace(LONG, temperature=1.5)
    first, again, other = (written(session, drawn, attempt=attempt)[0] for attempt in (0, 0, 1))
    assert first == again != other


def test_tokens_that_the_model_does_not_have_are_refused() -> None:
    session = session_of(CASES["in free slots"])
    for token in (-1, session.context.decoder.parts.vocab_size):
        with pytest.raises(PotError, match="another model"):
            list(session.ask(QUESTION, LONG, begun=[token]))
