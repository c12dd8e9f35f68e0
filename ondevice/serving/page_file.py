"""The file of an open document, as far as its pages are shown as pictures; and the last pictures that were."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from ondevice.documents.pictures import PagePicture, draw_pages
from ondevice.errors import DocumentError

MOST_BYTES = 12_000_000  # of pictures of one document that are remembered: some 40 pages
_PATIENCE_SECONDS = 30.0
_BLOCK = 16  # small pictures that are drawn at once
_drawing = threading.Lock()  # one at a time on this machine: the model has the rest of it


class PageFile:
    """A PDF whose pages can be drawn.

    Args:
        path: of the file, which stays where it is until `discard`.
        password: that opens it; it stays in memory alone.
        discard: deletes the file, if that is for this program to do.
    """

    def __init__(self, path: Path, password: str | None = None, discard: Callable[[], None] = lambda: None) -> None:
        self.path, self.password, self.discard = path, password, discard
        # A page that could not be drawn is remembered as well: it would be tried for as long again.
        self._drawn: OrderedDict[tuple[int, int], PagePicture | DocumentError] = OrderedDict()  # by number and width

    def page(self, number: int, width: int = 0) -> PagePicture:
        """The page with this number, from 1, in full, or `width` pixels wide and without its text.

        Raises DocumentError if it cannot be drawn, or others take too long.
        """
        found = self._drawn.get((number, width)) or self._draw_in_turn(number, width)
        if isinstance(found, DocumentError):
            raise found
        return found

    def _draw_in_turn(self, number: int, width: int) -> PagePicture | DocumentError:
        if not _drawing.acquire(timeout=_PATIENCE_SECONDS):
            raise DocumentError("other pages are being drawn", where=f"page {number}", fix="Try again.")
        try:
            found = self._drawn.get((number, width))  # by now
            if found is None:
                try:
                    found = self._draw(number, width)
                except DocumentError as error:
                    found = error
                self._drawn[number, width] = found
            self._drawn.move_to_end((number, width))
            self._make_room()
            return found
        finally:
            _drawing.release()

    def _draw(self, number: int, width: int) -> PagePicture:
        first = (number - 1) // _BLOCK * _BLOCK + 1
        block = range(first, first + _BLOCK) if width else ()
        missing = [at for at in block if at != number and (at, width) not in self._drawn]
        drawn = draw_pages(self.path, number, self.password, width=width, beside=missing)
        self._drawn.update({(at, width): picture for at, picture in zip(missing, drawn[1:], strict=False)})
        return drawn[0]

    def _make_room(self) -> None:
        pictures = [found for found in self._drawn.values() if isinstance(found, PagePicture)]
        num_bytes = sum(picture.nbytes for picture in pictures)
        while num_bytes > MOST_BYTES and len(self._drawn) > 1:
            _, oldest = self._drawn.popitem(last=False)
            num_bytes -= oldest.nbytes if isinstance(oldest, PagePicture) else 0
