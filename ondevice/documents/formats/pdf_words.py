"""Words that are broken at the ends of lines on a PDF page."""

from __future__ import annotations

import re

_HYPHENS, _LONGEST_WORD = ("-", "\u2010", "\u00ad"), 80
_BROKEN = re.compile(r"(.*?)([^\W\d_]+)")
_REST = re.compile(r"([^\W\d_]+)\S*[ \t]?")
# First parts of English words that keep their hyphen.
_FIRST_PARTS = frozenset(("cross", "full", "half", "hard", "high", "ill", "long", "low", "self", "short", "well"))

_LINKS = frozenset(("of", "to", "the", "in", "by", "on", "and", "for", "a"))  # within compounds: state-of-the-art
# Words behind the first part of a compound whose second one comes later: "Haupt- und Nebenkosten".
_BETWEEN_PARTS = frozenset(("and", "or", "und", "oder", "bzw", "sowie"))


def rejoined(texts: list[str], words: set[str]) -> list[str]:
    """The lines, with the second half of a broken word behind the first.

    Its hyphen goes, unless the word is known with it, or begins like a compound and is not known without.
    """
    lines = list(texts)
    for index, after in enumerate(texts[1:]):
        line = lines[index]
        if not line.endswith(_HYPHENS) or not (after[:1].islower() or line[-1] == "\u00ad"):
            continue
        broken, rest = _BROKEN.fullmatch(line[-_LONGEST_WORD:-1].split(" ")[-1]), _REST.match(after)
        if not broken or not rest:
            continue
        first, second = broken[2], rest[1]
        goes_on = rest[0][len(second) :].startswith("-")
        if second in _BETWEEN_PARTS and not goes_on:
            continue
        is_compound = f"{first}-{second}" in words or (first.lower() in _FIRST_PARTS and first + second not in words)
        is_compound = is_compound or 1 in (len(first), len(second)) or (goes_on and second in _LINKS)
        is_compound = is_compound or any(map(str.isalnum, broken[1]))  # the end of an address, or of several words
        hyphen = "-" if is_compound and line[-1] != "\u00ad" else ""
        lines[index] = line[:-1] + hyphen + rest[0].rstrip()
        lines[index + 1] = after[rest.end() :]
    return [line for line in lines if line.strip()]
