"""Differences of two texts: every edit is found, and nothing that only moved, or is laid out in another way."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ondevice.search.differences import asks_for_differences, differences, joined, subject_of

SENTENCES = [f"The room number {n} has {n + 3} chairs and a door to the yard." for n in range(30)]


def said(first: str, second: str) -> list[tuple[str, str]]:
    found = differences(first, second)
    assert found is not None
    spans = [((one.first, first), (one.second, second)) for one in found]
    return [tuple("" if span is None else text[slice(*span)] for span, text in pair) for pair in spans]  # type: ignore[misc]


def test_a_changed_a_removed_and_an_added_sentence_are_found_in_their_order() -> None:
    first = " ".join(SENTENCES)
    second = first.replace("has 7 chairs", "has 70 chairs").replace(f"{SENTENCES[9]} ", "")
    second = second.replace(SENTENCES[20], f"{SENTENCES[20]} Dogs stay outside.")
    assert said(first, second) == [
        (SENTENCES[4], SENTENCES[4].replace("7", "70")),
        (SENTENCES[9], ""),
        ("", "Dogs stay outside."),
    ]
    assert said(second, first) == [(after, before) for before, after in said(first, second)]
    changed = (differences(first, second) or [])[0]
    assert changed.first_odd is not None
    assert changed.second_odd is not None
    assert (first[slice(*changed.first_odd)], second[slice(*changed.second_odd)]) == ("7", "70")


@given(st.sets(st.integers(0, 29), max_size=6), st.randoms(use_true_random=False))
def test_every_edit_is_found_and_no_other(edited: set[int], random: object) -> None:
    kinds = {at: random.choice(["changed", "removed", "added"]) for at in sorted(edited)}  # type: ignore[attr-defined]
    second = list[str]()
    for at, sentence in enumerate(SENTENCES):
        new = {"changed": [sentence.replace("yard", "lane")], "removed": [], "added": [sentence, f"Lamp {at} is lit."]}
        second += new[kinds[at]] if at in kinds else [sentence]
    found = differences(" ".join(SENTENCES), " ".join(second))
    assert found is not None
    assert len(found) == len(edited)


@given(st.lists(st.integers(1, 1900), max_size=6), st.booleans())
def test_where_pages_and_lines_end_is_no_difference(cuts: list[int], has_blanks: bool) -> None:
    text = " ".join(SENTENCES)
    blanks = sorted({at + 1 for at in (text.find(" ", cut) for cut in cuts) if at >= 0})
    pages = [text[a:b] for a, b in zip([0, *blanks], [*blanks, len(text)], strict=True)]
    if has_blanks:
        pages = [page.replace(" has", "\nhas").rstrip() + "\n\n" for page in pages]
        edges = [{page.strip().split("\n")[at] for page in pages} for at in (0, -1)]
        assume(all(len(lines) == len(pages) for lines in edges))  # else they stand above or below all
    assert len(joined(pages)) == sum(map(len, pages))
    assert differences(text, joined(pages)) == []


def test_lines_above_and_below_all_pages_are_no_difference() -> None:
    def pages(sentences: list[str], number: int) -> list[str]:
        parts = [sentences[at : at + number] for at in range(0, len(sentences), number)]
        return [f"Lease\n{chr(10).join(part)}\nPage {at} of {len(parts)}\n" for at, part in enumerate(parts, 1)]

    first, second = joined(pages(SENTENCES, 6)), joined(pages(["Dogs stay outside.", *SENTENCES], 7))
    assert said(first, second) == [("", "Dogs stay outside.")]
    assert "Lease" not in first + second


def test_quotation_marks_and_dashes_are_no_difference_and_neither_is_what_moved() -> None:
    first = f"{' '.join(SENTENCES)} He said \u201cno\u201d \u2013 twice."
    assert differences(first, first.replace("\u201c", '"').replace("\u201d", '"').replace("\u2013", "-")) == []
    moved = f"{' '.join([*SENTENCES[5:], *SENTENCES[:5]])} He said \u201cno\u201d \u2013 twice."
    assert differences(first, moved) == []
    doubled = f"{first} {SENTENCES[3]}"
    assert said(first, doubled) == [("", SENTENCES[3])]


def test_numbers_of_items_are_no_difference_where_one_comes_before_them() -> None:
    first, second = (
        "\n".join(f"{at}. {sentence}" for at, sentence in enumerate(own, 1))
        for own in (SENTENCES, [SENTENCES[0], "Dogs stay outside.", *SENTENCES[1:]])
    )
    assert said(first, second) == [("", "Dogs stay outside.")]


def test_words_that_are_written_apart_are_a_difference() -> None:
    first = f"{' '.join(SENTENCES)} They set it apart."
    assert said(first, first.replace("apart", "a part")) == [("They set it apart.", "They set it a part.")]


def test_rows_of_a_table_are_compared_one_by_one() -> None:
    rows = [f"item {n} | {n * 7} | boxes" for n in range(40)]
    first, second = "\n".join(rows), "\n".join(rows).replace("item 9 | 63", "item 9 | 64")
    assert said(first, second) == [("item 9 | 63 | boxes", "item 9 | 64 | boxes")]


def test_other_texts_are_no_versions() -> None:
    assert differences(" ".join(SENTENCES), "Rain fell on the hill. The boat was late again. " * 20) is None


@pytest.mark.parametrize(
    ("question", "subject"),
    [
        ("What changed between lease-1.pdf and lease-2.pdf?", []),
        ("What are the differences between the two contracts?", []),
        ("Compare both versions.", []),
        ("What's new in lease-2?", []),
        ("In what do they differ?", []),
        ("Which clauses were added?", []),
        ("How did the rent change?", ["rent"]),
        ("What changes were made to the payment terms?", ["payment"]),
        ("Was hat sich geändert?", []),
        ("Worin unterscheiden sich die beiden Fassungen?", []),
        ("Wie hat sich die Miete geändert?", ["miete"]),
    ],
)
def test_questions_for_differences_are_known_with_their_subject(question: str, subject: list[str]) -> None:
    assert asks_for_differences(question)
    assert subject_of(question, ["lease-1.pdf", "lease-2.pdf"]) == subject


@pytest.mark.parametrize(
    "question",
    [
        "Who may amend the agreement?",
        "Can the price be changed?",
        "What happens if the rent is changed?",
        "What does the contract say about changes of control?",
        "What is the notice period?",
        "How much is the rent?",
        "Darf die Miete geändert werden?",
    ],
)
def test_other_questions_are_left_alone(question: str) -> None:
    assert not asks_for_differences(question)


def test_numbers_of_headings_are_no_difference_and_those_in_sentences_are() -> None:
    first = (
        "§ 2 Rent\nThe rent is 900 Euro.\n\n§ 3 Notice\nNotice is given as in § 2.\n\n§ 4 Keys\n\nTwo keys are given.\n"
        "\nSection 4 applies to all who\nlive here.\n"
    )
    second = first.replace("§ 4 Keys", "§ 5 Keys").replace("§ 3 N", "§ 3 Pets\nNo pets are kept.\n\n§ 4 N")
    assert said(first, second) == [("", "§ 3 Pets\nNo pets are kept.")]
    second = second.replace("as in § 2", "as in § 1").replace("Section 4", "Section 5")
    assert said(first, second) == [
        ("", "§ 3 Pets\nNo pets are kept."),
        ("§ 3 Notice\nNotice is given as in § 2.", "§ 4 Notice\nNotice is given as in § 1."),
        ("Section 4 applies to all who\nlive here.", "Section 5 applies to all who\nlive here."),
    ]


@pytest.mark.parametrize("num_kinds", [5, 350])
def test_a_long_table_of_a_few_rows_is_compared_in_time(num_kinds: int) -> None:
    rows = [f"row {at % num_kinds} | value {at % num_kinds * 7}" for at in range(8_000)]
    edited = [*rows[:4_000], "a row of its own | 1", *rows[4_000:7_000], "one more row | 2", *rows[7_001:]]
    found = differences("\n".join(rows), second := "\n".join(edited))
    assert found is not None
    assert [second[slice(*one.second)] for one in found if one.second] == ["a row of its own | 1", "one more row | 2"]
    assert len(found) <= 3
