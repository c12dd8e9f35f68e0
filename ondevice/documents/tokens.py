"""The tokens of a document with their provenance: which page and which characters each one is.

Every page has arrays of its own, so that nothing is copied when a document grows: four bytes of a token for its id,
and mostly two for its characters. For a stream only the page of each token is kept; then `spans` and `ids` of what has
been read are not available.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ondevice.documents.bounds import Room
from ondevice.documents.token_state import check_tokens
from ondevice.documents.types import Document, Page
from ondevice.errors import EmptyDocument
from ondevice.events import PageNote
from ondevice.machine.memory import free_memory_bytes
from ondevice.search.outline import Heading, outline

Int32Array = npt.NDArray[np.int32]
Steps = npt.NDArray[np.signedinteger[Any]]
Encode = Callable[[str], tuple[Int32Array, Int32Array]]

_PAGE_BYTES = 256  # of a page's arrays beside what is in them
_ENCODING_BYTES = 32  # for each character of a page while it is encoded, where a character is a token


class DocumentTokens:
    """Token ids of a document, read lazily from its pages.

    Args:
        document: the pages to read.
        encode: text -> ids (n,), character spans (n, 2), int32.
        free_memory: bytes that are free now; asked again and again while the tokens of a file grow.

    Attributes:
        document: as given.
        keeps_text: True for a file; False for a stream, whose ids and texts are forgotten once read.
        notes: pages without text so far, with the reason.
        num_pages: pages seen so far; `num_tokens` are theirs.
        places: of a collection what each page is called; `firsts` are the first tokens of its documents.
    """

    def __init__(self, document: Document, encode: Encode, free_memory: Callable[[], int] = free_memory_bytes) -> None:
        self.document = document
        self.keeps_text = document.num_pages is not None
        self.notes: list[PageNote] = []
        self.num_pages = self.num_tokens = 0
        self.texts: list[str] = []
        self.places: Sequence[str] = ()
        self.firsts: Sequence[int] = (0,)
        self._encode = encode
        self._pages: Iterator[Page] = iter(document.pages)
        self._ids: deque[Int32Array] = deque()  # of each page; of a stream, from page `_num_forgotten` on
        self._num_forgotten = 0
        self._steps: list[Steps] = []  # of each page: see `_packed`
        self._unpacked: tuple[int, Int32Array] = (-1, np.empty((0, 2), np.int32))  # the page last asked for
        self._page_starts = array("q")  # first token of each page
        self._page_numbers = array("q")
        self._ended = False
        self._room = Room(document.name, free_memory)

    @cached_property
    def headings(self) -> list[Heading]:
        """The outline of a document whose pages were all seen."""
        return outline(self.texts, self.document.kind)

    @property
    def num_total(self) -> int | None:
        """Tokens of the whole document, None while pages may still come."""
        return self.num_tokens if self._ended else None

    def read_pages(self) -> Iterator[int]:
        """Tokenise page after page, and yield their number; raises DocumentTooLarge where memory is lacking."""
        while self._read_page():
            yield self.num_pages

    def ensure(self, num_tokens: int) -> bool:
        """Tokenise until at least `num_tokens` tokens are known; False when the document ends before."""
        while self.num_tokens < num_tokens:
            if not self._read_page():
                return False
        return True

    def require_text(self) -> None:
        """Tokenise up to the first token; raises EmptyDocument where there is none."""
        if not self.ensure(1):
            what, fix = "There is no text in this document", "Scanned pages need OCR first."
            raise EmptyDocument(what, where=self.document.name, fix=fix)

    def ids(self, start: int, stop: int) -> Int32Array:
        """Ids of tokens [start, stop), int32. A stream forgets the pages that end before `start`."""
        first, last = self.page_index(start), self.page_index(stop - 1)
        while not self.keeps_text and self._ids and self._num_forgotten < first:
            self._ids.popleft()
            self._num_forgotten += 1
        parts = [np.empty(0, np.int32)]
        for index in range(max(first, self._num_forgotten), min(last + 1, self._num_forgotten + len(self._ids))):
            begin = self._page_starts[index]
            parts.append(self._ids[index - self._num_forgotten][max(start - begin, 0) : max(stop - begin, 0)])
        return np.concatenate(parts)

    def page_of(self, token: int) -> int:
        """Page number of a token."""
        if not self._page_starts:
            return 0
        return self._page_numbers[self.page_index(token)]

    def page_index(self, token: int) -> int:
        """0-based index of the page that holds a token."""
        return max(bisect_right(self._page_starts, token) - 1, 0)

    def count_by_page(self, tokens: npt.NDArray[np.integer]) -> tuple[tuple[int, int], ...]:
        """Count some tokens (n,) on each page that has any: (page number, tokens), in document order."""
        index = np.maximum(np.searchsorted(self._page_starts, tokens, side="right") - 1, 0)
        at, counts = np.unique(index, return_counts=True)
        return tuple((self._page_numbers[i], int(n)) for i, n in zip(at.tolist(), counts.tolist(), strict=True))

    def page_tokens(self, index: int) -> tuple[int, int]:
        """Tokens [start, stop) of the page at `index` (0-based)."""
        stop = self._page_starts[index + 1] if index + 1 < len(self._page_starts) else self.num_tokens
        return self._page_starts[index], stop

    def page_spans(self, index: int) -> Int32Array:
        """Character spans (n, 2) in `texts[index]` of the tokens of the page at `index`; needs `keeps_text`."""
        known = self._unpacked  # taken once: other threads ask, too
        if known[0] != index:
            known = self._unpacked = (index, _unpacked(self._steps[index]))
        return known[1]

    def whole(self) -> tuple[str, Int32Array]:
        """All of the text, page after page, and the character spans (n, 2) of its tokens there; needs `keeps_text`."""
        starts = np.cumsum([0, *map(len, self.texts)], dtype=np.int32)
        spans = [_unpacked(steps) + start for steps, start in zip(self._steps, starts, strict=False)]
        return "".join(self.texts), np.concatenate([np.empty((0, 2), np.int32), *spans])

    def state(self) -> dict[str, npt.NDArray]:
        """Everything known of the tokens as arrays, for `restore`; a stream has no ids, spans and texts."""
        text = "".join(self.texts).encode()
        return {
            "page_starts": np.array(self._page_starts, np.int32),
            "page_numbers": np.array(self._page_numbers, np.int32),
            "ids": self.ids(0, self.num_tokens) if self.keeps_text else np.empty(0, np.int32),
            "spans": np.concatenate([np.empty((0, 2), np.int32), *map(_unpacked, self._steps)]),
            "text": np.frombuffer(text, np.uint8),
            "text_lengths": np.array([len(text.encode()) for text in self.texts], np.int64),
            "num_tokens": np.array([self.num_tokens]),
        }

    @classmethod
    def restore(
        cls, document: Document, encode: Encode, state: dict[str, npt.NDArray], notes: list[PageNote], vocab_size: int
    ) -> DocumentTokens:
        """The tokens of a fully tokenised document, from what `state` gave; `document.pages` is not read.

        Raises:
            DamagedPot: no document has that state; ids are to lie below `vocab_size`.
        """
        texts = check_tokens(document, state, notes, vocab_size)
        tokens = cls(document, encode)
        tokens.texts = texts
        tokens._pages, tokens._ended, tokens.notes = iter(()), True, notes
        starts, num_tokens = state["page_starts"].tolist(), int(state["num_tokens"][0])
        tokens._page_starts, tokens._page_numbers = array("q", starts), array("q", state["page_numbers"].tolist())
        tokens.num_pages, tokens.num_tokens = len(starts), num_tokens
        if tokens.keeps_text:
            for begin, end in pairwise([*starts, num_tokens]):
                tokens._ids.append(state["ids"][begin:end])
                tokens._steps.append(_packed(state["spans"][begin:end]))
        return tokens

    @property
    def page_numbers(self) -> Sequence[int]:
        """Numbers of all pages, rising."""
        return self._page_numbers

    def place(self, page: int) -> str:
        """The page of that number as people name it: `page 3`, of a collection `manual.pdf, page 3`."""
        return self.places[page - 1] if self.places else f"{self.document.unit} {page}"

    def members(self) -> list[tuple[str, int, int]]:
        """The documents of a collection: the name of each, and its tokens [start, stop)."""
        bounds = pairwise([*self.firsts, self.num_tokens])
        return [(self.file_of(self.page_of(start)), start, stop) for start, stop in bounds]

    def heading(self, page: int) -> str:
        """The same at the beginning of a line: `Page 3`, and of a collection the name of a file as it is."""
        place = self.place(page)
        return place if self.places else place[:1].upper() + place[1:]

    def file_of(self, page: int) -> str:
        """Name of the document that a page of a collection is of."""
        return self.places[page - 1].rpartition(", ")[0]

    def _read_page(self) -> bool:
        page = next(self._pages, None)
        if page is None:
            self._ended = True
            return False
        if self.keeps_text:
            self._room.take(0, coming=_ENCODING_BYTES * len(page.text))
        ids, spans = self._encode(page.text) if page.text else (np.empty(0, np.int32), np.empty((0, 2), np.int32))
        self.num_pages += 1
        if page.problem_code:
            self.notes.append(PageNote(page.number, page.problem_code, page.problem))
        self._page_starts.append(self.num_tokens)
        self._page_numbers.append(page.number)
        self._ids.append(ids)
        if self.keeps_text:
            self._steps.append(_packed(spans))
            self.texts.append(page.text)
            self._room.take(ids.nbytes + self._steps[-1].nbytes + _PAGE_BYTES)
        self.num_tokens += len(ids)
        return True


def _packed(spans: Int32Array) -> Steps:
    """Character spans (n, 2) as steps (2n,) from each number to the next, in the smallest type that holds them all.

    Tokens are short and follow each other, so that this is one byte a number almost everywhere.
    """
    steps = np.diff(spans.ravel(), prepend=np.int32(0))
    least, most = (int(steps.min()), int(steps.max())) if steps.size else (0, 0)
    for small in (np.int8, np.int16):
        if np.iinfo(small).min <= least and most <= np.iinfo(small).max:
            return steps.astype(small)
    return steps


def _unpacked(steps: Steps) -> Int32Array:
    return np.cumsum(steps, dtype=np.int32).reshape(-1, 2)


def stretches(tokens: np.ndarray) -> npt.NDArray[np.int32]:
    """Rising token numbers (n,) as stretches [start, stop), (m, 2) int32."""
    if not tokens.size:
        return np.empty((0, 2), np.int32)
    ends = np.flatnonzero(np.diff(tokens) != 1)
    starts, stops = np.append(0, ends + 1), np.append(ends, tokens.size - 1)
    return np.stack((tokens[starts], tokens[stops] + 1), axis=1).astype(np.int32)
