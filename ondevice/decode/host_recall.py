"""Recall from host memory: evicted tokens come back into the pot for one answer, and leave it after the answer.

The question is read twice. The first time shows what it looks for; then the blocks with that come back, and it is
read again. While the answer is written its last tokens are asked the same, and when they look elsewhere by more than
SlimInfer's algorithm 1 lets pass, other blocks take the place of those and everything since is read once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ondevice.context import Context
from ondevice.decode.attended import queries_of
from ondevice.documents.tokens import stretches
from ondevice.events import TokensRecalled
from ondevice.kernels.attention_sharpness import attention_sharpness
from ondevice.model.late_tokens import read_on
from ondevice.model.passes import Pass
from ondevice.pot.host.hidden_tier import DroppedStates
from ondevice.pot.host.retrieve import CLOSE_LOOK, COVERAGE, FOLLOWING, rank_blocks
from ondevice.pot.host.swapping import bring_back
from ondevice.pot.undo import UndoLog
from ondevice.search.bm25 import blocks_sharing_words

OVERLAP = 0.9  # from which on nothing is swapped while an answer is written: the gamma of algorithm 1
RECENT_TOKENS = 16  # of the answer, that are asked what they look for
# Times as many blocks as may come back are compared key by key for the words that they share with the question. Of 12
# cues of a novel of 65,536 tokens mean keys alone led to 8, these to the others, too.
WORD_LOOK = 4


class HostRecall:
    """The blocks that one answer has in the pot beside what the pot holds.

    Args:
        context: with host memory.
        num_free: slots that have to stay free for the question and its answer.
        is_stopped: polled between layers.

    Attributes:
        max_tokens: tokens that may come back into each head; 0 where the pot has no room for them.
    """

    def __init__(self, context: Context, num_free: int, is_stopped: Callable[[], bool] | None = None) -> None:
        assert context.host is not None
        self.num_free = num_free
        self._context, self._is_stopped = context, is_stopped
        self._tier, self._hidden = context.host.tier, context.host.hidden
        self.max_tokens = self._room(num_free)
        # Fewer tokens than a block has are a smaller block.
        self._block_size = max(min(context.config.slim.block_size, self.max_tokens), 1)
        self._active: frozenset[int] = frozenset()
        self._ranked: list[int] = []
        self._words: npt.NDArray[np.integer] = np.empty(0, np.int32)
        self._present = self._wholly_present()
        self._staying: list[int] = []

    def has_room_for(self, num_tokens: int) -> bool:
        """Leave so many slots free from now on; False, and no change, where then nothing could come back."""
        if self._room(num_tokens) < self._block_size:
            return False
        self.num_free = max(self.num_free, num_tokens)
        self.max_tokens = self._room(self.num_free)
        return True

    def begin(self, ids: Tensor, words: npt.NDArray[np.integer]) -> None:
        """Find out what a question looks for; the pot stays as it is.

        Args:
            ids: (1, n) int64, with whatever stands around the question.
            words: (m,) the ids of the question itself, whose words are looked for, too.

        Raises:
            PassStopped: the answer is stopped.
        """
        queries = queries_of(self._context, ids, self._is_stopped)
        self._words, self._staying = words, self._wanted_here(queries)
        self.wants_others(queries)

    def look_back(self, written: list[int]) -> Pass:
        """Read the last tokens of an answer at once, of which the pot holds all but the last.

        Returns:
            What the last token's pass would have given, with the queries of all of them.
        """
        pot, decoder = self._context.pot, self._context.decoder
        num_held = len(written) - 1
        pot.rewind_to_([n - num_held for n in pot.num_cached], [n - num_held for n in pot.next_position])
        return decoder.forward(decoder.ids(written), pot, keeps_queries=True, is_stopped=self._is_stopped)

    def wants_others(self, queries: Sequence[Tensor], written: Sequence[int] = ()) -> bool:
        """True if other blocks should be in the pot for these queries than are; if so, `recall` brings those.

        Args:
            queries: for each layer (1, heads, n, dim) before RoPE.
            written: the last ids of the answer so far.
        """
        parts, config = self._context.decoder.parts, self._context.config
        num_blocks = self._coming // self._block_size  # whole ones, so that what comes has room in every layer
        steps = self._context.slim_steps
        ranked = rank_blocks(
            self._tier,
            # What can be read on has to be judged by layers that saw all of it.
            queries[: steps[0].layer * self._context.pot.shape.pot_layers_per_layer]
            if steps and self._hidden is not None
            else queries,
            scale=parts.scale,
            softcap=parts.attention_softcap,
            block_size=self._block_size,
            first=config.pot.num_sink_tokens,
            coverage=COVERAGE,
            num_close=CLOSE_LOOK * num_blocks,
            also_close=self._with_words(written, WORD_LOOK * num_blocks),
            present=self._present,
        )
        ranked = [block for block in ranked if block not in self._present][:num_blocks]
        wanted = frozenset(ranked)
        # Nothing moves while most of what is wanted is here (SlimInfer, algorithm 1). What goes is in the tier already.
        if not wanted or len(wanted & self._active) >= OVERLAP * len(wanted):
            return False
        self._active, self._ranked = wanted, ranked
        return True

    def recall(self, undo: UndoLog) -> TokensRecalled | None:
        """Put the blocks into the pot, which holds what it did before the question; `undo` takes them out again."""
        if not self._ranked:
            return None
        context = self._context
        pot, decoder, shape = context.pot, context.decoder, context.pot.shape
        undo.save(None)
        dropped = self._dropped()
        num_more = [
            sum(states.tokens.numel() for states in dropped if states.layer < layer // shape.pot_layers_per_layer)
            for layer in range(len(pot.num_cached))
        ]
        moved = bring_back(
            pot,
            self._tier,
            self._ranked,
            block_size=self._block_size,
            staying=self._staying,
            max_tokens=self._coming,
            num_beside=context.config.tier.num_beside,
            num_free=self.num_free,
            num_more=num_more,
        )
        if dropped:
            read_on(decoder, dropped, pot)
        came = np.unique(np.concatenate((moved.tokens, *(states.tokens.numpy() for states in dropped))))
        if not came.size:
            return None
        return TokensRecalled(
            tokens=stretches(came),
            pages=tuple(dict.fromkeys(context.tokens.page_of(int(token)) for token in came)),
            num_tokens=round((moved.num_slots + sum(num_more)) / len(pot.num_cached)),
            num_aside=round(moved.num_aside / len(pot.num_cached)),
            num_read_on=sum(states.tokens.numel() for states in dropped),
            num_bytes=moved.num_bytes,
            num_held=self._tier.num_held(0),
        )

    def _with_words(self, written: Sequence[int], most: int) -> list[int]:
        """Blocks that share words with the question or the answer; none of a stream, whose text is not kept."""
        context = self._context
        if not context.tokens.keeps_text:
            return []
        words = context.loaded.tokenizer.words
        document = words(context.tokens.ids(0, context.num_positions))
        wanted = words(np.concatenate((self._words, np.array(written, np.int32))))
        return blocks_sharing_words(document, wanted, self._block_size, most)

    def _room(self, num_free: int, *, limited: bool = True) -> int:
        """Tokens that may come back into each head where so many slots stay free; or those that there is room for."""
        pot, distills = self._context.pot, self._context.config.pot.method.distills
        slots = min(pot.capacities) if distills else pot.shape.capacity
        room = slots - num_free - 2 * self._context.num_protected
        return max(min(self._context.config.tier.max_tokens, room) if limited else room, 0)

    @property
    def _coming(self) -> int:
        """Tokens that may come into each head beside those that are wanted and here: of a small pot not all."""
        size, room = self._block_size, self._room(self.num_free, limited=False)
        taken = min(len(self._staying) * size, max(self.max_tokens - size, 0))
        return min(self.max_tokens, max(room - taken, size))

    def _wanted_here(self, queries: Sequence[Tensor]) -> list[int]:
        """Blocks that a question looks for among what was read since the last distillation, the best first: at most
        half of what stays beside. Nothing chose those tokens yet, and what is in the pot cannot come back into it.
        """
        context, size = self._context, self._block_size
        pot, parts = context.pot, context.decoder.parts
        scores = torch.zeros(-(-context.num_positions // size))
        for layer, query in enumerate(queries):
            used, ranked = pot.num_cached[layer], pot.num_ranked[layer]
            if used == ranked:
                continue
            keys = pot.slots.keys_at(layer, slice(0, used)).float()
            given, _ = attention_sharpness(query.float(), keys, scale=parts.scale, softcap=parts.attention_softcap)
            # Every head holds the same of these, in the same slots.
            origin = pot.origin[layer, 0, 0, ranked:used].cpu().long()
            is_text = origin >= 0
            for further in (0, min(FOLLOWING, size)):
                blocks = ((origin[is_text] + further) // size).clamp_(max=scores.shape[0] - 1)
                scores.index_add_(0, blocks, given[0, ranked:].cpu()[is_text])
        number = min(context.config.tier.num_beside // (2 * size), int((scores > 0).sum()))
        return scores.topk(number).indices.tolist()

    def _wholly_present(self) -> frozenset[int]:
        """Blocks that every head of every layer holds: nothing of them can come back."""
        retention, size = self._context.retention, self._block_size
        held = retention.tokens[retention.counts == self._context.num_heads_total]
        blocks, counts = np.unique(held // size, return_counts=True)
        sizes = np.minimum(retention.num_tokens - blocks * size, size)
        return frozenset(blocks[counts == sizes].tolist())

    def _dropped(self) -> list[DroppedStates]:
        """Hidden states of the wanted tokens, the shallowest layer first."""
        if self._hidden is None:
            return []
        size = self._block_size
        wanted = torch.cat([torch.arange(block * size, (block + 1) * size) for block in self._ranked])
        return self._hidden.find(wanted[: self.max_tokens], self._context.decoder.dtype)
