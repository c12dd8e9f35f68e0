"""What an answer brings back: evicted tokens return from the host tier into the pot, and leave it after the answer.

The question is read twice. The first time shows what it looks for; then the blocks with that come back, and it is
read again. While the answer is written its last tokens are asked the same, and when they look elsewhere by more than
SlimInfer's algorithm 1 lets pass, other blocks take the place of those and everything since is read once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ondevice.events import TokensRevived
from ondevice.pot.swapping import bring_back, plan_swap, rank_blocks
from ondevice.pot.undo import UndoLog

if TYPE_CHECKING:
    from ondevice.session import Session

RECENT_TOKENS = 16  # of the answer, that are asked what they look for
EVERY_TOKENS = 32  # of the answer


class Revival:
    """The blocks that one answer has in the pot beside what the pot holds.

    Args:
        session: with a host tier.
        num_free: slots that have to stay free for the question and its answer.
    """

    def __init__(self, session: Session, num_free: int) -> None:
        assert session.tier is not None
        self._session, self._tier = session, session.tier
        self._block_size = session.config.slim.block_size
        room = session.used_pot().shape.capacity - num_free - 2 * session.num_protected
        self._num_free, self._max_tokens = num_free, min(session.config.tier.max_tokens, room)
        self._active: frozenset[int] = frozenset()
        self._ranked: list[int] = []
        self._mass: list[Tensor] = []

    def begin(self, ids: Tensor, is_stopped: Callable[[], bool] | None = None) -> None:
        """Find out what a question (1, n) int64 looks for; the pot stays as it is.

        Raises:
            PassStopped: `is_stopped` returned True.
        """
        pot, queries = self._session.used_pot(), list[Tensor]()
        num_cached, next_position = list(pot.num_cached), list(pot.next_position)
        out = self._session.decoder.forward(ids, pot, num_observed=ids.shape[1], queries=queries, is_stopped=is_stopped)
        self._mass = [layer[..., :used] for layer, used in zip(out.mass, num_cached, strict=True)]
        pot.truncate(num_cached, next_position)
        self.looks_elsewhere(queries)

    def looks_elsewhere(self, queries: Sequence[Tensor]) -> bool:
        """Whether other blocks should be in the pot for these queries than are; if so, `bring` brings those.

        Args:
            queries: for each layer (1, num_heads, n, head_dim) before RoPE.
        """
        parts, config = self._session.decoder.parts, self._session.config
        num_blocks = -(-self._max_tokens // self._block_size)
        ranked = rank_blocks(
            self._tier,
            queries,
            scale=parts.scale,
            softcap=parts.attention_softcap,
            block_size=self._block_size,
            first=config.pot.num_sink_tokens,
            coverage=config.tier.coverage,
        )[:num_blocks]
        candidate = frozenset(ranked)
        # Every block that can be wanted has its copy in the tier, so nothing ever has to be copied out.
        swap = plan_swap(candidate, self._active, in_memory=self._active | candidate, gamma=config.tier.gamma)
        if swap.load:
            self._active, self._ranked = swap.active, ranked
        return bool(swap.load)

    def bring(self, undo: UndoLog) -> TokensRevived | None:
        """Put the blocks into the pot, which holds what it did before the question; `undo` takes them out again."""
        session, began = self._session, time.perf_counter()
        if not self._ranked or self._max_tokens < 1:
            return None
        pot = session.used_pot()
        undo.save(None)
        moved = bring_back(
            pot,
            self._tier,
            self._ranked,
            self._mass,
            block_size=self._block_size,
            max_tokens=self._max_tokens,
            num_free=self._num_free,
            num_protected=session.num_protected,
            rotate_keys=session.decoder.rotate_keys,
        )
        starts = np.array(self._ranked, np.int32) * self._block_size
        tokens = session.opened_tokens()
        return TokensRevived(
            tokens=np.stack((starts, np.minimum(starts + self._block_size, session.num_positions)), axis=1),
            pages=tuple(dict.fromkeys(tokens.page_of(int(start)) for start in starts)),
            num_tokens=round(moved.num_slots / pot.shape.num_layers),
            num_bytes=moved.num_bytes,
            num_held=self._tier.num_held(0),
            seconds=time.perf_counter() - began,
        )


def revive(session: Session, ids: Tensor, undo: UndoLog, *, num_free: int) -> TokensRevived | None:
    """Bring back what a question (1, n) int64 needs, once; None without a tier, or with nothing in it."""
    if session.tier is None or session.tier.num_held(0) == 0:
        return None
    revival = Revival(session, num_free)
    revival.begin(ids)
    return revival.bring(undo)
