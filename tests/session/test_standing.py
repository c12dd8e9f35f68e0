"""Passages that stand for the next question: what both have in common is read once, and the rest leaves."""

from __future__ import annotations

from itertools import chain
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from ondevice.documents import Document, Page
from ondevice.model.decoder import Decoder
from ondevice.pot.shape import PROMPT
from ondevice.session.engine import Engine
from ondevice.session.rereading import Rereading
from ondevice.session.session import Session
from ondevice.session.standing import Piece, without
from tests.builders.models import plain_config, plain_generation, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = tuple("".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(at, at + 20)) for at in (0, 20, 40))
FIRST = [(100, 220), (300, 420), (700, 780)]
SECOND = [(40, 80), (160, 220), (300, 390), (900, 1000)]


def session_of(family: str = "llama") -> Session:
    generation = plain_generation(max_new_tokens=12, num_passage_tokens=220)
    session = Engine(tiny_loaded(family, max_positions=4096), plain_config(generation=generation)).session()
    pages = tuple(Page(number, text) for number, text in enumerate(TEXTS, 1))
    size = sum(map(len, TEXTS))
    list(session.read(Document("text", "txt", "page", pages, num_pages=len(pages), size_bytes=size)))
    return session


def read(again: Rereading, found: list[tuple[int, int]], is_stopped: bool = False) -> tuple[Any, int]:
    """The pot that has read these passages, and how many tokens went through the model for it."""
    forward, sizes = Decoder.forward, list[int]()

    def counted(self: Decoder, ids: torch.Tensor, *args: Any, **options: Any) -> Any:
        sizes.append(ids.shape[1])
        return forward(self, ids, *args, **options)

    with mock.patch.object(Decoder, "forward", counted):
        context, _ = again.read(found, 40, lambda: is_stopped, is_kept=True)
    return context.pot, sum(sizes)


def in_order(pot: Any) -> list[int]:
    """Tokens of the document, by position; what belongs to the prompt is PROMPT."""
    used = pot.num_cached[0]
    order = pot.positions[0, 0, 0, :used].argsort()
    return list(pot.origin[0, 0, 0, :used][order].tolist())


def test_what_two_questions_have_in_common_is_read_once() -> None:
    again = session_of()._again
    before, _ = read(again, FIRST)
    origin = before.origin[0, 0, 0].tolist()
    keys = {token: before.slots.keys_at(0, slice(at, at + 1)).clone() for at, token in enumerate(origin)}
    pot, num_read = read(again, SECOND)
    assert pot is before
    heads = sum(piece.head.size for piece in again._standing.pieces if piece.start not in {160, 300})
    assert num_read == 40 + 100 + heads
    assert [token for token in in_order(pot) if token != PROMPT] == [t for a, b in SECOND for t in range(a, b)]
    fresh = read(session_of()._again, SECOND)[0]
    assert in_order(pot)[-100:] == in_order(fresh)[-100:]
    assert pot.next_position == pot.num_cached
    for at, token in enumerate(pot.origin[0, 0, 0].tolist()):
        if token in keys and token >= 160 and token < 390:
            assert torch.equal(pot.slots.keys_at(0, slice(at, at + 1)), keys[token])


def test_a_long_heading_stands_before_its_passage() -> None:
    again = session_of()._again
    long = mock.patch.object(Rereading, "_heading", return_value=np.arange(300, dtype=np.int32) % 100)
    with long:
        read(again, FIRST)
        pot, _ = read(again, SECOND)
    expected = [part for start, stop in SECOND[:3] for part in ([PROMPT] * 300, range(start, stop))]
    prompt = [PROMPT] * len(again._plan.chat.prefix)
    assert in_order(pot)[: len(prompt) + 1090] == [*prompt, *chain(*expected)]


def test_the_same_passages_are_not_read_again_and_say_the_same() -> None:
    session = session_of()
    question = "Which lamp did keeper 41 light?"
    first = list(session.ask(question))[-1]
    found = session._again.find(question, 220)
    pot, _ = read(session._again, found)
    states = pot.state()
    assert read(session._again, found) == (pot, 0)
    assert all(torch.equal(value, states[name]) for name, value in pot.state().items())
    assert list(session.ask(question))[-1].text == first.text


@pytest.mark.parametrize("found", [[(1000, 1100)], [(100, 120), (800, 900)]], ids=["nothing", "hardly anything"])
def test_where_little_is_shared_all_is_read(found: list[tuple[int, int]]) -> None:
    again = session_of()._again
    before, _ = read(again, FIRST)
    pot, num_read = read(again, found)
    assert pot is not before
    assert num_read == pot.num_cached[0]


def test_more_than_there_is_room_for_is_read_into_a_new_pot() -> None:
    again = session_of()._again
    before, _ = read(again, FIRST)
    pot, _ = read(again, [(100, 1100)])
    assert pot is not before
    assert [token for token in in_order(pot) if token != PROMPT] == list(range(100, 1100))


def test_a_state_cannot_leave() -> None:
    again = session_of("qwen3_5_text")._again
    before, _ = read(again, FIRST)
    assert read(again, SECOND)[0] is not before


def test_what_was_stopped_does_not_stand() -> None:
    again = session_of()._again
    read(again, FIRST)
    read(again, SECOND, is_stopped=True)
    assert again._standing is None


def test_while_reading_goes_on_nothing_stands() -> None:
    again = session_of()._again
    again.read(FIRST, 40, lambda: False)
    assert again._standing is None


@pytest.mark.parametrize(
    ("found", "known", "left"),
    [
        ([(0, 10), (20, 30)], [], [(0, 10), (20, 30)]),
        ([(0, 10), (20, 30)], [(2, 4), (25, 30)], [(0, 2), (4, 10), (20, 25)]),
        ([(0, 10)], [(6, 8), (0, 3)], [(3, 6), (8, 10)]),
        ([(0, 10)], [(0, 10)], []),
    ],
)
def test_the_rest_of_stretches(found: Any, known: Any, left: Any) -> None:
    assert without(found, [Piece(start, stop, None) for start, stop in known]) == left
