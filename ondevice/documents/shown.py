"""The text of a document as a person reads it, character by character the text that the model reads.

The lines of a PDF are joined into paragraphs, and the marks of Markdown are left out. What is left out stands as `GONE`
until it is cut out, so that every character keeps its place, and with it its token.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from ondevice.search.outline import AS_WRITTEN, FENCED, MARK, MARKDOWN

GONE = "\0"  # which no text holds: control characters are dropped where a file is read

_FEWEST_CHARS = 30  # of a usual line: shorter ones are those of lists and tables
_GAP, _ENDS = re.compile(r"\S(?:\t| {3,})\S|\| "), ".!?:;\u061f\u3002"
_BROKEN = re.compile(r"([^\W\d_]+)-\Z")
_WITHIN = re.compile(r"(?<=[^\W\d_])-\n(?=[^\W\d_])")
_BEGINS = re.compile(r"[^\W\d_]+")
# Strong words end within 400 characters: a line of marks that nothing closes would be searched to its end for each.
_MARKS = re.compile(
    r"(?m)(?P<heading>^ {0,3}#{1,6}(?:[ \t]+|$))"
    r"|(?P<closing>(?<=\S)[ \t]+#+[ \t]*$)"
    r"|(?P<strong>\*\*|__)(?=\S)(?P<words>[^\n]{0,400}?\S)(?P=strong)"
    r"|(?<![\w*])(?P<stress>[*_])(?=[^\s*_])(?P<word>[^\n*_]*?[^\s*_])(?P=stress)(?![\w*])"
)


def as_shown(kind: str) -> Callable[[str], str]:
    """For the text of a page of this kind of document: the same, with `GONE` in place of what is left out."""
    if kind in MARKDOWN:
        return unmarked
    if kind in AS_WRITTEN:
        return str
    return lambda text: MARK.sub(lambda mark: GONE * len(mark[0]), flowing(text) if kind == "pdf" else text)


def without_gone(text: str) -> str:
    """The text that is shown in the end."""
    return text.replace(GONE, "")


def passage(text: str, kind: str) -> str:
    """A few words out of such a page, as they are shown by themselves: with spaces for the ends of lines."""
    if kind in MARKDOWN:
        return without_gone(unmarked(text)).replace("**", "")  # half a mark may be cut off
    text = text if kind in AS_WRITTEN else MARK.sub("", text)
    return _WITHIN.sub("-", text) if kind == "pdf" else text


def flowing(text: str) -> str:
    """The text of a PDF's page with its lines joined into paragraphs.

    A line goes on in the next one where it is nearly as long as the long ones of the page, ends no sentence, and a word
    begins the next; rows of tables and short lines stay as they are. A word that the end of the line has broken is made
    whole where it stands in one piece elsewhere on the page; else its hyphen stays, for it may be its own.
    """
    lines = text.split("\n")
    lengths = sorted(len(line) for line in lines if line.strip())
    usual = lengths[len(lengths) * 3 // 4] if lengths else 0
    if usual < _FEWEST_CHARS:
        return text
    whole = set(_BEGINS.findall(text))
    shown: list[str] = []
    for line, after in pairwise(lines):
        if not _goes_on(line, after, usual):
            shown += [line, "\n"]
        elif (broken := _BROKEN.search(line)) and (rest := _BEGINS.match(after)):
            shown += [line[:-1] + GONE if broken[1] + rest[0] in whole else line, GONE]
        else:
            shown += [line, GONE if line.endswith(" ") else " "]
    return "".join([*shown, lines[-1]])


def unmarked(text: str) -> str:
    """The text of a Markdown section without the marks of headings and of emphasis; code stays as it is written."""
    pieces = FENCED.split(text)
    return "".join(piece if at % 2 else _MARKS.sub(_unmark, piece) for at, piece in enumerate(pieces))


def _unmark(found: re.Match[str]) -> str:
    if found["strong"]:
        inner = _MARKS.sub(_unmark, found["words"])
        return f"{GONE * 2}{inner}{GONE * 2}"
    return f"{GONE}{found['word']}{GONE}" if found["stress"] else GONE * len(found[0])


def _goes_on(line: str, after: str, usual: int) -> bool:
    end = line.rstrip()
    if MARK.match(line):
        return False
    begins = after[:1].isalpha() or (end[-1:] == "," and after[:1].strip())
    if len(end) < 0.75 * usual or not begins or _GAP.search(line) or _GAP.search(after):
        return False
    digits = sum(map(str.isdigit, line))
    return digits < 0.2 * len(line) and (after[0].islower() or end[-1] not in _ENDS)
