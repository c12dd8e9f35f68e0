"""The guard against answers that repeat themselves."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondevice.config import PotConfig
from ondevice.decode.loop_guard import LoopGuard
from ondevice.documents import Document, Page
from ondevice.events import AnswerFinished
from ondevice.session.engine import Engine
from tests.builders.models import plain_config, plain_generation, tiny_loaded


def ends_at(ids: list[int]) -> int | None:
    guard = LoopGuard()
    return next((index for index, token in enumerate(ids) if guard.push(token)), None)


@pytest.mark.parametrize(("period", "ends"), [(1, 32), (5, 36), (15, 46), (16, 39), (40, 87), (160, 327)])
def test_a_sentence_ends_when_it_begins_a_third_time(period: int, ends: int) -> None:
    rng = random.Random(period)
    start, sentence = rng.sample(range(1000, 2000), 7), rng.sample(range(1000), period)
    assert ends_at(start + sentence * 60) == len(start) + ends


@given(st.lists(st.integers(0, 10**6), max_size=400, unique=True))
def test_what_is_new_is_no_loop(ids: list[int]) -> None:
    assert ends_at(ids) is None


def test_a_refrain_is_no_loop() -> None:
    verse, refrain = list(range(60)), list(range(100, 130))
    assert ends_at(refrain + verse + refrain + [v + 200 for v in verse] + refrain) is None
    assert ends_at([1, 2, 3, 4] * 7 + list(range(5, 50))) is None


def test_an_answer_in_a_loop_ends_and_says_so_unless_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "The lamp is lit at dusk. " * 6
    engine = Engine(tiny_loaded(), plain_config(pot=PotConfig(capacity=400, num_kept=200, reserve=150)))
    session = engine.session()
    for _ in session.read(Document("lamp.txt", "txt", "part", (Page(1, text),), 1, len(text))):
        pass
    sentence = b"It is lit at dusk by the keeper. "

    def ask(stops_loops: bool) -> AnswerFinished:
        turn = itertools.cycle(sentence)
        monkeypatch.setattr(engine.decoder.head, "likeliest", lambda hidden: next(turn))
        *_, last = session.ask("When?", plain_generation(max_new_tokens=300, num_sources=0, stops_loops=stops_loops))
        assert isinstance(last, AnswerFinished)
        return last

    on, off = ask(True), ask(False)
    assert (on.stop_reason, off.stop_reason) == ("loop", "length")
    assert on.num_tokens < off.num_tokens == 300
    assert off.text.startswith(on.text)
