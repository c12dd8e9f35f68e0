"""A document of a million tokens with all that a map can show of one, as if it had been read: made up, but served,
counted and drawn by the app itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np

from ondevice.documents.tokens import DocumentTokens
from ondevice.library.library import Library
from ondevice.serving import workspace
from ondevice.serving.token_view import TokenView
from ondevice.telemetry.provenance import Provenance
from ondevice.telemetry.retention_history import NUM_LEVELS, RetentionHistory
from ondevice.ui.launch import serving
from tests.builders.screens import tiny_engine

NUM_TOKENS = 1_000_000
_LAYERS, _HEADS, _KEPT, _CYCLES = 30, 3, 1024, 120
_SINKS, _RECENT, _IN_HOST = 8, 2_000, 200_000


class LongView(TokenView):
    """A view whose document has been read."""

    def __init__(self, tokens: DocumentTokens, document: int | None = None) -> None:
        super().__init__(tokens, document)
        if tokens.num_tokens >= NUM_TOKENS:
            self.seen, self.history = pot_of(tokens.num_tokens), history_of(tokens.num_tokens)


@contextmanager
def served_million(folder: Path) -> Iterator[tuple[str, Path]]:
    """The app with such a view of every long document, and a text that is long enough; one token is a byte there."""
    file = folder / "long.txt"
    file.write_text(("A line of a long book, as long as lines are. " * 22 + "\n") * 1010)
    with (
        patch.object(workspace, "TokenView", LongView),
        serving(tiny_engine(), port=0, reads_at_once=False, keeps=False, library=Library(folder / "library")) as url,
    ):
        yield url, file


def pot_of(num_tokens: int) -> Provenance:
    """A full pot: what each head holds is spread over the document, more of it near the end."""
    chance, settled = np.random.default_rng(0), num_tokens - _RECENT
    spread = chance.random((_LAYERS, _HEADS, _KEPT)) ** 0.6 * settled
    origin = (spread // 64 * 64 + chance.integers(0, 64, spread.shape)).clip(0, settled - 1).astype(np.int32)
    origin[..., :_SINKS] = np.arange(_SINKS)
    tokens, counts = np.unique(origin, return_counts=True)
    is_novel = chance.random(origin.shape) < 0.3
    return Provenance(
        num_layers=_LAYERS, num_heads=_HEADS, num_positions=num_tokens, num_settled=settled, num_cycles=_CYCLES,
        num_sinks=_SINKS, in_host=(num_tokens - _IN_HOST, num_tokens), host_capacity=_IN_HOST, origin=origin,
        importance=chance.random(origin.shape, np.float32), is_novel=is_novel, novel=np.unique(origin[is_novel]),
        tokens=tokens.astype(np.int64), counts=counts.astype(np.int64),
    )  # fmt: skip


def history_of(num_tokens: int) -> RetentionHistory:
    """A hundred and some selections; most tokens go with the first one that they meet, some stay for many."""
    chance = np.random.default_rng(1)
    num_positions = np.linspace(num_tokens // _CYCLES, num_tokens, _CYCLES).astype(int)
    read_in = np.searchsorted(num_positions, np.arange(num_tokens), side="right") + 1
    stays = chance.geometric(0.4, num_tokens) * chance.choice([0, 1, 20], num_tokens, p=[0.8, 0.15, 0.05])
    ended = np.empty((NUM_LEVELS, num_tokens), np.uint16)
    for step in range(NUM_LEVELS):
        at = read_in + stays // (step + 1)
        ended[step] = np.where(at > _CYCLES, 0, at)
    shares = np.tile(np.array([0, 0.006, 0.04, 0.25, 0.8], np.float32), (_CYCLES, 1))
    return RetentionHistory.restore(1, ended, num_positions.tolist(), shares)
