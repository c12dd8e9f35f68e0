"""Results of the workers of one document so far, and the document or the error that comes of them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ondevice import errors
from ondevice.documents.formats.reader import OCR_FIX
from ondevice.documents.types import Document, Page
from ondevice.documents.worker.limits import MAX_PAGES

_RESAVE_FIX = "Print it to a new PDF, or save it as plain text, then open that."
_PROBLEM_CODES = frozenset(
    ["scan", "letters", "blank", "repeated", "too-complex", "unreadable", "partial", "guessed", "skipped", "recognised"]
) | {""}
_BESIDE = ("[Printed page ", "Attached file: ")  # lines that a page has beside its own letters
_KINDS: list[type[errors.DocumentError]] = [errors.DocumentError, *errors.DocumentError.__subclasses__()]
_ERRORS = {kind.code: kind for kind in _KINDS}


@dataclass(slots=True)
class Collected:
    """Pages in order, from as many workers as it took. `lost` says why the last worker did not finish."""

    name: str
    kind: str = ""
    unit: str = "page"
    num_pages: int | None = None
    pages: list[Page] = field(default_factory=list)
    num_chars: int = 0
    lost: str = ""
    is_complete: bool = False

    def take(self, message: dict[str, Any]) -> None:
        """Put one message of the worker in its place.

        Raises:
            DocumentError: the worker reports that the document cannot be read.
            ValueError: the message is none of ours; the worker cannot be trusted any more.
        """
        match message:
            case {"type": "opened", "kind": str(kind), "unit": str(unit), "num_pages": int() | None as num_pages}:
                if num_pages is not None and not 0 < num_pages <= MAX_PAGES:
                    raise ValueError("a number of pages that no document has")
                self.kind, self.unit, self.num_pages = kind, unit, num_pages
            case {
                "type": "page",
                "number": int(number),
                "text": str(text),
                "problem_code": str(code),
                "problem": str(why),
            }:
                is_read_at_last = code == "recognised" and 0 < number <= len(self.pages)  # by OCR
                if code not in _PROBLEM_CODES or (number != len(self.pages) + 1 and not is_read_at_last):
                    raise ValueError("a page out of order")
                if is_read_at_last:
                    text = _own_lines(self.pages[number - 1], text) + text
                self.pages[number - 1 : number] = [Page(number, text, code, why)]
                self.num_chars += len(text)
            case {"type": "done"}:
                self.is_complete = True
            case {"type": "error", "code": str(code), "what": str(what), "where": str(where), "fix": str(fix)}:
                raise _ERRORS.get(code, errors.DocumentError)(what, where=where, fix=fix)
            case _:
                raise ValueError("an unknown message")

    @property
    def has_text(self) -> bool:
        return any(page.text.strip() for page in self.pages)

    @property
    def can_continue(self) -> bool:
        """True if another worker could read more: pages are left, and they can be reached one by one."""
        return not self.is_complete and self.num_pages is not None and len(self.pages) < self.num_pages

    def give_up_page(self) -> None:
        """The next page is the one on which the worker was lost."""
        number = len(self.pages) + 1
        self.pages.append(Page(number, "", "too-complex", f"{self.unit} {number} was given up: {self.lost}"))
        self.is_complete = number == self.num_pages

    def give_up_rest(self) -> None:
        """Name everything that has not been read; what has been read stays."""
        if self.num_pages is None:
            number = len(self.pages) + 1
            why = f"everything from {self.unit} {number} on was given up: {self.lost}"
            self.pages.append(Page(number, "", "too-complex", why))
        while self.can_continue:
            self.give_up_page()
        self.is_complete = True


def _own_lines(page: Page, found: str) -> str:
    """The lines of a page with words that OCR has not `found` on its picture; none of letters without meaning."""
    words = _words(found)
    lines = [line for line in page.text.splitlines(keepends=True) if not _words(line) <= words]
    return "".join(line for line in lines if page.problem_code == "scan" or line.startswith(_BESIDE))


def _words(text: str) -> set[str]:
    return {*re.findall(r"\w+", text.casefold())}


def finish(collected: Collected, size_bytes: int, sha256: str) -> Document:
    """The document, or the error that says why there is none."""
    if not collected.kind:
        what = f"nothing of it could be read: {collected.lost}"
        raise errors.DocumentTooComplex(what, where=collected.name, fix=_RESAVE_FIX)
    if not collected.is_complete:
        collected.give_up_rest()
    pages = tuple(collected.pages)
    if not collected.has_text:
        raise _without_text(collected)
    return Document(collected.name, collected.kind, collected.unit, pages, len(pages), size_bytes, sha256)


def _without_text(collected: Collected) -> errors.DocumentError:
    counts = Counter(page.problem_code or "blank" for page in collected.pages)
    total = counts.total()
    if counts["too-complex"]:
        first = next(page for page in collected.pages if page.problem_code == "too-complex")
        what = f"nothing of it could be read: {first.problem}"
        return errors.DocumentTooComplex(what, where=collected.name, fix=_RESAVE_FIX)
    if total and counts["scan"] == total:
        which = f"all {total} {collected.unit}s are scanned images" if total > 1 else "its only page is a scanned image"
        return errors.EmptyDocument(f"{which} without a text layer", where=collected.name, fix=OCR_FIX)
    if counts["unreadable"] or counts["letters"]:
        first = next(page for page in collected.pages if page.problem_code in ("unreadable", "letters"))
        what = f"no {collected.unit} holds text that can be read ({first.problem})"
        fix = f"{_RESAVE_FIX} If letters are drawn as pictures: {OCR_FIX}"
        return errors.EmptyDocument(what, where=collected.name, fix=fix)
    if counts["scan"]:
        what = f"none of its {total} {collected.unit}s holds text: {counts['scan']} scanned, {counts['blank']} blank"
        return errors.EmptyDocument(what, where=collected.name, fix=OCR_FIX)
    fix = "Choose a document with text in it."
    return errors.EmptyDocument("the document holds no text", where=collected.name, fix=fix)
