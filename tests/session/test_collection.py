"""Several documents asked together: what is searched and read of each, and where it is from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ondevice.config import ArtConfig, PotConfig, SlimConfig, SpecConfig, TierConfig
from ondevice.documents.tokens import DocumentTokens
from ondevice.documents.types import Document, Page
from ondevice.errors import PotError
from ondevice.events import AnswerFinished, TokensRecalled
from ondevice.session.collection import collect
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from tests.builders.models import plain_config, plain_generation, tiny_loaded, tokenised

pytestmark = pytest.mark.usefixtures("one_thread")

LOADED = tiny_loaded(max_positions=8192)
GENERATION = plain_generation(max_new_tokens=6, num_sources=1, num_passage_tokens=200)
ENGINE = Engine(LOADED, plain_config(pot=PotConfig(capacity=224, num_kept=64, reserve=96), generation=GENERATION))
TEXTS = (
    "The lamp was lit at dusk, \u00e9cru and bright. " * 40,
    "A boat went out. " * 5 + "The harbour master is Ida Voss. " + "A boat came in. " * 80,
    "Rain fell on the hill all night. " * 60,
)


def document(which: int) -> DocumentTokens:
    text, name = TEXTS[which], f"{which}.txt"
    half = len(text) // 2
    pages = (Page(1, text[:half]), Page(2, "", "scan", "A picture."), Page(4, text[half:]))
    return tokenised(Document(name, "txt", "part", pages, 3, len(text)), LOADED.tokenizer.encode)


def ask(collection: Session, question: str) -> tuple[AnswerFinished, list[TokensRecalled]]:
    *events, finished = collection.ask(question)
    assert isinstance(finished, AnswerFinished)
    return finished, [event for event in events if isinstance(event, TokensRecalled)]


def read_for(collection: Session, question: str) -> str:
    """The text that is read for a question."""
    [recalled] = ask(collection, question)[1]
    text, spans = collection.context.tokens.whole()
    return "".join(text[spans[start, 0] : spans[stop - 1, 1]] for start, stop in recalled.tokens)


def test_pages_are_those_of_their_documents() -> None:
    collection = collect(ENGINE, [document(0), document(1)])
    tokens = collection.context.tokens
    assert [tokens.place(page) for page in range(1, 7)] == [
        f"{name}, part {number}" for name in ("0.txt", "1.txt") for number in (1, 2, 4)
    ]
    assert [tokens.place(note.page) for note in tokens.notes] == ["0.txt, part 2", "1.txt, part 2"]
    assert "".join(tokens.texts) == TEXTS[0] + TEXTS[1]
    first_of_second = tokens.firsts[1]
    assert tokens.place(tokens.page_of(first_of_second)) == "1.txt, part 1"
    assert tokens.file_of(tokens.page_of(first_of_second - 1)) == "0.txt"


def test_documents_of_one_name_are_told_apart() -> None:
    texts = [document(0), document(0), document(1)]
    collection = collect(ENGINE, texts)
    assert list(map(collection.context.tokens.file_of, (1, 4, 7))) == ["0.txt (1)", "0.txt (2)", "1.txt"]
    assert collection.context.tokens.place(4) == "0.txt (2), part 1"
    assert texts[0].document.name == "0.txt"


def test_a_document_that_a_question_names_is_searched_alone() -> None:
    collection = collect(ENGINE, [document(0), document(1), document(1)])
    assert "boat" in read_for(collection, "Which boat came in?")
    assert "boat" not in read_for(collection, "Which boat came in, or lamp, by 0.txt?")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1,)])
def test_a_question_finds_its_passage_in_whichever_document_has_it(order: tuple[int, ...]) -> None:
    texts = [document(which) for which in order]
    before = [tokens.state() for tokens in texts]
    collection = collect(ENGINE, texts)
    assert not collection.context.has_pot, "nothing is read but what is found"
    assert "Ida Voss" in read_for(collection, "Who is the harbour master?")
    finished, [recalled] = ask(collection, "Who is the harbour master?")
    assert "1.txt" in map(collection.context.tokens.file_of, recalled.pages)
    assert all(
        collection.context.tokens.file_of(source.page) in {f"{which}.txt" for which in order}
        for source in finished.sources.passages
    )
    for tokens, state in zip(texts, before, strict=True):
        assert all((part == state[name]).all() for name, part in tokens.state().items())


@pytest.mark.parametrize("question", ["Summarise them.", "Qzx?"])
def test_without_a_passage_to_find_each_document_begins(question: str) -> None:
    collection = collect(ENGINE, [document(which) for which in range(3)])
    text = read_for(collection, question)
    assert all(start[:20] in text for start in TEXTS)


def test_places_of_one_document_are_not_taken_for_those_of_another() -> None:
    collection = collect(ENGINE, [document(0), document(1)])
    finished, recalled = ask(collection, "What is on part 1?")
    assert recalled
    assert finished.text
    assert ask(collection, "How many parts does the document have?")[0].stop_reason != "outline"


def test_answers_are_the_same_again_and_hold_no_pot() -> None:
    collection = collect(ENGINE, [document(0), document(1)])
    first = ask(collection, "Who is the harbour master?")[0]
    assert ask(collection, "Who is the harbour master?")[0].text == first.text
    assert not collection.context.has_pot
    pots = plain_generation(max_new_tokens=6, num_passage_tokens=0)
    *_, finished = collection.ask("Who is the harbour master?", pots)
    assert isinstance(finished, AnswerFinished)
    assert finished.recalled is not None, "there is no pot to answer from"


@pytest.mark.parametrize(
    "settings",
    [
        {"slim": SlimConfig("1:50%", block_size=8, unit_size=4, window=2)},
        {"spec": SpecConfig(keep=0.5, layers=1, chunk_size=8)},
        {"art": ArtConfig(enabled=True, published=True)},
        {"pot": PotConfig(policy="full")},
        {"tier": TierConfig(budget_bytes=0)},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_of_reading_change_nothing_of_it(settings: dict[str, Any]) -> None:
    engine = Engine(LOADED, replace(ENGINE.config, **settings))
    collection = collect(engine, [document(0), document(1)])
    assert ask(collection, "Who is the harbour master?")[1]


def test_no_document_and_a_stream_are_refused() -> None:
    with pytest.raises(PotError, match="no document"):
        collect(ENGINE, [])
    stream = DocumentTokens(Document("-", "txt", "part", iter([Page(1, "A lamp.")])), LOADED.tokenizer.encode)
    with pytest.raises(PotError, match="stream") as caught:
        collect(ENGINE, [document(0), stream])
    assert caught.value.where == "-"


def test_a_request_for_words_finds_them_in_whichever_document_has_them() -> None:
    collection = collect(ENGINE, [document(0), document(1), document(2)])
    finished, recalled = ask(collection, "Quote the sentence about the harbour master.")
    assert (finished.stop_reason, recalled) == ("quoted", [])
    assert "The harbour master is Ida Voss." in finished.text
    assert finished.text.endswith("(1.txt, part 1)")
    [source] = finished.sources.passages
    assert collection.context.tokens.place(source.page) == "1.txt, part 1"
