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
        ("On Jan. 5, 2020 it rained. In Dec. It snowed.", ["On Jan. 5, 2020 it rained. ", "In Dec. ", "It snowed."]),
        ("Ek et al. (2019) use Eq. (4). The rest", ["Ek et al. (2019) use Eq. (4). ", "The rest"]),
        ("He said no. It rained. He said no. I left.", ["He said no. ", "It rained. ", "He said no. ", "I left."]),
        ("Er betrug 5 Mio. Euro zzgl. Steuer. Mehr", ["Er betrug 5 Mio. Euro zzgl. Steuer. ", "Mehr"]),
        ("Im 19. Jahrhundert der 2. Absatz. Mehr", ["Im 19. Jahrhundert der 2. Absatz. ", "Mehr"]),
    ],
)
def test_a_full_stop_of_an_abbreviation_a_date_or_an_initial_ends_none(text: str, found: list[str]) -> None:
    assert [text[start:stop] for start, stop in sentences(text)] == found
