"""Bytes to text without ever failing: which encoding a text has, and decoding it piece by piece.

A byte order mark wins; then UTF-16 that shows in its letters; then UTF-8. Only bytes that are not UTF-8 start a guess,
once: from lines of the whole file, from the first kilobytes of a stream. A line of another encoding among lines in
UTF-8 is guessed by itself. What cannot be decoded becomes U+FFFD and `is_damaged` says so.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

from ondevice.documents.formats.guess import NOT_ASCII, UTF8_SEQUENCE, guess, wide_encoding

# The guess uses this much of a stream from the first byte that is not ASCII, and so much before it.
_SAMPLE_BYTES = 16_384
_BEFORE_BYTES = 512
_LINE_BYTES = 1000  # on either side of a byte that is not UTF-8
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: its mark begins with that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Codecs that are not the encoding of any file, however much a file says so.
_NEVER_DECLARED = {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem", "utf-7"}


class Decoder:
    """Decodes one text. `encoding` is "" until the first byte that is not ASCII; `note` says what is guessed."""

    def __init__(self, declared: str = "", sample: bytes = b"") -> None:
        """`declared` is what the text says of itself (an HTML `charset`); it wins over a guess, not over a mark.

        Args:
            sample: for the guess; where there is none, it is taken from the blocks as they come.
        """
        self.encoding = self.note = ""
        self.is_damaged = False
        self._declared, self._sample = declared, sample

    def decode(self, blocks: Iterable[bytes]) -> Iterator[str]:
        remaining = iter(blocks)
        head = _at_least(remaining, b"", 4)
        mark, self.encoding = byte_order_mark(head)
        head = head[len(mark) :]
        if not self.encoding:
            self.encoding = self._declared or wide_encoding(head)
        if not self.encoding and self._sample:
            self._guess(self._sample)
        before = b""
        while not self.encoding:
            match = NOT_ASCII.search(head)
            cut = match.start() if match else len(head)
            yield head[:cut].decode("ascii")
            before, head = (before + head[:cut])[-_BEFORE_BYTES:], head[cut:]
            if head:
                # Sound UTF-8 needs no large sample, so a slow stream is not held up for one.
                head = _at_least(remaining, head, 4)
                if not _is_utf8(head, is_all=len(head) < 4):
                    head = _at_least(remaining, head, _SAMPLE_BYTES)
                self._guess(before + head[:_SAMPLE_BYTES])
            else:
                head = next(remaining, b"")
                if not head:
                    return
        yield from self._decode_as(self.encoding, head, remaining)

    def lost(self, text: str) -> tuple[str, ...]:
        """Bytes of a decoded text that could not be decoded, as in `Block.lost`."""
        what = f"byte of another encoding than {self.encoding.upper()}, shown as \ufffd"
        return (what,) * text.count("\ufffd") if self.is_damaged else ()

    def _guess(self, sample: bytes) -> None:
        is_sound = _is_utf8(sample, is_all=False) and not (b"\x1b$" in sample or b"~{" in sample)
        self.encoding = "utf-8" if is_sound else guess(sample)
        if not self.encoding.startswith(("utf", "iso2022", "hz")):
            self.note = f"the file does not say its encoding; it is read as {self.encoding.upper()}, which is a guess"

    def _decode_as(self, encoding: str, head: bytes, remaining: Iterator[bytes]) -> Iterator[str]:
        make = codecs.getincrementaldecoder(encoding)
        decoder = make("strict")
        for block, after in pairwise(chain([head], remaining, [None])):
            assert block is not None
            is_last = after is None
            state = decoder.getstate()
            try:
                yield decoder.decode(block, is_last)
            except UnicodeDecodeError:
                decoder = make(_BY_LINES if encoding == "utf-8" else "replace")
                decoder.setstate(state)
                text = decoder.decode(block, is_last)
                if "\ufffd" in text:
                    self.is_damaged = True
                else:
                    self.note = "some lines are not UTF-8 like the others; their encoding is a guess"
                yield text
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


def _by_lines(error: UnicodeError) -> tuple[str, int]:
    """For bytes that are not UTF-8: the rest of their line in a guessed encoding, unless the line is damaged UTF-8."""
    assert isinstance(error, UnicodeDecodeError)
    data, at = error.object, error.start
    least = max(at - _LINE_BYTES, 0)
    start = data.rfind(b"\n", least, at) + 1 or least
    end = data.find(b"\n", at, at + _LINE_BYTES)
    line = data[start : end if end >= 0 else at + _LINE_BYTES]
    if UTF8_SEQUENCE.search(line):
        return "\ufffd", error.end
    return line[at - start :].decode(guess(line), "replace"), start + len(line)


_BY_LINES = "ondevice-by-lines"
codecs.register_error(_BY_LINES, _by_lines)


def _at_least(blocks: Iterator[bytes], head: bytes, size: int) -> bytes:
    while len(head) < size and (block := next(blocks, b"")):
        head += block
    return head
