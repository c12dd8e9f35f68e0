"""A question for what changed, put to two documents: the sentences, their places, and what is left to the model."""

from __future__ import annotations

import pytest

from ondevice.config import PotConfig
from ondevice.decode.answer import Known
from ondevice.decode.compared import compared
from ondevice.documents.tokens import DocumentTokens
from ondevice.documents.types import Document, Page
from ondevice.events import AnswerFinished, TokensRecalled
from ondevice.session.collection import collect
from ondevice.session.engine import Engine, Session
from tests.builders.models import plain_config, plain_generation, tiny_loaded, tokenised

pytestmark = pytest.mark.usefixtures("one_thread")

LOADED = tiny_loaded(max_positions=8192)
GENERATION = plain_generation(max_new_tokens=6, num_sources=1, num_passage_tokens=200)
ENGINE = Engine(LOADED, plain_config(pot=PotConfig(capacity=224, num_kept=64, reserve=96), generation=GENERATION))
OLD = (
    "The rent is 900 euros. Pets are welcome. The garden is shared by all. ",
    "Heating is included. Keys are handed out. ",
)
NEW = (
    "The rent is 950 euros. Pets are welcome. The garden is shared by all. ",
    "Keys are handed out. Bikes stay outside. ",
)


def document(name: str, pages: tuple[str, ...]) -> DocumentTokens:
    numbered = tuple(Page(number, text, "" if text else "scan") for number, text in enumerate(pages, 1))
    whole = Document(name, "pdf", "page", numbered, len(pages), sum(map(len, pages)))
    return tokenised(whole, LOADED.tokenizer.encode)


def together(*texts: tuple[str, ...]) -> Session:
    return collect(ENGINE, [document(f"lease-{number}.pdf", pages) for number, pages in enumerate(texts, 1)])


def known(question: str, *texts: tuple[str, ...]) -> Known | None:
    return compared(question, together(*texts).context.tokens)


def test_each_difference_stands_there_with_its_place_and_is_a_source() -> None:
    *events, finished = together(OLD, NEW).ask("What changed?")
    assert isinstance(finished, AnswerFinished)
    assert not any(isinstance(event, TokensRecalled) for event in events)
    assert finished.stop_reason == "compared"
    assert finished.text.split("\n") == [
        "There are 3 differences between lease-1.pdf and lease-2.pdf:",
        "",
        "1. “900” → “950”. In lease-1.pdf, page 1: “The rent is 900 euros.” "
        "In lease-2.pdf, page 1: “The rent is 950 euros.”",
        "2. Only in lease-1.pdf, page 2: “Heating is included.”",
        "3. Only in lease-2.pdf, page 2: “Bikes stay outside.”",
    ]
    sources = finished.sources.passages
    assert [(one.text, one.page) for one in sources] == [
        ("The rent is 900 euros.", 1), ("The rent is 950 euros.", 3),
        ("Heating is included.", 2), ("Bikes stay outside.", 4),
    ]  # fmt: skip
    for number, citation in enumerate(finished.citations):
        assert (citation.passage, citation.agrees) == (number, True)
        assert finished.text[: citation.stop].endswith(f"“{sources[number].text}”")


def test_the_same_text_is_said_to_be_the_same() -> None:
    answer = known("Are there any differences?", OLD, ("".join(OLD),))
    assert answer is not None
    assert answer.text == "lease-1.pdf and lease-2.pdf have the same sentences, word for word."


def test_pages_without_text_are_said_not_to_be_compared() -> None:
    answer = known("What changed?", (*OLD, ""), (*NEW, "", "All of it is signed."))
    assert answer is not None
    assert answer.text.startswith("There are 4 differences")
    assert answer.text.endswith("\n\nNot compared, for want of text: lease-1.pdf, page 3, lease-2.pdf, page 3.")
    answer = known("What changed?", OLD, (*OLD, ""))
    assert answer is not None
    assert "word for word.\n\nNot compared, for want of text: lease-2.pdf, page 3." in answer.text


def test_words_that_came_or_went_stand_before_their_sentences() -> None:
    answer = known("What changed?", OLD, (OLD[0].replace("are welcome", "are not welcome"), OLD[1]))
    assert answer is not None
    assert "1. Added: “not”. In lease-1.pdf, page 1: “Pets are welcome.” In lease-2" in answer.text
    answer = known("What changed?", OLD, (OLD[0].replace(" by all", ""), OLD[1]))
    assert answer is not None
    assert "1. Left out: “by all”. In lease-1.pdf" in answer.text


def test_only_differences_of_the_subject_are_told_and_none_is_left_to_the_model() -> None:
    answer = known("How did the rent change?", OLD, NEW)
    assert answer is not None
    assert answer.text.startswith(
        "There is 1 difference with “rent” between lease-1.pdf and lease-2.pdf:\n\n1. “900” → “950”. In lease-1"
    )
    assert known("What changed about the garden?", OLD, NEW) is None


def test_a_long_sentence_is_cut_around_what_differs_on_the_page_of_that() -> None:
    words = [f"word{n}" for n in range(300)]
    pages = " ".join(words[:150]) + " ", " ".join(words[150:]) + ". The end is near."
    other = pages[0], pages[1].replace("word200", "weird200")
    answer = known("What is different?", pages, other)
    assert answer is not None
    first, second = answer.sources.passages
    assert ("word200" in first.text, "weird200" in second.text) == (True, True)
    assert (first.page, second.page) == (2, 4)
    assert max(len(first.text), len(second.text)) <= 240
    assert answer.text.count("“…word") == 2
    assert answer.text.count("…”") == 2


def test_a_sentence_over_two_pages_is_quoted_whole_with_the_page_of_its_change() -> None:
    old = ("The rent is 900 euros. Heating and water are paid ", "by the tenant in May. Keys are handed out. ")
    answer = known("What changed?", old, (old[0], old[1].replace("May", "June")))
    assert answer is not None
    assert "In lease-2.pdf, page 2: \u201cHeating and water are paid by the tenant in June.\u201d" in answer.text
    assert [(source.page, source.text) for source in answer.sources.passages] == [
        (2, "by the tenant in May."),
        (4, "by the tenant in June."),
    ]


def test_of_more_documents_the_two_that_are_named_are_compared() -> None:
    other = ("Rain fell on the hill all night. The boat was late again.",)
    answer = known("What changed between lease-1.pdf and lease-3?", OLD, other, NEW)
    assert answer is not None
    assert answer.text.startswith("There are 3 differences between lease-1.pdf and lease-3.pdf:")
    assert [source.page for source in answer.sources.passages] == [1, 4, 2, 5]


@pytest.mark.parametrize(
    ("question", "texts"),
    [
        ("What changed?", (OLD,)),
        ("What changed?", (OLD, NEW, NEW)),
        ("How much is the rent?", (OLD, NEW)),
        ("What changed?", (OLD, ("Rain fell on the hill all night. The boat was late again.",))),
    ],
)
def test_other_questions_and_texts_are_left_to_the_model(question: str, texts: tuple[tuple[str, ...], ...]) -> None:
    assert known(question, *texts) is None


def test_most_differences_are_counted_where_there_are_too_many_to_tell() -> None:
    old = tuple(f"Room {n} has {n} chairs. The door is green. Nobody sits by window {n}. " for n in range(40))
    answer = known("List all changes.", old, tuple(page.replace("chairs", "stools") for page in old))
    assert answer is not None
    assert answer.text.startswith("There are 40 differences")
    assert answer.text.endswith("\nand 20 more")
