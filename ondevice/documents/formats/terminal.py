"""Logs as a terminal showed them: without its codes, lines that were written over in their last state."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_HELD_CHARS, _MOST_CHARS = 4096, 65_536  # of a line, while its end is awaited; of one that is written over
# Carriage returns that only end a line are none of a terminal.
_IS_TERMINAL = re.compile("[\x1b\x9b\b]|\r(?!\n)")
_COLUMN_ONE = re.compile("(?:\x1b\\[|\x9b)[01]?G")
_CODE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, movements
    "|\x1b[\\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\\\)"  # titles, links
    "|\x1b[ -/]*[0-~]"
)
_WORDS = re.compile(r"[^\W\d_]+|%")


def without_terminal(chunks: Iterable[str]) -> Iterator[str]:
    """The text of a log that arrives in pieces; all other text as it is.

    A state of a line is left out only if it has words or a percentage, and the one that was written over it has all of
    its words: nothing but numbers and bars differ. In a text without LF a carriage return ends a line, as on old Macs.
    """
    held, has_lines = "", False
    for chunk in chunks:
        held += chunk
        has_lines = has_lines or "\n" in chunk
        end = held.rfind("\n") + 1
        if len(held) - end > (_MOST_CHARS if _IS_TERMINAL.search(held, end) else _HELD_CHARS):
            end = len(held)
        yield _shown(held[:end], has_lines)
        held = held[end:]
    yield _shown(held, has_lines)


def _shown(text: str, has_lines: bool) -> str:
    if not _IS_TERMINAL.search(text):
        return text
    text = _CODE.sub("", _COLUMN_ONE.sub("\r", text))
    if has_lines and "\r" in text:
        text = "\n".join(map(_last_states, re.sub("\r+\n", "\n", text).split("\n")))
    return _overstruck(text) if "\b" in text else text


def _last_states(line: str) -> str:
    shown: list[str] = []
    for state in line.split("\r"):
        if not state.strip():
            continue
        before = set(_WORDS.findall(shown[-1])) if shown else None
        if before and before <= set(_WORDS.findall(state)):
            shown.pop()
        shown.append(state)
    return "\n".join(shown)


def _overstruck(text: str) -> str:
    """A backspace takes a letter away that something is written over, unless that is a line under it."""
    shown: list[str] = []
    struck = ""
    for letter in text:
        if letter == "\b" and shown and shown[-1] != "\n":
            struck = shown.pop()
        elif letter != "\b":
            shown.append(struck if letter == "_" and struck.strip() else letter)
            struck = ""
    return "".join(shown)
