"""Differences of two versions of a text, sentence by sentence, and the questions that ask for them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate
from typing import NamedTuple

from ondevice.search.bm25 import own_terms
from ondevice.search.outline import TEXTS
from ondevice.search.sentences import sentences

_ASKS = re.compile(
    r"(?is)\A(?!.*\b(?:can|may|could|must|should|shall|will|would|might|if|when|unless|who|says?|states?|provides?|kann"
    r"|darf|muss|soll|wenn|wer)\b).*?(?:\b(?:what|which|how|where)(?:['\u2019]s)?\b.{0,60}?\b(?:change[sd]?"
    r"|differ(?:s|ent|ences?)?|new|added|removed|deleted)\b"
    r"|\b(?:list|show|give|tell|name|find|explain|describe|summari[sz]e|(?:is|are) there)\b.{0,40}?"
    r"\b(?:changes?|differences?)\b|\bcompare\b|\bdifferences? between\b|\bunterschied\w*|\bunterscheide[nt]\b"
    r"|\b(?:ge|ver)änder\w+|\bänderung\w*|\bvergleich\w*|\bneu\b)"
)
# Words that ask for differences, or name what differs; what is left says of which ones.
_ASIDE = re.compile(
    r"chang\w*|differ\w*|compar\w*|between|versions?|both|two|new|newer|old|older|added|removed|deleted|list|show|find|all"
    r"|every|one|other|ones|another|previous|earlier|later|current|latest|first|second|drafts?|revisions?|cop(?:y|ies)"
    rf"|(?:{TEXTS})s?|polic(?:y|ies)|terms|clauses?|sections?|parts?|sentences?|there|any|these|those|them|they|their"
    r"|its|since|than|made|were|main|exactly|please|summari[sz]e|in|on|as|by|for|an|at|been|s|i|we|you|us"
    r"|unterschied\w*|unterscheide\w*|\w*änder\w+|vergleich\w*|zwischen|beide[nrs]?|zwei|fassung(?:en)?|dokumente?n?"
    r"|texte?n?|vertr[aä]ge?n?|sich|was|worin|alle|neue?|gegenüber|zeige?|nenne|gibt|es|die|sind|bitte"
)
_WORDS = re.compile(r"\w+|[^\w\s]")
_PLAIN = str.maketrans("\u2018\u2019\u201a\u201c\u201d\u201e\u2010\u2011\u2012\u2013\u2014", "'''\"\"\"-----")
_LINE = re.compile(r"[^\n]+")
_ITEM = re.compile(r"\d{1,3}[.)]")  # the number of an item, which another one before it changes
_HEADING = re.compile(  # the number of one, too; not of a section that a sentence speaks of
    r"\A(?:§|(?i:section|article|clause|chapter|part|appendix|kapitel|abschnitt|artikel|teil)\b)\s*\d{1,3}\b[.:)]?"
    r"(?=[ \t]+[^\W\d_][^\n.;,?!|]{1,60}(?:\n\W*[A-ZÄÖÜ0-9]|\s*\Z))"
)
_AT_EDGE, _FEWEST_LINES = 2, 3  # lines of a page that may stand on all, and that it has beside them
_ALIKE = 0.3  # of the characters of the shorter text, at least, stand in sentences that both have, or one changed
_PAIRED = 0.5  # of their words, at least, two sentences share of which one became the other
_MOST_PAIRS = 250_000  # of sentences of one place that are held against each other
_MOST_MATCHES = 100_000  # of each sentence with each of the other text that is equal

Span = tuple[int, int]
_Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """A sentence of the first text and what stands in its place in the second; None: nothing of the kind.

    Attributes:
        first, second: characters [start, stop) of each text.
        first_odd, second_odd: of these, from the first to the last word that the other sentence lacks, which may be
            none; of a sentence without another one all of it.
    """

    first: Span | None
    second: Span | None
    first_odd: Span | None
    second_odd: Span | None


class _Unit(NamedTuple):
    """A sentence, or a row of a table: where it stands, and its words and marks, as they are compared."""

    span: Span
    words: _Words


_Pair = tuple[_Unit | None, _Unit | None]


def asks_for_differences(question: str) -> bool:
    """True if a question to two texts asks in what they differ."""
    return _ASKS.search(question) is not None


def subject_of(question: str, names: Sequence[str]) -> list[str]:
    """The words of such a question that say of which differences; `names` are those of the texts."""
    known = {word for name in names for word in own_terms(name)}
    return [term for term in own_terms(question) if term not in known and not _ASIDE.fullmatch(term)]


def joined(pages: Sequence[str]) -> str:
    """The pages of a text as one, as long as all of them.

    No sentence ends with a page alone there, and the lines that stand above or below all pages are blank.
    """
    edges = [_edges(page, at) for at, page in enumerate(pages)]
    times = Counter(key for own in edges for key in own)
    parts = list[str]()
    for page, own in zip(pages, edges, strict=True):
        for key, (start, stop) in own.items():
            if times[key] > max(len(pages) // 2, 1):
                page = page[:start] + " " * (stop - start) + page[stop:]
        parts.append(page.rstrip().ljust(len(page)))
    return "".join(parts)


def _edges(page: str, at: int) -> dict[str, Span]:
    """The first and the last lines of a page, by what other pages have of them: all, or all but its number."""
    lines = [line for line in _LINE.finditer(page) if line[0].strip()]
    outer = (*lines[:_AT_EDGE], *lines[-_AT_EDGE:]) if len(lines) > _FEWEST_LINES else ()
    found: dict[str, Span] = {}
    for line in outer:
        text = line[0].strip()
        found[re.sub(r"\d{1,6}", lambda number: str(int(number[0]) - at), text, count=1)] = line.span()
        found[text] = line.span()
    return found


def differences(first: str, second: str) -> list[Difference] | None:
    """The sentences, and rows of tables, in which two texts differ, in their order; those that only moved are none.

    None where the texts are too little alike to be versions of one.
    """
    units = [list(_units(text)) for text in (first, second)]
    words = [[unit.words for unit in own] for own in units]
    keys: Sequence[Sequence[object]] = [_numbered(own) for own in words] if _repeat(*words) else words
    codes = SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes()
    blocks = [
        (units[0][a:b], units[1][c:d])
        for code, a, b, c, d in codes
        if code != "equal" and _run(words[0][a:b]) != _run(words[1][c:d])  # else sentences end elsewhere, that is all
    ]
    gone, come = (Counter(unit.words for block in blocks for unit in block[at]) for at in (0, 1))
    moved = gone & come
    left = moved.copy(), moved.copy()
    odd = ([_without(left[at], block[at]) for at in (0, 1)] for block in blocks)
    pairs = [pair for one, other in odd for pair in _aligned(one, other)]
    same = sum(_length(words[0][a:b]) for code, a, b, _, _ in codes if code == "equal")
    same += _length(moved.elements())
    same += _length(one.words for one, other in pairs if one is not None and other is not None)
    if same < _ALIKE * min(map(_length, words)):
        return None
    return [_difference(first, second, *pair) for pair in pairs]


def _without(moved: Counter[_Words], units: Iterable[_Unit]) -> list[_Unit]:
    """The units that do not stand at another place of the other text; `moved` counts down how many do."""
    found = []
    for unit in units:
        moved[unit.words] -= 1
        if moved[unit.words] < 0:
            found.append(unit)
    return found


def _repeat(first: Sequence[_Words], second: Sequence[_Words]) -> bool:
    """True for texts of which the same comes so often that comparing their order takes long."""
    times = Counter(second)
    return sum(number * times[one] for one, number in Counter(first).items()) > _MOST_MATCHES


def _numbered(all_words: Sequence[_Words]) -> list[tuple[_Words, int]]:
    """Each with how many of its kind come before it: the n-th of one text is the n-th of the other, and no other."""
    times = Counter[_Words]()
    found = []
    for words in all_words:
        found.append((words, times[words]))
        times[words] += 1
    return found


def _units(text: str) -> Iterator[_Unit]:
    """All sentences, of tables each row, without the blanks around."""
    for start, stop in sentences(text):
        lines = text[start:stop].splitlines(keepends=True) if " | " in text[start:stop] else [text[start:stop]]
        for at, line in zip(accumulate(map(len, lines), initial=start), lines, strict=False):
            plain = unicodedata.normalize("NFKC", _HEADING.sub("", line.lstrip())).translate(_PLAIN)
            words = tuple(_WORDS.findall(plain))
            if words and not _ITEM.fullmatch("".join(words)):
                yield _Unit((at + len(line) - len(line.lstrip()), at + len(line.rstrip())), words)


def _run(all_words: Iterable[_Words]) -> list[str]:
    return [word for words in all_words for word in words]


def _length(all_words: Iterable[_Words]) -> int:
    """The characters of some sentences."""
    return sum(map(len, _run(all_words)))


def _aligned(first: Sequence[_Unit], second: Sequence[_Unit]) -> list[_Pair]:
    """The sentences of one place and what became of each, in the order of both, so that they share most words."""
    alone: list[_Pair] = [*((one, None) for one in first), *((None, other) for other in second)]
    if len(first) * len(second) > _MOST_PAIRS:
        return alone
    counts = [[Counter(unit.words) for unit in own] for own in (first, second)]
    alike = [[_share(one, other) for other in counts[1]] for one in counts[0]]
    best = [[0.0] * (len(second) + 1) for _ in range(len(first) + 1)]  # of what comes from there on
    for i in reversed(range(len(first))):
        for j in reversed(range(len(second))):
            paired = alike[i][j] + best[i + 1][j + 1] if alike[i][j] >= _PAIRED else 0.0
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    found, i, j = list[_Pair](), 0, 0
    while i < len(first) and j < len(second):
        if best[i][j] == best[i + 1][j]:
            found.append((first[i], None))
            i += 1
        elif best[i][j] == best[i][j + 1]:
            found.append((None, second[j]))
            j += 1
        else:
            found.append((first[i], second[j]))
            i, j = i + 1, j + 1
    rest: list[_Pair] = [*((one, None) for one in first[i:]), *((None, other) for other in second[j:])]
    return [pair for pair in (*found, *rest) if pair[0] is None or pair[1] is None or pair[0].words != pair[1].words]


def _share(one: Counter[str], other: Counter[str]) -> float:
    """The share of their words that two sentences have in common."""
    return 2 * (one & other).total() / (one.total() + other.total())


def _difference(first: str, second: str, one: _Unit | None, other: _Unit | None) -> Difference:
    if one is None or other is None:
        spans = [None if unit is None else unit.span for unit in (one, other)]
        return Difference(spans[0], spans[1], spans[0], spans[1])
    mine, theirs = list(_WORDS.finditer(first, *one.span)), list(_WORDS.finditer(second, *other.span))
    before = _num_shared(mine, theirs)
    after = _num_shared(mine[before:][::-1], theirs[before:][::-1])
    odd = (_around(own, before, len(own) - after) for own in (mine, theirs))
    return Difference(one.span, other.span, *odd)


def _num_shared(one: Sequence[re.Match[str]], other: Sequence[re.Match[str]]) -> int:
    """The number of words with which both begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (mine, theirs) in pairs if mine[0] != theirs[0]), min(len(one), len(other)))


def _around(words: Sequence[re.Match[str]], start: int, stop: int) -> Span:
    """Characters of words [start, stop); of none, the place where they would begin."""
    begin = words[start].start() if start < len(words) else words[-1].end()
    return begin, words[stop - 1].end() if start < stop else begin
