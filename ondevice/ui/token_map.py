"""What the token map is sent: the document in at most `MAX_CELLS` cells, as base64 bytes.

A cell stands for a run of neighbouring tokens. Its size depends on the document alone, so a document of a
million tokens costs the browser no more than one of two thousand. The drawing is in assets/token_map.js.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_CELLS = 1600
FULL = 65_535  # the value of a cell whose tokens all (layer, head) pairs keep
NOVEL, UNREAD, SKIPPED = 1, 2, 4  # flags of a cell


@dataclass(frozen=True, slots=True)
class MapLayout:
    """How a document falls into cells; known once it is tokenised.

    Attributes:
        num_tokens: tokens of the document.
        tokens_per_cell: tokens of every cell but the last.
        unit: what the pages are called.
        first_pages, last_pages: page of the first and of the last token of each cell, (num_cells,) uint32.
    """

    num_tokens: int
    tokens_per_cell: int
    unit: str
    first_pages: npt.NDArray[np.uint32]
    last_pages: npt.NDArray[np.uint32]

    @property
    def num_cells(self) -> int:
        return len(self.first_pages)


def make_layout(page_sizes: list[tuple[int, int]], unit: str) -> MapLayout:
    """Divide a document into cells.

    Args:
        page_sizes: number and tokens of each page, in order.
        unit: what the pages are called.
    """
    numbers = np.array([number for number, _ in page_sizes], np.uint32)
    ends = np.cumsum([tokens for _, tokens in page_sizes], dtype=np.int64)
    num_tokens = int(ends[-1]) if len(ends) else 0
    tokens_per_cell = max(-(-num_tokens // MAX_CELLS), 1)
    first_tokens = np.arange(0, num_tokens, tokens_per_cell)
    last_tokens = np.minimum(first_tokens + tokens_per_cell, num_tokens) - 1
    # Empty pages end where the one before ends, so the first page whose end lies behind a token holds it.
    return MapLayout(
        num_tokens=num_tokens,
        tokens_per_cell=tokens_per_cell,
        unit=unit,
        first_pages=numbers[np.searchsorted(ends, first_tokens, side="right")],
        last_pages=numbers[np.searchsorted(ends, last_tokens, side="right")],
    )


def map_payload(
    layout: MapLayout,
    *,
    retention: npt.NDArray[np.uint16],
    num_heads_total: int,
    novelty_tokens: npt.NDArray[np.int32],
    skipped: tuple[int, int] = (0, 0),
) -> dict[str, Any]:
    """What the browser draws: below 64 kB for any document.

    Args:
        layout: the document's cells.
        retention: (layer, head) pairs that hold each token up to the cursor, (num_read,) uint16.
        num_heads_total: the most that an entry of `retention` can be.
        novelty_tokens: tokens kept because they were new to the model.
        skipped: tokens [start, stop) that are never read.
    """
    size, num_cells = layout.tokens_per_cell, layout.num_cells
    firsts = np.arange(num_cells, dtype=np.int64) * size
    flags = np.zeros(num_cells, np.uint8)
    kept = np.zeros(num_cells, np.int64)
    if len(retention):
        used = firsts[firsts < len(retention)]
        kept[: len(used)] = np.add.reduceat(retention.astype(np.int64), used)
    if num_heads_total:
        held = np.zeros(len(retention) + 1, bool)
        held[np.minimum(novelty_tokens, len(retention))] = True
        novel = np.flatnonzero(held[:-1] & (retention > 0))
        flags[novel // size] |= NOVEL
    flags[firsts >= len(retention)] |= UNREAD
    start, stop = skipped
    lasts = np.minimum(firsts + size, layout.num_tokens)
    inside = (firsts >= start) & (lasts <= stop)
    flags[inside] = SKIPPED
    # Rounded up: what is kept by anyone at all must not look evicted.
    most = np.maximum((lasts - firsts) * num_heads_total, 1)
    shares = np.minimum(-(-kept * FULL // most), FULL).astype("<u2")
    return {
        "num_tokens": layout.num_tokens,
        "tokens_per_cell": size,
        "unit": layout.unit,
        "first_pages": _base64(layout.first_pages.astype("<u4")),
        "last_pages": _base64(layout.last_pages.astype("<u4")),
        "shares": _base64(shares),
        "flags": _base64(flags),
    }


def _base64(array: npt.NDArray) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")
