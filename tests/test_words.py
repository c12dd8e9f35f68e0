"""Numbers and accounts read well and say nothing false."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ondevice import words
from ondevice.events import AnswerFinished, Citation, History, Ledger, PageNote, Source, Sources, TokensRecalled


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00002, "0.1 ms"), (0.0004, "0.4 ms"), (0.003, "3 ms"), (0.0994, "99 ms"), (0.0996, "0.1 s"),
        (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min"), (200, "3 min 20 s"),
        (3599.6, "1 h 0 min"), (7500, "2 h 5 min"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"), (4.4, "4 s"), (41, "40 s"), (57.4, "55 s"), (57.6, "1 min"), (725, "12 min"), (3580, "1 h"),
        (7720, "2 h 10 min"), (43_000, "12 h"),
    ],
)  # fmt: skip
def test_forecasts_are_no_finer_than_they_can_be(seconds: float, text: str) -> None:
    assert words.forecast(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (99_960, "100 kB"), (384_000, "384 kB"),
        (999_600, "1.0 MB"), (141_557_760, "142 MB"),
        (2.5e9, "2.50 GB"),
    ],
)  # fmt: skip
def test_sizes(num_bytes: int, text: str) -> None:
    assert words.size(num_bytes) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 100, "0 %"), (0, 0, "0 %"), (1, 10_000, "under 0.1 %"), (5, 100, "5.0 %"), (99.96, 100, "99 %"),
        (100, 100, "100 %"),
    ],
)  # fmt: skip
def test_only_nothing_is_0_percent_and_only_all_is_100(part: float, whole: float, text: str) -> None:
    assert words.share(part, whole) == text


LEDGER = Ledger(
    tokens_total=41_020, tokens_read=12_288, tokens_kept=1_024, tokens_evicted=11_264, tokens_unread=28_732,
    slots_used=1_060, slots_capacity=2_048,
)  # fmt: skip
ANSWER = AnswerFinished(
    "When?", "At dusk.", 21, "end", 0.8, 1.1, 0, LEDGER,
    stage_seconds={"question": 0.8, "look": 0.6, "write": 0.5, "sources": 0.1, "finish": 0.001},
)  # fmt: skip

NO_TOKENS = np.empty((0, 2), np.int32)


def test_the_account_tells_of_every_token() -> None:
    assert words.account(ANSWER, words.Holdings("page", 141_557_760)) == (
        "Answered after 12,288 of 41,020 tokens. "
        "Time: Answered in 2.0 s (0.8 s to read the question, 0.6 s to look for what to bring back, 0.5 s to write, "
        "0.1 s to find the evidence), first word after 0.8 s, then 18.2 tokens/s · Read: 12,288 of 41,020 tokens · "
        "Kept: 1,024 tokens, each by one attention head or more · Evicted: 11,264 tokens · "
        "Pot: 1,060 of 2,048 slots, 142 MB"
    )


def test_the_account_of_an_answer_from_the_outline_says_so_and_names_no_speed() -> None:
    answer = replace(ANSWER, stop_reason="outline", ttft_seconds=0.002, decode_seconds=0.0, stage_seconds={})
    account = words.account(answer, words.Holdings("page", 1_000_000))
    assert account.startswith(
        "From headings or words of the document, without the model. Time: First word after 2 ms · Read"
    )


def test_the_account_tells_of_every_method() -> None:
    ledger = replace(LEDGER, tokens_unread=0, tokens_skipped=37, skipped_per_page=((1, 30), (2, 7)))
    answer = replace(
        ANSWER, num_tokens=15, stage_seconds={},
        ledger=ledger, stop_reason="length", share_read=0.4, num_overwritten=1, unfounded=("22", "Ingrid Lund"),
        history=History(1, 2), recalled=TokensRecalled(NO_TOKENS, (4, 3, 9), 128, num_aside=640),
    )  # fmt: skip
    held = words.Holdings("page", 1_000_000, 500_000, 2_000_000, 11_264, 0.75, 9_000_000)
    assert words.account(answer, held).split(" · ") == [
        "The answer reached its longest length. Not found in the document: 22, Ingrid Lund",
        "Time: First word after 0.8 s",
        "Read: 12,288 of 41,020 tokens",
        "Kept: 1,024 tokens, each by one attention head or more",
        "Evicted: 11,264 tokens",
        "Skipped: 37 on pages 1 (30), 2 (7)",
        "Pot: 1,060 of 2,048 slots, 1.0 MB",
        "Small model's pot: 500 kB",
        "Host tier: 11,264 tokens, 2.0 MB of at most 9.0 MB, 75 % of the copying hidden",
        "Brought back: Brought back 128 tokens for this answer, from pages 3–4, 9. "  # noqa: RUF001
        "640 kept tokens stood aside for them: too far from what came back",
        "Attention: 40 % of the pot read for a token",
        "Overwritten: 1 slot, given back",
        "Conversation: 1 earlier question remembered, 2 left out for lack of room",
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "From the beginning: 30 % was read. 2.0 s"),
        ({"recalled": TokensRecalled(NO_TOKENS, (4,), 128, is_text=True)},
         "From a search of the whole text: 30 % was read. 2.0 s"),
        ({"ledger": replace(LEDGER, tokens_unread=0), "stop_reason": "cancelled"},
         "The answer was stopped. All of the document was read. 2.0 s"),
        ({"stop_reason": "outline"}, "From headings or words of the document, without the model. 2.0 s"),
        ({"stop_reason": "quoted"},
         "From a search of all sentences of the document, without the model. 2.0 s"),
        ({"stop_reason": "compared"},
         "From a comparison of all sentences of both documents, without the model. 2.0 s"),
        ({"ledger": Ledger(tokens_total=9, tokens_read=9, tokens_kept=9)}, "All of the document was used. 2.0 s"),
        ({"ledger": Ledger(tokens_total=9, tokens_read=9, tokens_kept=9),
          "recalled": TokensRecalled(np.array([[0, 2], [5, 6]], np.int32), (4,), 12, is_text=True)},
         "From passages (3 of 9 tokens); all of the document was read. 2.0 s"),
        ({"ledger": Ledger(tokens_total=9, tokens_read=6, tokens_skipped=3)}, "67 % of the document was read. 2.0 s"),
    ],
)  # fmt: skip
def test_one_plain_line_says_what_was_used(changes: dict[str, object], line: str) -> None:
    assert words.summary(replace(ANSWER, **changes)) == line  # type: ignore[arg-type]


def test_what_the_document_says_otherwise_is_in_the_account() -> None:
    citations = (Citation(9, 0, "It was lit\nat dawn.", agrees=False), Citation(9, 0, "It was lit."))
    line = words.account(replace(ANSWER, citations=citations), words.Holdings("page", 1))
    assert "tokens. The document says: “It was lit at dawn.” · Time: " in line


def test_what_does_not_answer_is_in_the_account() -> None:
    line = words.account(replace(ANSWER, evasion="time"), words.Holdings("page", 1))
    assert "May not answer the question: it does not say when · " in line


def test_pages_without_text_are_named_by_reason() -> None:
    notes = [PageNote(4, "scan", "page 4 is a drawing"), PageNote(2, "blank", "page 2 is blank")]
    notes += [PageNote(3, "scan", "page 3 is a drawing"), PageNote(9, "x", "a part of page 9 was left out")]
    notes += [PageNote(11, "y", "damaged")]
    assert words.notes(notes, "page") == [
        "Page 2 is blank.",
        "Pages 3–4: each is a drawing.",  # noqa: RUF001
        "A part of page 9 was left out.",
        "Page 11: damaged.",
    ]


def test_pages_that_name_themselves_share_a_line_and_very_many_are_counted() -> None:
    notes = [PageNote(page, "blank", f"page {page} is blank") for page in (2, 3, *range(5, 1005, 2))]
    [line] = words.notes(notes, "page")
    assert line.startswith("Pages 2–3, 5, 7, 9,")  # noqa: RUF001
    assert line.endswith(" and 489 more: each is blank.")
    assert words.notes(notes[:1], "page") == ["Page 2 is blank."]


def test_many_reasons_are_cut_with_their_number() -> None:
    notes = [PageNote(page, "x", f"reason {page}") for page in range(1, 11)]
    lines = words.notes(notes, "page", limit=3)
    assert lines[3:] == ["and 7 more reasons"]


def test_an_answer_from_everything_names_the_one_before_and_its_pages() -> None:
    sources = [Source("passage", page, 0, 1, 0, 7, 0.5, 0.5) for page in (7, 3, 7)]
    assert words.compared("In 1911.", sources, "in 1911", "page") == "Confirmed by reading all."
    for one, other in (("It is 1.5 %", "It is 15 %"), ("-5 degrees", "5 degrees"), ("$ 5", "5")):
        assert words.compared(one, (), other, "page") != "Confirmed by reading all."
    said = words.compared("In 1911.", sources, "In 1912.", "page")
    assert said.startswith("In place of the answer before all was read: “In 1911.” (pages 3, 7). ")
    assert "(" not in words.compared("In 1911.", (), "In 1912.", "page"), "no evidence was asked for"


def test_sources_that_a_search_found_are_not_said_to_be_attended_to() -> None:
    source = Source("Rent is due.", 2, 5, 9, 0, 12, 1.0, 0.0)
    answer = replace(ANSWER, sources=Sources((source,), ANSWER.num_tokens), num_before=0)
    assert words.looked_at(answer) == ""
    assert words.looked_at(replace(answer, stop_reason="quoted")) == "found by their words, not by attention"


def test_evidence_of_attention_is_said_to_be_none_only_of_a_models_answer() -> None:
    about = words.evidence("end", "of its first 2 of 9 tokens", 1)
    assert about.startswith("What the model attended to most while it wrote (of its first 2 of 9 tokens). Attention")
    for reason in ("quoted", "outline"):
        for number in (0, 2):
            assert "attended" not in words.evidence(reason, "", number)
    assert "none has these words" in words.evidence("quoted", "", 0)
