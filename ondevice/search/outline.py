"""The outline of a text: lines that readers mark as headings, or that call themselves chapters or go by numbers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

AS_WRITTEN = ("txt", "csv", "jsonl", "srt", "rtf", "image")  # kinds of documents whose readers mark nothing
MARKDOWN = ("md", "ipynb")
TEXTS = (  # what a question may call a document
    "document|text|paper|book|article|report|contract|story|novel|file|letter|manual|pdf|lease|thesis|essay|agreement"
    "|deck|presentation|workbook|pep|rfc|specification|guide|handbook|study|proposal|transcript"
)
FENCED = re.compile(r"(^ {0,3}(?:```|~~~).*?(?:^ {0,3}(?:```|~~~)[ \t]*$|\Z))", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"[^\n]*")
MARK = re.compile(r"^#{2,7} (?=\S)", re.MULTILINE)  # of headings, but in Markdown
_MARKDOWN_MARK = re.compile(r"^ {0,3}#{1,6}[ \t]+(?=\S)", re.MULTILINE)
_ROMAN = r"(?=[lxvi]+\b)(?:x?l|l?x{0,3})(?:i[xv]|v?i{0,3})(?<=[lxvi])"
_NUMBER = rf"(?:\d{{1,3}}|{_ROMAN}|one|two|three|four|five|six|seven|eight|nine|ten)\b"
_LEVELS = (
    "part|book|volume|act|teil",
    "chapter|adventure|canto|letter|scene|stave|kapitel|chapitre|capítulo",
    "section|article|artikel",
)
_CALLED = re.compile(
    rf"^[ \t]*(?:{'|'.join(f'({names})' for names in _LEVELS)}) {_NUMBER}(?:[ \t]*$|[.:)\u2013\u2014-][^\n]{{0,90}}$)",
    re.MULTILINE | re.IGNORECASE,
)
_NUMBERED = re.compile(r"(?m)^[ \t]*(\d{1,2}(?:\.\d{1,2}){0,3})[.)]?[ \t]+[^\W\d_][^\n]{1,80}(?<![.,;:?!\d])$")
_TITLE_BELOW = re.compile(r"\n{1,2}[ \t]*(\S[^\n]{1,60}?(?<![.,;]))[ \t]*\n[ \t]*\n")  # of a chapter
_MOST_WORDS = 10  # of a heading that only its number tells
_SHORT = 80  # characters under an entry of a table of contents
_NAMES_ONE = re.compile(
    r"(?i)\b(?:part|chapter|section|clause|appendix|headed|heading|(?:en)?titled|kapitel|chapitre|capítulo|abschnitt"
    r"|überschrift)\b"
)
_IN_QUOTES = re.compile(r"[\"\u201c]([^\"\u201c\u201d]{2,80})[\"\u201d]")
_SUMMARY = re.compile(  # of which text, too: a document with a heading "Report" may be asked for as one
    rf"(?i)\b(?:summar\w*|overview|outline|{TEXTS})\b"
)
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_OWN = rf"\d{{1,3}}(?:\.\d{{1,3}}){{0,3}}|{'|'.join(_WORDS)}|{_ROMAN}"
_BY_NUMBER = re.compile(
    rf"(?i)(?:\b({'|'.join(_LEVELS)}|abschnitt|clause)s?(?:\s+|(?=\d))|§+\s*)"
    rf"((?:{_OWN})\b(?:(?:\s*,\s*|\s*&\s*|\s+(?:and|or|with|und|et|y|to)\s+)(?:{_OWN})\b)*)"
)
_EACH_NUMBER = re.compile(rf"(?i)\b(?:{_OWN})\b")
# "I" is a number of its own at an end, or where the section does something; in "which part I must sign" it is a person.
_AFTER_I = re.compile(r"(?i)\W*\Z|\s*[.,:;?)]|\s+(?:says?|mean|about|of|and|deals?|describes?|covers?|discuss\w*|to)\b")
_OWN_NUMBER = re.compile(rf"(?i)(?:({'|'.join(_LEVELS)})\s+)?(\d{{1,3}}(?:\.\d{{1,3}})*\b|{_ROMAN}(?=[.:)]|\Z))")
_ASIDE = re.compile(r"\([^()]*\)")
_FIGURES = {"i": 1, "v": 5, "x": 10, "l": 50}


class Heading(NamedTuple):
    """A heading: its words, its level from 1, the page it is on, and the character of the text that it begins at."""

    title: str
    level: int
    page_index: int
    start: int


def headed(text: str, level: int) -> str:
    """A heading with the mark that tells it from other lines: #, once more than its level from 1 to 6 says."""
    title = text.lstrip("\f")
    return f"{text[: len(text) - len(title)]}{'#' * (min(level, 6) + 1)} {title}" if title else text


def outline(texts: Sequence[str], kind: str) -> list[Heading]:
    """The headings of a document, without the entries of its table of contents.

    Args:
        texts: its pages; characters are counted through all of them.
        kind: of `Document.kind`.
    """
    found = [] if kind in AS_WRITTEN else list(_marked(texts, is_markdown=kind in MARKDOWN))
    if not found and kind not in MARKDOWN:
        found = list(_called("".join(texts), texts, is_paged=kind not in AS_WRITTEN))
    end = Heading("", 0, 0, sum(map(len, texts)))
    sizes = [after.start - one.start - len(one.title) for one, after in pairwise([*found, end])]
    keys = [own[0].lower() if (own := _OWN_NUMBER.match(one.title)) else _name(one.title) for one in found]
    longest: dict[str, int] = {}
    for key, size in zip(keys, sizes, strict=True):
        longest[key] = max(longest.get(key, 0), size)
    return [one for one, key, size in zip(found, keys, sizes, strict=True) if size > _SHORT or size == longest[key]]


def numbers_named(question: str) -> list[tuple[str, str]]:
    """Kind and number in figures of each section that a question names by its number, such as ("chapter", "4")."""
    found = dict[tuple[str, str], None]()
    for named in _BY_NUMBER.finditer(question):
        for one in _EACH_NUMBER.finditer(named[2]):
            after = question[named.start(2) + one.end() :]
            is_letter = one[0].isalpha() and len(one[0]) == 1
            if not is_letter or (one[0].isupper() and (one[0] != "I" or _AFTER_I.match(after))):
                found[(named[1] or "section").lower(), _value(one[0])] = None
    return [*found]


def sections_called(question: str, headings: Sequence[Heading], end: int, *, is_whole: bool) -> list[tuple[int, int]]:
    """Characters [start, stop) of the sections that a question names by number, or of one by title, in their order.

    Each ends where the next heading of its level or of a higher one begins.

    Args:
        end: of the text.
        is_whole: it asks for a summary, so that a title alone names a section.
    """
    wanted, named = list[list[int]](), numbers_named(question)
    for kind, number in named:
        wanted.append([at for at, one in enumerate(headings) if _is_numbered(one.title, kind, number)])
    names_one, quoted = _NAMES_ONE.search(question), _IN_QUOTES.search(question)
    if not named and (names_one or quoted or is_whole):
        whole = question if names_one else "" if quoted and not is_whole else _SUMMARY.sub("", question)
        words = f" {_words(f'{whole} {quoted[1] if quoted else str()}')} "
        titled = [(len(name), at) for at, one in enumerate(headings) if f" {(name := _name(one.title))} " in words]
        longest = max(titled, default=(0, 0))[0]
        wanted = [[at for length, at in titled if 2 < length == longest]]
    found = set[tuple[int, int]]()
    for alike in wanted:
        sections = [(headings[at].start, _end_of(at, headings, end)) for at in alike]
        found |= {max(sections, key=lambda section: section[1] - section[0])} if sections else set()
    return sorted(found)


def _end_of(at: int, headings: Sequence[Heading], end: int) -> int:
    return next((one.start for one in headings[at + 1 :] if one.level <= headings[at].level), end)


def heading_at(headings: Sequence[Heading], character: int) -> Heading | None:
    """The last heading that begins at or before a character; None if none does."""
    at = bisect_right(headings, character, key=lambda one: one.start)
    return headings[at - 1] if at else None


def phrase(words: str) -> re.Pattern[str]:
    """The pattern of whole words next to each other. Case and white space do not count."""
    before, after = (r"(?<!\w)" if words[:1].isalnum() else ""), (r"(?!\w)" if words[-1:].isalnum() else "")
    return re.compile(before + r"\s+".join(map(re.escape, words.split())) + after, re.IGNORECASE)


def matches(pattern: re.Pattern[str], texts: Sequence[str]) -> Iterator[tuple[int, re.Match[str], int]]:
    """Page, match, and its first character in all of the text, for each place where a pattern matches."""
    start = 0
    for index, text in enumerate(texts):
        for match in pattern.finditer(text):
            yield index, match, start + match.start()
        start += len(text)


def _marked(texts: Sequence[str], *, is_markdown: bool) -> Iterator[Heading]:
    if is_markdown:
        texts = [FENCED.sub(lambda code: " " * len(code[0]), text) for text in texts]
    for index, mark, start in matches(_MARKDOWN_MARK if is_markdown else MARK, texts):
        line = _LINE.match(mark.string, mark.end())
        title = line[0].rstrip(" \t#") if line else ""
        yield Heading(title, mark[0].count("#") - (not is_markdown), index, start)


def _called(text: str, texts: Sequence[str], *, is_paged: bool) -> Iterator[Heading]:
    """Lines such as "Chapter 4." and "2.1 Data"; those of a text without pages between blank lines alone."""
    ends = [*accumulate(map(len, texts))]
    last: tuple[int, ...] = (0,)
    for line in sorted([*_CALLED.finditer(text), *_NUMBERED.finditer(text)], key=re.Match.start):
        title = " ".join(line[0].split())
        if not is_paged and text[max(line.start() - 2, 0) : line.start()].strip("\n"):
            continue
        if line.re is _NUMBERED:
            number = tuple(map(int, line[1].split(".")))
            if len(title.split()) > _MOST_WORDS or number not in {(1,), (*last, 1), *_next(last)}:
                continue
            last, level = number, len(number)
        else:
            level = next(at for at, name in enumerate(line.groups(), 1) if name)
            if len(title.split()) == 2 and (below := _TITLE_BELOW.match(text, line.end())):
                title += f" {below[1]}"
        start = line.start() + len(line[0]) - len(line[0].lstrip())
        yield Heading(title, level, bisect_right(ends, start), start)


def _next(number: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The numbers that may follow on the same level or on a higher one."""
    return ((*number[:depth], number[depth] + 1) for depth in range(len(number)))


def _is_numbered(title: str, kind: str, value: str) -> bool:
    own = _OWN_NUMBER.match(title)
    return bool(own and _value(own[2]) == value and (own[1] or kind).lower() == kind)


def _value(number: str) -> str:
    """The number in figures."""
    if number[0].isdigit():
        return number
    if (word := number.lower()) in _WORDS:
        return str(_WORDS.index(word) + 1)
    figures = [_FIGURES[letter] for letter in number.lower()] + [0]
    return str(sum(-one if one < after else one for one, after in pairwise(figures)))


def _name(title: str) -> str:
    """The words of a title without its number, article, and what stands in brackets."""
    own = _OWN_NUMBER.match(title)
    bare = _words(_ASIDE.sub("", title[own.end() :] if own else title))
    return bare.removeprefix("the ") or _words(title)


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
