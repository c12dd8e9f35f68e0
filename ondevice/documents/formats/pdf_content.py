"""A quicker reader for the content streams of PDF pages: only the operators that place text, in one regular expression.

pypdf reads a stream byte by byte, which is over half of the time of a page. Whatever this reader does not know
(inline images, nested arrays, odd names, damage) it leaves to pypdf, so the text is the same either way.
"""

from __future__ import annotations

import re
from typing import Any

from pypdf.errors import LimitReachedError
from pypdf.generic import ArrayObject, ContentStream, NameObject

# As many operands and operators as pypdf allows here.
_MAX_TOKENS = 400_000
_SPACE = b"\x00\t\n\x0c\r "
# Possessive quantifiers all along: no input makes it look at a byte twice.
_TOKEN = re.compile(
    rb"""[\x00\t\n\x0c\r ]*+(?:
      (?P<hex><[0-9A-Fa-f\x00\t\n\x0c\r ]*+>)
    | (?P<number>[+-]?(?:\d++(?:\.\d*+)?+|\.\d++)(?=[\x00\t\n\x0c\r \[\]()<>/%]|\Z))
    | (?P<literal>\((?:[^()\\]++|\\.)*+\))
    | (?P<array>\[) | (?P<end>\])
    | (?P<operator>[A-Za-z'"][A-Za-z0-9*'"]*+(?=[\x00\t\n\x0c\r \[\]()<>/%]|\Z))
    | (?P<name>/[!-"$&'*-.0-;=?-Z\\^-z|~]*+(?=[\x00\t\n\x0c\r \[\]()<>/%]|\Z))
    | (?P<dictionary><<(?:[^()<>]++|\((?:[^()\\]++|\\.)*+\)|<[0-9A-Fa-f]*+>)*+>>)
    )""",
    re.VERBOSE | re.DOTALL,
)
_TEXT_OPERATORS = frozenset(b"BT ET q Q cm Tz Tc Tw TL Tf Td TD Tm T* Tj TJ ' \" Do".split())
# These would be operands, or begin bytes that are not tokens.
_NOT_OPERATORS = frozenset({b"BI", b"ID", b"EI", b"true", b"false", b"null"})
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|\r\n|[^0-7])", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f", b"\n": b"", b"\r": b"", b"\r\n": b""}
_KNOWN_ESCAPES = frozenset(b"nrtbf()\\\r\n01234567")

Operation = tuple[list[Any], bytes]


class TextContentStream(ContentStream):
    """A content stream that gives `extract_text` the operators it needs and no others."""

    @property  # type: ignore[misc]  # can be set in the base class; nobody sets it here
    def operations(self) -> list[Operation]:
        found = text_operations(self.get_data())
        return super().operations if found is None else found


def text_operations(data: bytes) -> list[Operation] | None:
    """(operands, operator) for every text operator, None when the stream needs the full parser.

    Raises:
        LimitReachedError: the stream has more tokens than any real page.
    """
    operations: list[Operation] = []
    operands: list[Any] = []
    array: ArrayObject | None = None
    position, count = 0, 0
    while match := _TOKEN.match(data, position):
        position = match.end()
        count += 1
        if count > _MAX_TOKENS:
            raise LimitReachedError("Reached maximum number of tokens per stream.")
        kind = match.lastgroup
        token = match[kind or 0]
        if kind == "operator":
            if array is not None or token in _NOT_OPERATORS:
                return None
            if token in _TEXT_OPERATORS:
                operations.append((operands, token))
            operands = []
        elif kind == "array":
            if array is not None:
                return None
            array = ArrayObject()
        elif kind == "end":
            if array is None:
                return None
            operands.append(array)
            array = None
        else:
            value = _operand(kind, token)
            if value is None:
                return None
            (operands if array is None else array).append(value)
    # Text after the last token means that something is unknown or damaged.
    return operations if array is None and not data[position:].strip(_SPACE) else None


def _operand(kind: str | None, token: bytes) -> Any:
    if kind == "number":
        return float(token)
    if kind == "literal":
        return _literal(token[1:-1])
    if kind == "hex":
        digits = token[1:-1].translate(None, _SPACE)
        return bytes.fromhex((digits + b"0" if len(digits) % 2 else digits).decode("ascii"))
    if kind == "name":
        return NameObject(token.decode("ascii"))
    # A dictionary belongs to a marked-content operator, which places no text.
    return ""


def _literal(text: bytes) -> bytes | None:
    if b"\\" not in text:
        return text
    if any(match[1][0] not in _KNOWN_ESCAPES or _is_too_large(match[1]) for match in _ESCAPE.finditer(text)):
        return None
    return _ESCAPE.sub(_unescape, text)


def _is_too_large(escape: bytes) -> bool:
    return escape[:1].isdigit() and int(escape, 8) > 255


def _unescape(match: re.Match[bytes]) -> bytes:
    escape = match[1]
    return bytes([int(escape, 8)]) if escape[:1].isdigit() else _ESCAPED.get(escape, escape)
