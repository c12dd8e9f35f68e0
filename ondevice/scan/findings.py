"""Findings of a scan: what the model names of a chunk, looked up in it as a string, split where a row, and merged.

No model is asked here. What does not stand in the chunk was not read there and is no finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from statistics import median

from ondevice.documents.tokens import DocumentTokens
from ondevice.scan.chunks import Chunk
from ondevice.search.outline import phrase

_BULLET = re.compile(  # no day of a German date
    r"^\s*(?:[-*•–]|\(?\d{1,3}[.)])\s+(?!(?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)\w* \d)"  # noqa: RUF001
)
_AROUND = " \t\"'“”‘’`*_.,;:!?()[]"  # noqa: RUF001
_NOTHING = re.compile(
    r"(?i)^(?:(?:none|nothing|no|n/?a|not (?:found|mentioned|stated)|that is not in the document)\W*\Z"
    r"|(?:none|nothing|no|not)\b.*\b(?:is|are|was|were|mentioned|found|named|listed|stated|given)\b)"
)
_ROW = re.compile(r"\s*;\s*|(?:(?<!\d)\s*,|\s*,(?!\d))\s*(?:and\s+|or\s+|&\s*)?|\s+(?:and|or)\s+")
_YEAR = re.compile(r"^(?:1[0-9]|20)\d\d$")
_NUMBER = re.compile(r"\d+")
_SPACE = re.compile(r"\s+")
_MOST_WORDS = 5  # of one name or date in a row
_SENTENCE = re.compile(r"(?<=[.!?])[\"”’)\]]*\s+|\n+")  # noqa: RUF001
_SHARE, _FEW = 3, 4  # of the median surety; of fewer findings none is held against the others
_MOST_QUOTED = 240  # characters of a passage


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a finding: characters [start, stop) of the page at `index`, page `page`, in the `passage`; and
    tokens [start_token, stop_token) of the document."""

    index: int
    start: int
    stop: int
    page: int
    passage: str
    start_token: int = 0
    stop_token: int = 0


@dataclass(slots=True)
class Finding:
    """One thing found.

    Attributes:
        text: as it stands first.
        surety: how sure the model was at its surest that it is what was asked for; above 0, in no unit.
        places: all of them, in document order.
    """

    text: str
    surety: float = 0.0
    places: list[Place] = field(default_factory=list)


class Findings:
    """The findings so far, each thing once.

    Attributes:
        all: in the order of the document.
        dropped: what the model named and its chunk does not say; each once.
    """

    def __init__(self, tokens: DocumentTokens) -> None:
        self.all: list[Finding] = []
        self.dropped: list[str] = []
        self._tokens = tokens
        self._by_text: dict[str, Finding] = {}

    @property
    def found(self) -> list[Finding]:
        """Those of which the model is not much less sure than of most. How sure it is at all differs by question."""
        least = self._least
        return [finding for finding in self.all if finding.surety >= least]

    @property
    def doubtful(self) -> list[Finding]:
        """The others."""
        least = self._least
        return [finding for finding in self.all if finding.surety < least]

    @property
    def _least(self) -> float:
        return median(finding.surety for finding in self.all) / _SHARE if len(self.all) >= _FEW else -inf

    def __len__(self) -> int:
        return len(self.found)

    def add(self, chunk: Chunk, text: str, surety: float = 1.0) -> bool:
        """Take what was named of a chunk; whether it stands there."""
        places = [self._place(chunk, start, stop) for start, stop in stands_in(text, chunk.text)]
        key = folded(text)
        if not places:
            if key not in self._by_text and text not in self.dropped:
                self.dropped.append(text)
            return False
        finding = self._by_text.get(key) or self._around(places)
        if finding is None:
            first = places[0]
            finding = Finding(self._tokens.texts[first.index][first.start : first.stop])
            self.all.append(finding)
        self._by_text[key] = finding
        finding.surety = max(finding.surety, surety)
        known = {(place.index, place.start) for place in finding.places}
        finding.places += [place for place in places if (place.index, place.start) not in known]
        finding.places.sort(key=lambda place: (place.index, place.start))
        return True

    def passage(self, chunk: Chunk, start: int, stop: int) -> str:
        """The sentence around some characters of a chunk, as it stands on its page."""
        return self._place(chunk, start, stop).passage

    def _around(self, places: list[Place]) -> Finding | None:
        """The finding that all of these places lie in, or around: the same thing, named with more or fewer words."""
        for finding in reversed(self.all):
            if all(any(_is_within(place, other) for other in finding.places) for place in places):
                return finding
        return None

    def _place(self, chunk: Chunk, start: int, stop: int) -> Place:
        index, first = chunk.place(start)
        page = self._tokens.texts[index]
        last = min(first + stop - start, len(page))
        begin, _ = self._tokens.page_tokens(index)
        spans = self._tokens.page_spans(index)
        token = int(spans[:, 1].searchsorted(first, side="right"))
        end = max(int(spans[:, 0].searchsorted(last)), token + 1)
        passage = _passage(page, first, last)
        return Place(index, first, last, self._tokens.page_numbers[index], passage, begin + token, begin + end)


def named(answer: str) -> Iterator[str]:
    """Items that an answer names: one a line, or several in a row; each without bullet, number and marks around it."""
    for line in answer.splitlines():
        item = _BULLET.sub("", line).strip(_AROUND)
        if item and not _NOTHING.match(item):
            yield from split_row(item)


def split_row(item: str) -> list[str]:
    """The parts of a row such as `Ann Lee, Tom Hale and Eva Moss` or `2 May 1911, 3 June 1911`; else the item alone.

    A row has parts of one form: all with digits, or all with a capital letter, of few words each. `May 2, 1911` is one
    date, and `Lee, Ann` may be one name.
    """
    parts = list[str]()
    for part in _ROW.split(item):
        if parts and _YEAR.match(part) and _NUMBER.search(parts[-1]) and not re.search(r"\b\d{4}\b", parts[-1]):
            parts[-1] = f"{parts[-1]}, {part}"  # the year of the date before it
        elif part.strip(_AROUND):
            parts.append(part.strip(_AROUND))
    if len(parts) < 2 or any(len(part.split()) > _MOST_WORDS for part in parts):
        return [item]
    if all(_NUMBER.search(part) for part in parts):
        return parts
    are_names = all(part[0].isupper() for part in parts)
    could_be_one = len(parts) == 2 and "," in item and any(" " not in part for part in parts)
    return parts if are_names and not could_be_one else [item]


def stands_in(text: str, source: str) -> list[tuple[int, int]]:
    """Places of a text in another, as whole words: characters [start, stop). Case and white space do not count."""
    words = text.strip()
    return [match.span() for match in phrase(words).finditer(source)] if words else []


def folded(text: str) -> str:
    """A text as it is compared: without case, marks around it and an article in front."""
    plain = _SPACE.sub(" ", text).strip(_AROUND).casefold()
    return re.sub(r"^(?:the|an?) ", "", plain)


def _is_within(one: Place, other: Place) -> bool:
    is_in = other.start <= one.start and one.stop <= other.stop
    is_around = one.start <= other.start and other.stop <= one.stop
    return one.index == other.index and (is_in or is_around)


def _passage(page: str, start: int, stop: int) -> str:
    """The sentence around some characters, in one line; of a long one what is nearest to them."""
    first, last = sentence(page, start, stop)
    room = max(_MOST_QUOTED - (stop - start), 0)
    return " ".join(page[max(first, start - room // 2) : min(last, stop + room // 2)].split())


def sentence(text: str, start: int, stop: int) -> tuple[int, int]:
    """The sentence around some characters of a text, [start, stop); of a long one what is near."""
    from_, to = max(start - _MOST_QUOTED, 0), min(stop + _MOST_QUOTED, len(text))
    before = [match.end() for match in _SENTENCE.finditer(text, from_, start)]
    after = _SENTENCE.search(text, stop, to)
    return before[-1] if before else from_, after.start() if after else to
