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
import torch
from torch import Tensor

from ondevice.events import TokensRevived
from ondevice.model.read_on import read_on
from ondevice.pot.hidden_tier import DroppedStates
from ondevice.pot.swapping import bring_back, plan_swap, rank_blocks
from ondevice.pot.undo import UndoLog
from ondevice.skimming import stretches

if TYPE_CHECKING:
    from ondevice.session import Session

RECENT_TOKENS = 16  # of the answer, that are asked what they look for


class Revival:
    """The blocks that one answer has in the pot beside what the pot holds.

    Args:
        session: with a host tier.
        num_free: slots that have to stay free for the question and its answer.
    """

    def __init__(self, session: Session, num_free: int) -> None:
        assert session.outside is not None
        self.num_free = num_free
        self._session, self._tier, self._hidden = session, session.outside.tier, session.outside.hidden
        self._block_size = session.config.slim.block_size
        room = session.used_pot().shape.capacity - num_free - 2 * session.num_protected
        self._max_tokens = min(session.config.tier.max_tokens, room)
        self._active: frozenset[int] = frozenset()
        self._ranked: list[int] = []
        self._mass: list[Tensor] = []
        self._present = self._wholly_present()
        self._seconds = 0.0  # of looking, until something is brought

    def begin(self, ids: Tensor, is_stopped: Callable[[], bool] | None = None) -> None:
        """Find out what a question (1, n) int64 looks for; the pot stays as it is.

        Raises:
            PassStopped: `is_stopped` returned True.
        """
        pot, queries, began = self._session.used_pot(), list[Tensor](), time.perf_counter()
        with pot.taken_back():
            out = self._session.decoder.forward(
                ids, pot, num_observed=ids.shape[1], queries=queries, is_stopped=is_stopped
            )
        self._mass = [layer[..., :used] for layer, used in zip(out.mass, pot.num_cached, strict=True)]
        self._seconds += time.perf_counter() - began
        self.looks_elsewhere(queries)

    def looks_elsewhere(self, queries: Sequence[Tensor]) -> bool:
        """Whether other blocks should be in the pot for these queries than are; if so, `bring` brings those.

        Args:
            queries: for each layer (1, num_heads, n, head_dim) before RoPE.
        """
        parts, config, began = self._session.decoder.parts, self._session.config, time.perf_counter()
        num_blocks = self._max_tokens // self._block_size  # whole ones, so that what comes has room in every layer
        steps = self._session.slim_steps
        ranked = rank_blocks(
            self._tier,
            # What can be read on has to be judged by layers that saw all of it.
            queries[: steps[0].layer] if steps and self._hidden is not None else queries,
            scale=parts.scale,
            softcap=parts.attention_softcap,
            block_size=self._block_size,
            first=config.pot.num_sink_tokens,
            coverage=config.tier.coverage,
        )
        ranked = [block for block in ranked if block not in self._present][:num_blocks]
        in_memory = frozenset((self._tier.origin[0, : self._tier.num_held(0)] // self._block_size).unique().tolist())
        swap = plan_swap(frozenset(ranked), self._active, in_memory, config.tier.gamma)
        assert not swap.offload, "what is active came from the tier"
        self._seconds += time.perf_counter() - began
        if swap.load:
            self._active, self._ranked = swap.active, ranked
        return bool(swap.load)

    def _wholly_present(self) -> frozenset[int]:
        """Blocks that every head of every layer holds: nothing of them can come back."""
        is_held = self._session.retention == self._session.num_heads_total
        missing = -is_held.size % self._block_size
        blocks = np.pad(is_held, (0, missing), constant_values=True).reshape(-1, self._block_size)
        return frozenset(np.flatnonzero(blocks.all(axis=1)).tolist())

    def bring(self, undo: UndoLog) -> TokensRevived | None:
        """Put the blocks into the pot, which holds what it did before the question; `undo` takes them out again."""
        session, began = self._session, time.perf_counter()
        if not self._ranked:
            return None
        pot, decoder, num_layers = session.used_pot(), session.decoder, len(session.decoder.parts.layers)
        undo.save(None)
        dropped = self._dropped()
        num_more = [sum(states.tokens.numel() for states in dropped if states.layer < i) for i in range(num_layers)]
        moved = bring_back(
            pot,
            self._tier,
            self._ranked,
            self._mass,
            block_size=self._block_size,
            max_tokens=self._max_tokens,
            num_free=self.num_free,
            num_protected=session.num_protected,
            num_more=num_more,
            rotate_keys=decoder.rotate_keys,
        )
        if dropped:
            read_on(decoder, dropped, pot)
        came = np.unique(np.concatenate((moved.tokens, *(states.tokens.numpy() for states in dropped))))
        if not came.size:
            return None
        seconds, self._seconds = self._seconds + time.perf_counter() - began, 0.0
        tokens = session.opened_tokens()
        return TokensRevived(
            tokens=stretches(came),
            pages=tuple(dict.fromkeys(tokens.page_of(int(token)) for token in came)),
            num_tokens=round((moved.num_slots + sum(num_more)) / num_layers),
            num_read_on=sum(states.tokens.numel() for states in dropped),
            num_bytes=moved.num_bytes,
            num_held=self._tier.num_held(0),
            seconds=seconds,
        )

    def _dropped(self) -> list[DroppedStates]:
        """Hidden states of the wanted tokens, the shallowest layer first."""
        if self._hidden is None:
            return []
        size = self._block_size
        wanted = torch.cat([torch.arange(block * size, (block + 1) * size) for block in self._ranked])
        return self._hidden.find(wanted[: self._max_tokens], self._session.decoder.dtype)


def revive(session: Session, ids: Tensor, undo: UndoLog, *, num_free: int) -> TokensRevived | None:
    """Bring back what a question (1, n) int64 needs, once; None without a tier, or with nothing in it."""
    if not session.has_more_outside:
        return None
    revival = Revival(session, num_free)
    revival.begin(ids)
    return revival.bring(undo)
