"""Documents as readers return them: pages of text, and for every page without text the reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Page:
    """One page (or part, chapter, section: see `Document.unit`).

    `number` counts from 1. `text` is "" when nothing could be read; then, and when the text is not sure to be all and
    right, `problem_code` is one of `scan`, `blank`, `repeated` (its text is that of an earlier page), `too-complex`,
    `unreadable`, `partial` (something on it is no text, or is hidden), `guessed` (its encoding), `recognised` (by OCR),
    `skipped` (a document inside this one), and `problem` is a sentence for the user.
    """

    number: int
    text: str
    problem_code: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A document ready to be read by the engine.

    `pages` is a tuple for a file. For a stream it is an iterator that can be walked once, and
    `num_pages`, `size_bytes` are None: the text is never in memory as a whole. `unit` is what `Page.number`
    counts: `page` only where the file itself has pages, else `part`, `chapter` or `section`.
    `sha256` is of the file's bytes, "" for a stream.
    """

    name: str
    kind: str
    unit: str
    pages: Iterable[Page] = ()
    num_pages: int | None = None
    size_bytes: int | None = None
    sha256: str = ""
