"""Pages of a PDF as pictures, each drawn by a limited child process of its own; and where a passage stands on one."""

from __future__ import annotations

import base64
import binascii
import re
import time
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ondevice.documents.extract import HEARTBEAT_SECONDS
from ondevice.documents.formats.reader import PICTURE_FIX, Request
from ondevice.documents.worker.limits import Limits
from ondevice.documents.worker.process import Worker
from ondevice.errors import DocumentError, DocumentTooComplex

PICTURE_LIMITS = Limits(memory_bytes=1_000_000_000, cpu_seconds=20, wall_seconds=20.0)
MEDIA_TYPE = "image/webp"
_MOST_BYTES = 8_000_000  # of a picture
_BESIDE_SECONDS = 1.0  # for all that is drawn beside the page that is waited for
_FEWEST_FOUND = 0.6  # of a passage's letters, else it counts as not found
_FEWEST_LETTERS = 4  # of a line or word that is looked for by itself
_SURE_LETTERS, _NEAR_LETTERS = 16, 400  # a shorter one must stand near to where it should

Frame = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class PagePicture:
    """A drawn page.

    Attributes:
        image: WebP.
        width, height: pixels.
        text: as it stands on the page, in the order of the file.
        places: (len(text), 4) int32: left, top, right and bottom of each character, in 1/10,000 of the page's width and
            height; zeros where it has no place.
    """

    image: bytes
    width: int
    height: int
    text: str
    places: npt.NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return len(self.image) + 4 * len(self.text) + self.places.nbytes


def draw_pages(
    path: Path,
    number: int,
    password: str | None = None,
    *,
    width: int = 0,
    beside: Sequence[int] = (),
    limits: Limits = PICTURE_LIMITS,
) -> list[PagePicture]:
    """Draw the page with this number, from 1, within `limits.wall_seconds`; raises DocumentError with the reason.

    With a `width` it has that many pixels a line and no letters. Of those `beside` it come as many as a second is
    enough for: starting the child takes longer than drawing a dozen small ones.
    """
    where = f"page {number}"
    with Worker(Request(str(path), password, draw=number, width=width, beside=tuple(beside)), limits) as worker:
        drawn = [_next(worker, where, limits.wall_seconds)]
        end = time.monotonic() + _BESIDE_SECONDS
        with suppress(DocumentError):  # whoever wants that page asks for it, and is told
            while len(drawn) <= len(beside):
                drawn.append(_next(worker, where, end - time.monotonic()))
    return drawn


def _next(worker: Worker, where: str, seconds: float) -> PagePicture:
    deadline = time.monotonic() + seconds
    what = f"drawing it takes longer than {seconds:g} seconds"
    try:
        while (left := deadline - time.monotonic()) > 0:
            message = worker.receive(min(left, HEARTBEAT_SECONDS))
            if message is not None:
                return _picture(message, where)
    except EOFError as end:
        what = f"it cannot be drawn: {end}"
    except (ValueError, TypeError, binascii.Error):
        what = "it cannot be drawn: the parser broke down"
    raise DocumentTooComplex(what, where=where, fix=PICTURE_FIX)


def _picture(message: dict[str, Any], where: str) -> PagePicture:
    """The picture that a worker sent; raises DocumentError, which is the worker's own, or ValueError if it is none."""
    match message:
        case {"type": "error", "what": str(what)}:
            raise DocumentError(what, where=where, fix=PICTURE_FIX)
        case {
            "type": "picture",
            "width": int(width),
            "height": int(height),
            "image": str(image),
            "text": str(text),
            "places": list(places),
        } if 0 < width <= 10_000 and 0 < height <= 10_000 and len(image) <= 2 * _MOST_BYTES:
            table = np.array(places, np.int32).reshape(len(text), 4)
            return PagePicture(base64.b64decode(image, validate=True), width, height, text, table)
    raise ValueError("no picture")


# -- where a passage stands ------------------------------------------------------------------------------------------


def frames(picture: PagePicture, page_text: str, start: int, stop: int) -> list[Frame]:
    """Frames around the characters [start, stop) of a page's text; empty where they are not found on the picture.

    The two texts come from two programs, which differ in spaces, line ends, hyphens, and sometimes in the order of
    columns: letters and digits alone are compared, the passage as a whole first, then line by line and word by word,
    each nearest to where it should be.
    """
    passage = _letters(page_text[start:stop])[0]
    if not passage:
        return []
    drawn, where = _letters(picture.text)
    expected = len(_letters(page_text[:start])[0]) / max(len(_letters(page_text)[0]), 1)
    found, nearby = list[int](), round(expected * len(drawn))
    at = _nearest(drawn, passage, nearby)
    if at is not None:
        return _around(picture, where[at : at + len(passage)])
    for line in page_text[start:stop].split("\n"):
        whole = _found(drawn, line, nearby)
        for part in [line] if whole is not None else line.split():
            at = _found(drawn, part, nearby)
            if at is not None:
                nearby = at + len(_letters(part)[0])
                found += where[at:nearby]
    return _around(picture, found) if len(found) >= _FEWEST_FOUND * len(passage) else []


def _found(drawn: str, part: str, nearby: int) -> int | None:
    """The place of a part of a passage in the drawn letters, if not too far from where it should be."""
    letters = _letters(part)[0]
    at = _nearest(drawn, letters, nearby) if len(letters) >= _FEWEST_LETTERS else None
    is_near = at is not None and (len(letters) >= _SURE_LETTERS or abs(at - nearby) <= _NEAR_LETTERS)
    return at if is_near else None


def _letters(text: str) -> tuple[str, list[int]]:
    """Letters and digits of a text, as simple as they can be written, and the index of each in the text."""
    kept, where = [], []
    for index, character in enumerate(text):
        for simple in unicodedata.normalize("NFKD", character).lower():
            if simple.isalnum():
                kept.append(simple)
                where.append(index)
    return "".join(kept), where


def _nearest(text: str, part: str, expected: int) -> int | None:
    """The place of `part` in `text`, nearest to where it should be."""
    places = [match.start() for match in re.finditer(f"(?={re.escape(part)})", text)]
    return min(places, key=lambda place: abs(place - expected), default=None)


def _around(picture: PagePicture, characters: list[int]) -> list[Frame]:
    """One frame a line around these characters of the picture's text."""
    boxes = [tuple(map(int, picture.places[index])) for index in dict.fromkeys(characters)]
    boxes = [box for box in boxes if box[2] > box[0] and box[3] > box[1]]
    if not boxes:
        return []
    ends = [i for i, (one, other) in enumerate(pairwise(boxes), 1) if not _is_one_line(one, other)]
    edges = [zip(*boxes[begin:end], strict=True) for begin, end in pairwise([0, *ends, len(boxes)])]
    return [(min(left), min(top), max(right), max(bottom)) for left, top, right, bottom in edges]


def _is_one_line(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """True if two characters in a row stand beside one another, and not in two columns."""
    height = min(one[3] - one[1], other[3] - other[1])
    overlap = min(one[3], other[3]) - max(one[1], other[1])
    gap = max(other[0] - one[2], one[0] - other[2])
    return overlap > 0.4 * height and gap < 4 * max(one[3] - one[1], other[3] - other[1])
