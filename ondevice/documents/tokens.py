"""The tokens of a document with their provenance: which page and which characters each one is.

Arrays grow page by page. For a stream only the page of each token is kept, so that memory does not grow with
the text; then `spans` and `ids` of what has been read are not available.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from ondevice.documents.types import Document, Page
from ondevice.events import PageNote

Int32Array = npt.NDArray[np.int32]
Encode = Callable[[str], tuple[Int32Array, Int32Array]]


class DocumentTokens:
    """Token ids of a document, read lazily from its pages.

    Args:
        document: the pages to read.
        encode: text -> ids (n,), character spans (n, 2), int32.

    Attributes:
        document: as given.
        keeps_text: True for a file; False for a stream, whose ids and texts are forgotten once read.
        notes: pages without text so far, with the reason.
        num_pages: pages seen so far.
    """

    def __init__(self, document: Document, encode: Encode) -> None:
        self.document = document
        self.keeps_text = document.num_pages is not None
        self.notes: list[PageNote] = []
        self.num_pages = 0
        self.texts: list[str] = []
        self._encode = encode
        self._pages: Iterator[Page] = iter(document.pages)
        self._ids = np.empty(0, np.int32)  # from token `_first` on
        self._spans = np.empty((0, 2), np.int32)
        self._first = 0
        self._num_tokens = 0
        self._page_starts: list[int] = []  # first token of each page
        self._page_numbers: list[int] = []
        self._ended = False

    @property
    def num_tokens(self) -> int:
        """Tokens of the pages seen so far."""
        return self._num_tokens

    @property
    def num_total(self) -> int | None:
        """Tokens of the whole document, None while pages may still come."""
        return self._num_tokens if self._ended else None

    def read_pages(self) -> Iterator[int]:
        """Tokenise page after page until the end; yields the number of pages done."""
        while self._read_page():
            yield self.num_pages

    def ensure(self, num_tokens: int) -> bool:
        """Tokenise until at least `num_tokens` tokens are known; False when the document ends before."""
        while self._num_tokens < num_tokens:
            if not self._read_page():
                return False
        return True

    def ids(self, start: int, stop: int) -> Int32Array:
        """Ids of tokens [start, stop), int32. A stream forgets what lies before `start`."""
        if not self.keeps_text and start > self._first:
            self._ids = self._ids[start - self._first :].copy()
            self._first = start
        return self._ids[start - self._first : stop - self._first]

    def page_of(self, token: int) -> int:
        """Page number of a token."""
        if not self._page_starts:
            return 0
        return self._page_numbers[self.page_index(token)]

    def page_index(self, token: int) -> int:
        """0-based index of the page that holds a token."""
        return max(bisect_right(self._page_starts, token) - 1, 0)

    def count_by_page(self, tokens: npt.NDArray[np.integer]) -> tuple[tuple[int, int], ...]:
        """How many of some tokens (n,) lie on each page that has any: (page number, tokens), in document order."""
        index = np.maximum(np.searchsorted(self._page_starts, tokens, side="right") - 1, 0)
        at, counts = np.unique(index, return_counts=True)
        return tuple((self._page_numbers[i], int(n)) for i, n in zip(at.tolist(), counts.tolist(), strict=True))

    def page_tokens(self, index: int) -> tuple[int, int]:
        """Tokens [start, stop) of the page at `index` (0-based)."""
        stop = self._page_starts[index + 1] if index + 1 < len(self._page_starts) else self._num_tokens
        return self._page_starts[index], stop

    def page_spans(self, index: int) -> Int32Array:
        """Character spans (n, 2) in `texts[index]` of the tokens of the page at `index`; needs `keeps_text`."""
        start, stop = self.page_tokens(index)
        return self._spans[start:stop]

    def state(self) -> dict[str, npt.NDArray]:
        """Everything known of the tokens as arrays, for `restore`; a stream has no ids, spans and texts."""
        text = "".join(self.texts).encode()
        return {
            "page_starts": np.array(self._page_starts, np.int32),
            "page_numbers": np.array(self._page_numbers, np.int32),
            "ids": self._ids[: self._num_tokens] if self.keeps_text else np.empty(0, np.int32),
            "spans": self._spans[: self._num_tokens] if self.keeps_text else np.empty((0, 2), np.int32),
            "text": np.frombuffer(text, np.uint8),
            "text_lengths": np.array([len(text.encode()) for text in self.texts], np.int64),
            "num_tokens": np.array([self._num_tokens]),
        }

    @classmethod
    def restore(
        cls, document: Document, encode: Encode, state: dict[str, npt.NDArray], notes: list[PageNote]
    ) -> DocumentTokens:
        """The tokens of a fully tokenised document, from what `state` gave; `document.pages` is not read."""
        tokens = cls(document, encode)
        tokens._pages, tokens._ended, tokens.notes = iter(()), True, notes
        tokens._page_starts, tokens._page_numbers = state["page_starts"].tolist(), state["page_numbers"].tolist()
        tokens._ids, tokens._spans = state["ids"], state["spans"]
        tokens.num_pages, tokens._num_tokens = len(tokens._page_starts), int(state["num_tokens"][0])
        text, start = state["text"].tobytes(), 0
        for length in state["text_lengths"].tolist():
            tokens.texts.append(text[start : start + length].decode())
            start += length
        return tokens

    def page_number(self, index: int) -> int:
        """Number of the page at `index` (0-based)."""
        return self._page_numbers[index]

    def _read_page(self) -> bool:
        page = next(self._pages, None)
        if page is None:
            if not self._ended:
                self._ended = True
                if self.keeps_text:  # give back what doubling allocated too much
                    self._ids, self._spans = (
                        self._ids[: self._num_tokens].copy(),
                        self._spans[: self._num_tokens].copy(),
                    )
            return False
        self.num_pages += 1
        if page.problem_code:
            self.notes.append(PageNote(page.number, page.problem_code, page.problem))
        self._page_starts.append(self._num_tokens)
        self._page_numbers.append(page.number)
        ids, spans = self._encode(page.text) if page.text else (np.empty(0, np.int32), np.empty((0, 2), np.int32))
        self._ids = _extend(self._ids, self._num_tokens - self._first, ids)
        if self.keeps_text:
            self._spans = _extend(self._spans, self._num_tokens, spans)
            self.texts.append(page.text)
        self._num_tokens += len(ids)
        return True


def _extend(array: Int32Array, used: int, new: Int32Array) -> Int32Array:
    """Append to a buffer that doubles when it is full."""
    needed = used + len(new)
    if needed > len(array):
        grown = np.empty((max(needed, 2 * len(array)), *array.shape[1:]), np.int32)
        grown[:used] = array[:used]
        array = grown
    array[used:needed] = new
    return array
