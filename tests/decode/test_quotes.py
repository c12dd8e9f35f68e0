"""Requests for the words of a text, which its own sentences answer."""

from __future__ import annotations

import pytest

from ondevice.decode.denial import NO_SENTENCE
from ondevice.decode.prompt import Turn
from ondevice.decode.quotes import Quotations, subject_of
from ondevice.documents import Document, Page
from ondevice.documents.tokens import DocumentTokens
from tests.builders.models import by_letter, tokenised

LEASE = (
    "The deposit is 300 euros. It is due on signing.\n\n1. Pets\nNo dog and no cat may live in the flat.\n",
    "Rent is paid on the third of each month. Late rent costs a fee of 25 euros, due on demand.\n",
)


def tokens_of(*texts: str) -> DocumentTokens:
    pages = tuple(Page(number, text) for number, text in enumerate(texts, 1))
    return tokenised(Document("lease.pdf", "pdf", "page", pages, len(pages)), by_letter)


@pytest.mark.parametrize(
    ("question", "subject"),
    [
        ("Quote the sentence about the deposit.", "deposit"),
        ("Please show me the clause on late payment", "late payment"),
        ("Where does the lease mention pets?", "pets"),
        ("Where does it say that dogs are allowed?", "dogs are allowed"),
        ("Can you find the passage where it says who pays?", "pays"),
        ('Highlight the parts (if any) of this contract related to "Term".', '"Term"'),
        ("Show the clauses on liability that should be reviewed by a lawyer", "liability"),
        ("Zitiere die Stelle zur Kaution", "Kaution"),
        ("What is the deposit?", ""),
        ("Find out which part is late.", ""),
        ("Find the total", ""),
        ("List the clauses", ""),
        ("Give me a summary in three sentences", ""),
        ("Give me in one sentence the reason for termination", ""),
        ("Give me a one-line answer: when does the lease end?", ""),
        ("Gib mir in einem Satz den Grund", ""),
        ("Find the part number of the pump", ""),
        ("Give the place of birth", ""),
        ("Where does the state store its records?", ""),
        ("Where do the talks take place?", ""),
        ("Where in the research paper does it say that dogs bark?", "dogs bark"),
    ],
)
def test_a_request_for_words_has_a_subject(question: str, subject: str) -> None:
    assert subject_of(question) == subject


def test_the_best_sentences_are_said_with_their_pages_and_cited() -> None:
    tokens = tokens_of(*LEASE)
    known = Quotations(tokens).answer("Quote the clause on the late rent fee", "late rent fee")
    assert known is not None
    assert known.text == "\u201cLate rent costs a fee of 25 euros, due on demand.\u201d (page 2)"
    (source,) = known.sources.passages
    assert source.text == tokens.texts[1][source.start_char : source.stop_char] == known.text[1:-10]
    assert source.page == 2
    assert tokens.page_tokens(1)[0] < source.start_token < source.stop_token
    assert [(one.stop, one.passage, one.text) for one in known.citations] == [(len(known.text), 0, source.text)]


def test_sentences_stand_in_the_order_of_the_text_and_sources_by_their_score() -> None:
    texts = ("A red lamp, and beside it a blue lamp of glass.", "One red lamp of the clearest glass.", *LEASE)
    known = Quotations(tokens_of(*texts)).answer("Quote the red lamp of glass", "red lamp glass")
    assert known is not None
    assert [line[-8:] for line in known.text.splitlines()] == ["(page 1)", "(page 2)"]
    assert [one.page for one in known.sources.passages] == [2, 1]
    assert [one.passage for one in known.citations] == [1, 0]


@pytest.mark.parametrize("subject", ["penguins", "price of coffee in Brazil", "zzz"])
def test_it_is_said_where_no_sentence_has_the_words(subject: str) -> None:
    known = Quotations(tokens_of(*LEASE)).answer(f"Quote the sentence that is about the {subject}", subject)
    assert known is not None
    assert known.text == f"{NO_SENTENCE} \u201c{subject}\u201d. Ask with other words."
    assert (known.sources.passages, known.citations) == ((), ())
    assert not Turn.of("Who?", known.text, 0).answer


def test_a_request_in_another_language_is_left_to_the_model() -> None:
    assert Quotations(tokens_of(*LEASE)).answer("Zitiere die Stelle zur Kaution", "Kaution") is None


def test_a_heading_goes_with_its_sentence_and_a_long_one_is_cut_at_a_line() -> None:
    pets = Quotations(tokens_of(*LEASE)).answer("Show the part on dog and cat", "dog cat")
    assert pets is not None
    assert pets.text == "\u201c1. Pets No dog and no cat may live in the flat.\u201d (page 1)"
    table = "\n".join(f"lamp {i}, keeper {i}, oil {3 * i}" for i in range(60))
    known = Quotations(tokens_of(table)).answer("Find the line with keeper 7", "keeper 7")
    assert known is not None
    assert all(len(line) <= 820 for line in known.text.splitlines())
    assert "keeper 7," in known.text


def test_a_long_heading_goes_with_its_sentence_too_and_a_short_sentence_stands_alone() -> None:
    text = (
        "12. Limitation of Liability and Insurance\nThe landlord pays for damage. Insurance is due in May of each year."
    )
    known = Quotations(tokens_of(text)).answer("Quote the part on liability", "liability")
    assert known is not None
    assert known.text == "\u201c12. Limitation of Liability and Insurance The landlord pays for damage.\u201d"


def test_words_in_quotation_marks_count_more_than_what_is_said_of_them() -> None:
    texts = ("A third party pays for damage.", "The late fee is for the tenant of the flat, who has to bring it over.")
    known = Quotations(tokens_of(*texts, *LEASE)).answer("", "\u201clate fee\u201d. Is a third party to be told?")
    assert known is not None
    assert "The late fee is for the tenant" in known.text


def test_all_mentions_are_counted_and_the_best_are_said() -> None:
    texts = [f"The keeper lit lamp {i} at the harbour in the evening." for i in range(7)]
    known = Quotations(tokens_of(*texts, *LEASE)).answer("Where does the text mention the harbour?", "harbour")
    assert known is not None
    lines = known.text.splitlines()
    assert [line[-8:] for line in lines[:-1]] == [f"(page {i})" for i in range(1, 6)]
    assert lines[-1] == "and 2 more with these words"
    assert len(known.sources.passages) == len(known.citations) == 5


def test_words_in_quotation_marks_are_what_a_request_is_about() -> None:
    aside = "that a lawyer of the tenant should review before the keys are given. Is there a remedy, and whose is it?"
    quotations = Quotations(tokens_of(*LEASE))
    known = quotations.answer("", f'"Late fee" {aside}')
    assert known is not None
    assert known.text == "\u201cLate rent costs a fee of 25 euros, due on demand.\u201d (page 2)"
    denied = quotations.answer("Which fee is due?", f'"Parking space" {aside}')
    assert denied is not None
    assert denied.text == f"{NO_SENTENCE} \u201cParking space\u201d. Ask with other words."
