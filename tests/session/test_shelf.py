"""Documents side by side in one pot: what each of them kept, where it came from, and what comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ondevice.config import EngineConfig, PotConfig, SlimConfig, SpecConfig, TierConfig
from ondevice.documents.types import Document, Page
from ondevice.errors import PotError
from ondevice.events import AnswerFinished, TokensRecalled
from ondevice.session.engine import Engine, Session
from ondevice.session.shelf import Shelf, pointed_at, shelve
from tests.builders.models import plain_config, plain_generation, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

LOADED = tiny_loaded()
GENERATION = plain_generation(max_new_tokens=6, num_sources=1)
WHOLE = plain_config(pot=PotConfig(capacity=1200, num_kept=200, reserve=96), generation=GENERATION)
SMALL = PotConfig(capacity=224, num_kept=64, reserve=96, step_size=60)
TIERED = plain_config(pot=SMALL, tier=TierConfig(budget_bytes=2_000_000, max_tokens=24), generation=GENERATION)
TEXTS = (
    "The lamp was lit at dusk, écru and bright. " * 6,
    "A boat went out. " * 5,
    "Rain fell on the hill all night. " * 9,
)


def document(which: int) -> Document:
    text, name = TEXTS[which], f"{which}.txt"
    half = len(text) // 2
    pages = (Page(1, text[:half]), Page(2, "", "scan", "A picture."), Page(4, text[half:]))
    return Document(name, "txt", "part", pages, 3, len(text))


def read(engine: Engine, *which: int, config: EngineConfig | None = None) -> list[Session]:
    sessions = []
    for one in which:
        session = engine.session(config)
        for _ in session.read(document(one)):
            pass
        sessions.append(session)
    return sessions


def ask(session: Session) -> tuple[str, list[TokensRecalled]]:
    *events, finished = session.ask("Where is the boat?")
    assert isinstance(finished, AnswerFinished)
    return finished.text, [event for event in events if isinstance(event, TokensRecalled)]


def check_account(shelf: Shelf, sessions: list[Session]) -> None:
    ledger = shelf.session.context.ledger
    assert ledger.tokens_total == ledger.tokens_read == sum(one.context.tokens.num_tokens for one in sessions)
    assert ledger.tokens_kept + ledger.tokens_evicted == ledger.tokens_read
    assert ledger.pages_total == 3 * len(sessions)


@pytest.mark.parametrize("config", [WHOLE, TIERED], ids=["whole", "tiered"])
def test_one_document_alone_answers_as_it_did(config: EngineConfig) -> None:
    engine = Engine(LOADED, config)
    sessions = read(engine, 0)
    shelf = shelve(engine, sessions)
    check_account(shelf, sessions)
    expected, found = sessions[0].context.pot, shelf.session.context.pot
    for layer in range(found.shape.num_layers):
        here, there = (pot.origin[layer, 0].sort(dim=-1).values for pot in (found, expected))
        assert torch.equal(here, there)
    assert ask(shelf.session)[0] == ask(sessions[0])[0]


def test_documents_that_fit_are_laid_side_by_side() -> None:
    engine = Engine(LOADED, WHOLE)
    sessions = read(engine, 0, 1, 2)
    before = [{name: part.clone() for name, part in one.context.pot.state().items()} for one in sessions]
    shelf = shelve(engine, sessions)
    check_account(shelf, sessions)
    assert shelf.session.context.ledger.tokens_evicted == 0
    pot, first = shelf.session.context.pot, 0
    for session in sessions:
        own, num_tokens = session.context.pot, session.context.tokens.num_tokens
        for token in (0, num_tokens // 2, num_tokens - 1):
            slot = (pot.origin[1, 0, 0] == first + token).nonzero().item()
            there = (own.origin[1, 0, 0] == token).nonzero().item()
            assert torch.equal(pot.keys[1][0, :, slot], own.keys[1][0, :, there])
            assert torch.equal(pot.values[1][0, :, slot], own.values[1][0, :, there])
        first += num_tokens
    # One document after the other, each position once.
    used = pot.num_cached[0]
    assert torch.equal(pot.positions[0, 0, 0, :used].sort().values, torch.arange(used, dtype=torch.int32))
    order = pot.origin[0, 0, 0, :used][pot.positions[0, 0, 0, :used].argsort()]
    assert torch.equal(order[order >= 0], torch.arange(first, dtype=torch.int32))
    for session, state in zip(sessions, before, strict=True):
        assert all(torch.equal(part, state[name]) for name, part in session.context.pot.state().items())


def test_pages_are_those_of_their_documents() -> None:
    engine = Engine(LOADED, WHOLE)
    shelf = shelve(engine, read(engine, 0, 1))
    tokens = shelf.session.context.tokens
    assert [shelf.place(page) for page in range(1, 7)] == [
        f"{name}, part {number}" for name in ("0.txt", "1.txt") for number in (1, 2, 4)
    ]
    assert [shelf.place(note.page) for note in tokens.notes] == ["0.txt, part 2", "1.txt, part 2"]
    assert "".join(tokens.texts) == TEXTS[0] + TEXTS[1]
    first_of_second = len(LOADED.tokenizer.encode(TEXTS[0])[0])
    assert shelf.place(tokens.page_of(first_of_second)) == "1.txt, part 1"


@pytest.mark.parametrize("which", [(0, 1, 2), (1, 1), (2, 0, 1, 1)])
def test_what_has_no_room_comes_back_when_it_is_asked_for(which: tuple[int, ...]) -> None:
    engine = Engine(LOADED, TIERED)
    sessions = read(engine, *which)
    shelf = shelve(engine, sessions)
    check_account(shelf, sessions)
    context = shelf.session.context
    assert context.pot.shape.capacity == SMALL.capacity
    assert context.host is not None
    assert context.host.tier.num_held(0) == context.tokens.num_tokens
    assert torch.equal(context.host.tier.origin(1), torch.arange(context.tokens.num_tokens, dtype=torch.int32))
    first = 0
    for session in sessions:  # every document has kept something
        origin, end = context.pot.origin, first + session.context.tokens.num_tokens
        assert ((origin >= first) & (origin < end)).any(dim=-1).all()
        first = end
    state = {name: part.clone() for name, part in context.pot.state().items()}
    _, recalled = ask(shelf.session)
    assert recalled
    assert all(torch.equal(part, state[name]) for name, part in context.pot.state().items())


def test_slots_are_shared_evenly_and_small_documents_leave_theirs_to_others() -> None:
    engine = Engine(LOADED, TIERED)
    sessions = read(engine, 0, 2)
    short = engine.session()
    for _ in short.read(Document("short.txt", "txt", "part", (Page(1, "No."),), 1, 3)):
        pass
    shelf = shelve(engine, [short, *sessions])
    context, num_prompt = shelf.session.context, len(shelf.session.plan.chat.prefix)
    sizes = [one.context.tokens.num_tokens for one in (short, *sessions)]
    held = [int(((context.pot.origin[0, 0, 0] >= end - n) & (context.pot.origin[0, 0, 0] < end)).sum())
            for n, end in zip(sizes, torch.tensor(sizes).cumsum(0).tolist(), strict=True)]  # fmt: skip
    assert held[0] == 3
    assert sum(held) == SMALL.num_kept - num_prompt
    assert abs(held[1] - held[2]) <= 1


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (replace(TIERED, slim=SlimConfig("1:50%,2:25%", block_size=8, unit_size=4, window=2)), "slim"),
        (replace(TIERED, tier=TierConfig(budget_bytes=0)), "was not kept"),
        (replace(TIERED, spec=SpecConfig(keep=0.5, layers=1, chunk_size=8)), "keep"),
    ],
)
def test_a_document_that_was_read_in_another_way_is_refused(config: EngineConfig, problem: str) -> None:
    engine = Engine(LOADED, TIERED)
    with pytest.raises(PotError, match=problem) as caught:
        shelve(engine, [*read(engine, 1, 0), *read(engine, 0, config=config)])
    assert caught.value.where == "0.txt"
    assert caught.value.fix


def test_an_unfinished_reading_is_refused() -> None:
    engine = Engine(LOADED, TIERED)
    session = engine.session()
    for _ in session.open(document(0)):
        pass
    with pytest.raises(PotError, match="not read to its end"):
        shelve(engine, [session])


def test_no_document_is_refused() -> None:
    with pytest.raises(PotError, match="no document"):
        shelve(Engine(LOADED, TIERED), [])


def test_a_tier_that_is_too_small_for_all_is_refused() -> None:
    config = replace(TIERED, tier=replace(TIERED.tier, budget_bytes=120_000))
    engine = Engine(LOADED, TIERED)
    sessions = read(engine, 0, 1, 2)
    with pytest.raises(PotError, match="host tier"):
        shelve(Engine(LOADED, config), sessions)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("M?", [0]),
        ("F?", [2]),
        ("M or F?", [0, 2]),
        ("M, o?", [0, 1]),
        ("Zzyx?", [0, 1, 2]),
        ("?", [0, 1, 2]),
    ],
)
def test_a_question_points_to_documents_by_its_rare_words(question: str, expected: list[int]) -> None:
    # A letter is a word to the tokenizer here.
    engine = Engine(LOADED, TIERED)
    assert pointed_at(read(engine, 0, 1, 2), question) == expected


def test_no_more_documents_than_wanted_are_pointed_to() -> None:
    engine = Engine(LOADED, TIERED)
    assert len(pointed_at(read(engine, 0, 0, 0, 1, 0), "M?")) == 3
