"""The pages of a tokenised document: which tokens are on which page."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class PageTable:
    """Pages and their first tokens, in the order of the document.

    Attributes:
        num_tokens: tokens of the document.
        unit: what the pages are called.
        page_numbers: (num_pages,) uint32.
        page_starts: first token of each page, (num_pages,) int64; a page without text begins where the next does.
    """

    num_tokens: int
    unit: str
    page_numbers: npt.NDArray[np.uint32]
    page_starts: npt.NDArray[np.int64]

    @property
    def num_pages(self) -> int:
        return len(self.page_numbers)

    def page_index(self, token: int) -> int:
        """Index of the page that a token is on."""
        return max(int(np.searchsorted(self.page_starts, token, side="right")) - 1, 0)

    def page_span(self, index: int) -> tuple[int, int]:
        """Tokens [start, stop) of the page at an index."""
        stop = self.page_starts[index + 1] if index + 1 < self.num_pages else self.num_tokens
        return int(self.page_starts[index]), int(stop)

    def page_of(self, token: int) -> int:
        """Number of the page that a token is on."""
        return int(self.page_numbers[self.page_index(token)])
