"""Mail (EML, MBOX) and web pages saved as mail (MHT): heads, texts, and the documents that are attached."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from email import message_from_bytes, policy
from email.message import Message
from itertools import count

from ondevice.documents.formats.decode import Decoder, known_encoding
from ondevice.documents.formats.html import html_blocks
from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.opening import inner_pages
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.sections import Block, sections
from ondevice.documents.types import Page

_HEADS = ("Subject", "From", "To", "Cc", "Date")
_MAX_DEPTH = 20  # of mails in mails
_MAX_MAIL_BYTES = 64_000_000
# Mails of a box: a sender, or one with a time. A sentence may begin so, too.
_BETWEEN = re.compile(rb"From (?:\S+\s*$|.*\d:\d\d.*\b\d{4}\b)")
_COPIES = ("text/plain", "text/html")
_WORD = re.compile(r"\w+")
_MOST_LACKED = 0.1  # of the words of an alternative: where another one lacks more, it is no copy


def open_mail(request: Request) -> Reader:
    """Each mail as sections, the documents attached to it after them; of a saved page its text."""
    kind = "mht" if request.suffix.startswith(".mht") else "eml"
    return Reader(kind, "section", _pages(request, kind == "mht"))


def _pages(request: Request, is_page: bool) -> Iterator[Page]:
    numbers = count(1)
    for number, data in enumerate(_mails(request), 1):
        attached: list[tuple[str, bytes]] = []
        try:
            mail = message_from_bytes(data, policy=policy.default)
            blocks = [*([] if is_page else _head(mail)), *_blocks(mail, attached, is_page)]
        except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:  # of the library
            what = "is nested too deeply" if isinstance(error, RecursionError) else "is damaged"
            yield Page(next(numbers), "", "unreadable", f"mail {number} {what} [{type(error).__name__}]")
            continue
        for section in sections(blocks):
            yield section.page(next(numbers), "section")
        for name, inner in attached:
            yield from (replace(page, number=next(numbers)) for page in inner_pages(request, name, inner))


def _mails(request: Request) -> Iterator[bytes]:
    """The mails of a box, which begin with a line `From ` after a blank one; a file that begins otherwise is one."""
    held: list[bytes] = []
    size = 0
    with request.open() as file:
        is_box = file.read(5) == b"From "
        file.seek(0)
        for line in iter(lambda: file.readline(_MAX_MAIL_BYTES), b""):
            if is_box and _BETWEEN.match(line) and (not held or not held[-1].strip()):
                if size:
                    yield b"".join(held)
                held, size = [], 0
                continue
            held.append(line[1:] if is_box and line.startswith(b">From ") else line)
            size += len(line)
    yield b"".join(held)


def _head(mail: Message, names: Iterable[str] = _HEADS) -> Iterator[Block]:
    raw = {name.title(): str(value).encode("utf-8", "surrogateescape") for name, value in [*mail.raw_items()][::-1]}
    told, note = {name: str(mail[name]) for name in names if mail[name]}, ""
    if any("\ufffd" in text for text in told.values()):  # of bytes that are neither ASCII nor UTF-8
        decoder = _decoder(mail, b"\n".join(raw.values()))
        for name in (name for name in raw if "\ufffd" in told.get(name, "")):
            told[name] = str(policy.default.header_fetch_parse(name, "".join(decoder.decode([raw[name]]))))
        note = decoder.note
    if told:
        lines = [f"{name}: {normalize(text)}\n" for name, text in told.items()]
        yield Block("".join([*lines, "\n"]), is_heading=True, note=note)


def _decoder(mail: Message, sample: bytes = b"") -> Decoder:
    """A decoder for the encoding that the first text says; ASCII, which nearly every encoding holds, says nothing."""
    charset = known_encoding(next(filter(None, (part.get_content_charset() for part in mail.walk())), ""))
    return Decoder("" if charset == "ascii" else charset, sample)


def _blocks(part: Message, attached: list[tuple[str, bytes]], is_page: bool, depth: int = 0) -> Iterator[Block]:
    """The text of a part and of all that are in it; of alternatives the first that lacks nothing of the others."""
    if depth > _MAX_DEPTH:
        raise RecursionError
    kind, name = part.get_content_type(), part.get_filename()
    if part.is_multipart():
        inner = [one for one in part.get_payload() if isinstance(one, Message)]
        if kind == "multipart/alternative":
            copies = [one for one in inner if one.get_content_type() in _COPIES or one.is_multipart()] or inner[-1:]
            yield from _chosen([[*_blocks(one, attached, is_page, depth + 1)] for one in copies])
            inner = [one for one in inner if one.get_content_type() == "text/calendar" and one not in copies]
        for one in inner:
            if part.get_content_maintype() == "message":
                yield from _head(one, _HEADS if kind == "message/rfc822" else one.keys())  # the others say nothing else
            yield from _blocks(one, attached, is_page, depth + 1)
        return
    data = part.get_payload(decode=True)
    data = data if isinstance(data, bytes) else b""
    if (name and part.get_content_disposition() == "attachment") or not kind.startswith("text/"):
        # Pictures of a mail or a page that have no words; whatever else it may be is read or named.
        if data and not (kind.startswith("image/") and part.get_content_disposition() != "attachment"):
            attached.append((name or kind, data))
        elif data and not is_page and not part["Content-ID"]:  # which no page shows
            yield Block("", lost=("picture",))
    elif kind == "text/html" or not is_page:
        if kind == "text/html":
            yield from html_blocks(data, part.get_content_charset() or "")
            return
        decoder = _decoder(part)
        text = normalize("".join(decoder.decode([data]))).replace("\f", "\n").strip("\n")
        if text.strip():
            yield Block(text + "\n\n", lost=decoder.lost(text), note=decoder.note)


def _chosen(alternatives: list[list[Block]]) -> list[Block]:
    """The first one, or a later one that says more: a plain text may only say that there is another."""
    best, known = list[Block](), set[str]()
    for blocks in alternatives:
        words = {word for block in blocks for word in _WORD.findall(block.text.casefold())}
        if len(words - known) > _MOST_LACKED * len(words):
            best, known = blocks, words
    return best
