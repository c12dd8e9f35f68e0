"""Where sentences end."""

from __future__ import annotations

import pytest

from ondevice.search.sentences import sentences


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "A deposit of approx. EUR 1,500 to Mr. J. Smith. Then more.",
            ["A deposit of approx. EUR 1,500 to Mr. J. Smith. ", "Then more."],
        ),
        ("Bis zum 3. Mai 2024 zu zahlen. Sonst nicht.", ["Bis zum 3. Mai 2024 zu zahlen. ", "Sonst nicht."]),
        ("See No. 4 and Art. V of it. He said no. Next", ["See No. 4 and Art. V of it. ", "He said no. ", "Next"]),
        ("At 5 p.m. we left, with vitamin C. It rained!", ["At 5 p.m. we left, with vitamin C. ", "It rained!"]),
        ("It is 5. Next\n\nof all", ["It is 5. ", "Next\n\n", "of all"]),
        ("She said: \u201cGo.\u201d Then he went.", ["She said: \u201cGo.\u201d ", "Then he went."]),
        ("...", ["..."]),
    ],
)
def test_a_full_stop_of_an_abbreviation_a_date_or_an_initial_ends_none(text: str, found: list[str]) -> None:
    assert [text[start:stop] for start, stop in sentences(text)] == found
