"""Raised, lowered and struck letters and formulas in text without layout: 10^6, 12/34, euros[2], ~~90~~ 75.

Readers put marks around such letters with `marked`; `settle` turns them into text once the neighbours are known.
By hand: no converter of documents that was tried kept formulas, powers and struck words apart from each other.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

# Control characters, which no text holds: XML forbids them, and the reader of HTML drops them.
RAISED, LOWERED, STRUCK, _END = "\x0e", "\x0f", "\x10", "\x11"
MARKS = re.compile(f"[{RAISED}-{_END}]")
_MARKED = re.compile(f"(\\w{{0,4}}|\\S?)([{RAISED}{LOWERED}{STRUCK}])([^{RAISED}-{_END}]*){_END}(\\w?)")
_NOTE = re.compile(r"\d{1,3}(?:[,\u2013-]\d{1,3})*|[*\u2020\u2021\u00a7]+|[a-z]")
_WITH_POWERS = frozenset({"sin", "cos", "tan", "log", "exp", "mol", "min", "rad", "det"})
_SIMPLE = re.compile(r"[-\u2212+]?[\w.,'\u2032\u221e\u221a]+|\([^()]*\)|\[[^][]*\]|.?", re.DOTALL)
_NO_LIMIT = re.compile(r"[_^](?=[_^ ]|$)")
_OPERATORS = str.maketrans({"\u2061": " ", "\u2062": "\u00b7", "\u2063": "", "\u2064": "+"})  # which nobody sees
_DEGREES = str.maketrans("0123456789n", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207f")

# Elements of MathML by their tag: a, b and c are their children, `row` is all of them.
_FORMULAS = {
    "mfrac": "{a}/{b}", "msup": "{a}^{b}", "msub": "{a}_{b}", "msubsup": "{a}_{b}^{c}", "munder": "{a}_{b}",
    "mover": "{a}^{b}", "munderover": "{a}_{b}^{c}", "mroot": "{b:root}\u221a{a}", "msqrt": "\u221a{row}",
    "binomial": "({a} over {b})",
}  # fmt: skip


class _Part(str):
    """A part of a formula: in brackets unless it is one number, name or bracket; the degree of a root is small."""

    def __format__(self, how: str) -> str:
        if how == "root" and set(self) <= set("0123456789n"):
            return self.translate(_DEGREES)
        return str(self) if _SIMPLE.fullmatch(self) else "(" + self + ")"


def formula(tag: str, row: Sequence[str]) -> str:
    """One element of MathML, whose children are text already."""
    line = ""
    for part in row:
        # 3 and 1/2 are not 31/2, and 12/34 times x is not 12/34x.
        is_apart = line[-1:].isalnum() and part[:1].isalnum() and (part[0].isdigit() or not line.isalnum())
        line += (" " if is_apart else "") + part.translate(_OPERATORS)
    if tag not in _FORMULAS:
        return line
    parts = zip("abc", row, strict=False)
    named = defaultdict(_Part, row=_Part(line), **{name: _Part(text.strip()) for name, text in parts})
    return _NO_LIMIT.sub("", _FORMULAS[tag].format_map(named))


def marked(mark: str, text: str) -> str:
    """The text as `RAISED`, `LOWERED` or `STRUCK`; white space around it stays outside."""
    inner = text.strip()
    return text.replace(inner, f"{mark}{inner}{_END}", 1) if inner else text


def settle(text: str) -> str:
    """Text with its marks made readable, so that no number comes out as another one."""
    while MARKS.search(text):
        text, num_changed = _MARKED.subn(_settle, text)  # the innermost; then what is around it
        if not num_changed:
            return MARKS.sub("", text)
    return text


def _settle(found: re.Match[str]) -> str:
    before, mark, text, after = found.groups()
    if mark == STRUCK:
        return f"{before}~~{text.replace('~~', '')}~~{' ' if after else ''}{after}"
    is_word = before[-1:].isalpha()
    if mark == LOWERED:
        # H2O as people write it, but x_i and 10_2.
        sign = "" if is_word and text.isdecimal() and not after.isdecimal() else "_"
    elif text[:1] in "[(" or (text.isalpha() and len(text) > 1) or text in ("\u00ae", "\u2122", "\u00ba", "\u00aa"):
        return before + text + after  # a mark in brackets, 1st, TM
    elif _NOTE.fullmatch(text) and (
        (len(before) > 2 and before.isalpha() and before not in _WITH_POWERS)
        or before in tuple(".,;:!?\"'\u201d\u2019")
    ):
        return f"{before}[{text}]{after}"
    else:
        sign = "^"
    return f"{before}{sign}{_Part(text) if sign else text}{' ' if after and sign else ''}{after}"
