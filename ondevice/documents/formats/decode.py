"""Bytes to text without ever failing: which encoding a text has, and decoding it piece by piece.

A byte order mark wins; then UTF-16 that is plain from its zero bytes; then UTF-8. Only bytes that are not UTF-8 start a
guess, once, on the first few kilobytes that hold them. What cannot be decoded becomes U+FFFD and `is_damaged` says so.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

from ondevice.documents.formats.guess import guess

# The guess uses this much from the first byte that is not ASCII.
_SAMPLE_BYTES = 16_384
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: its mark begins with that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Codecs that are not the encoding of any file, however much a file says so.
_NEVER_DECLARED = frozenset(
    {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem", "utf-7"}
)


class Decoder:
    """Decodes one text. `encoding` is "" until the first byte that is not ASCII."""

    def __init__(self, declared: str = "") -> None:
        """`declared` is what the text says of itself (an HTML `charset`); it wins over a guess, not over a mark."""
        self.encoding = ""
        self.is_damaged = False
        self._declared = declared

    def decode(self, blocks: Iterable[bytes]) -> Iterator[str]:
        remaining = iter(blocks)
        head = _at_least(remaining, b"", 4)
        mark, self.encoding = byte_order_mark(head)
        head = head[len(mark) :]
        if not self.encoding:
            self.encoding = self._declared or _wide_encoding(head)
        while not self.encoding:
            match = _NOT_ASCII.search(head)
            cut = match.start() if match else len(head)
            yield head[:cut].decode("ascii")
            head = head[cut:]
            if head:
                # Sound UTF-8 needs no large sample, so a slow stream is not held up for one.
                head = _at_least(remaining, head, 4)
                if _is_utf8(head, is_all=len(head) < 4):
                    self.encoding = "utf-8"
                else:
                    head = _at_least(remaining, head, _SAMPLE_BYTES)
                    self.encoding = guess(head[:_SAMPLE_BYTES])
            else:
                head = next(remaining, b"")
                if not head:
                    return
        yield from self._decode_as(self.encoding, head, remaining)

    def _decode_as(self, encoding: str, head: bytes, remaining: Iterator[bytes]) -> Iterator[str]:
        make = codecs.getincrementaldecoder(encoding)
        decoder = make("strict")
        for block, is_last in _mark_last(head, remaining):
            state = decoder.getstate()
            try:
                yield decoder.decode(block, is_last)
            except UnicodeDecodeError:
                self.is_damaged = True
                decoder = make("replace")
                decoder.setstate(state)
                yield decoder.decode(block, is_last)
                state = decoder.getstate()
                decoder = make("strict")
                decoder.setstate(state)


def byte_order_mark(head: bytes) -> tuple[bytes, str]:
    """The mark that `head` begins with and its encoding, or (b"", "")."""
    return next(((mark, name) for mark, name in _BYTE_ORDER_MARKS if head.startswith(mark)), (b"", ""))


def _is_utf8(head: bytes, is_all: bool) -> bool:
    """True if `head` begins a text in UTF-8; only where more is to come may it end inside a character."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, is_all)
    except UnicodeDecodeError:
        return False
    return True


def known_encoding(name: str) -> str:
    """A declared name as Python's codec for text, "" when there is none."""
    try:
        info = codecs.lookup(name)
    except (LookupError, ValueError):
        return ""
    is_text = getattr(info, "_is_text_encoding", True)
    return info.name if is_text and info.incrementaldecoder and info.name not in _NEVER_DECLARED else ""


def _wide_encoding(head: bytes) -> str:
    """UTF-16 without a mark shows in its zero bytes: every second one, in text that is mostly Latin."""
    pairs = len(head[:4096]) // 2
    if pairs < 2:
        return ""
    even, odd = head[: 2 * pairs : 2].count(0), head[1 : 2 * pairs : 2].count(0)
    if odd > 0.7 * pairs and even < 0.05 * pairs:
        return "utf-16-le"
    if even > 0.7 * pairs and odd < 0.05 * pairs:
        return "utf-16-be"
    return ""


def _at_least(blocks: Iterator[bytes], head: bytes, size: int) -> bytes:
    parts, length = [head], len(head)
    while length < size:
        block = next(blocks, b"")
        if not block:
            break
        parts.append(block)
        length += len(block)
    return b"".join(parts)


def _mark_last(head: bytes, remaining: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    for block in remaining:
        yield head, False
        head = block
    yield head, True
