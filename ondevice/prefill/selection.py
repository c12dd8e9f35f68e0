"""SpecPrefill in a stream: the speculator reads a stretch ahead, and the main model reads what it selects.

The selection owns what is chosen and not yet read. Skipped tokens keep their places: positions of the main pot count
them, until the next distillation numbers its survivors again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ondevice.config import SpecConfig
from ondevice.context import UNTIL_END, Context
from ondevice.documents.tokens import stretches
from ondevice.events import TokensChosen
from ondevice.pot.numbering import number_in_order_
from ondevice.speculator.choose import choose, importance
from ondevice.speculator.speculator import Speculator
from ondevice.stage_clock import StageClock


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens for one pass of the main model.

    Those at `offsets` (n,) int64 of the document's [start, stop); None: all of them.
    """

    start: int
    stop: int
    offsets: Tensor | None = None


class Selection:
    """Tokens chosen of one document and not yet read.

    Attributes:
        speculator: reads ahead.
        until: document tokens below this have been scored.
        chosen: (n,) int64, document tokens that are still to be read, rising.
        is_at_end: whether nothing of this span of the document lies beyond `until`.
    """

    def __init__(self, speculator: Speculator) -> None:
        self.speculator = speculator
        self.until = 0
        self.chosen = torch.empty(0, dtype=torch.int64)
        self.is_at_end = False

    def look_ahead(self, context: Context, clock: StageClock, is_stopped: Callable[[], bool]) -> TokensChosen:
        """Score the stretch after the cursor and choose from it.

        Raises:
            PassStopped: `is_stopped` returned True; nothing has changed.
        """
        clock.book("other")
        speculator, tokens = self.speculator, context.tokens
        start, stop = context.spans[0]
        if speculator.room == 0:
            speculator.make_room()
        end = start + speculator.room
        if stop == UNTIL_END:
            is_at_end = not tokens.ensure(end + 1)
            end = min(end, tokens.num_tokens)
        else:
            end = min(end, stop)
            is_at_end = end == stop
        ids = context.decoder.ids(tokens.ids(start, end))
        maxima = speculator.read(ids, is_stopped)
        self.choose_from(maxima, start, end, context.config.spec, is_at_end=is_at_end)
        return TokensChosen(
            start=start,
            stop=end,
            tokens=stretches(self.chosen.cpu().numpy()),
            num_chosen=self.chosen.shape[0],
            seconds=clock.book("speculate"),
        )

    def choose_from(self, maxima: Tensor, start: int, end: int, config: SpecConfig, *, is_at_end: bool) -> None:
        """Choose from document tokens [start, end) by what `Speculator.read` gave; sets `chosen` and `until`."""
        self.chosen = choose(importance(maxima), config, is_first=start == 0) + start
        self.until, self.is_at_end = end, is_at_end

    def parts(self, num_tokens: int, num_passes: int, start: int) -> list[Part]:
        """The next `num_tokens` chosen tokens in passes of even size, from the cursor `start` on.

        Every part reaches up to the first token of the next, so that together they cover the document.
        """
        parts = []
        for i in range(num_passes):
            first, last = num_tokens * i // num_passes, num_tokens * (i + 1) // num_passes
            stop = int(self.chosen[last]) if last < self.chosen.shape[0] else self.until
            parts.append(Part(start, stop, self.chosen[first:last] - start))
            start = stop
        return parts

    def is_done(self, cursor: int) -> bool:
        """True if the main model, at document token `cursor`, has nothing more to read of this span."""
        return self.is_at_end and cursor == self.until and not self.chosen.numel()

    def done(self, num_tokens: int) -> None:
        """The main model has read so many of the chosen tokens."""
        self.chosen = self.chosen[num_tokens:]


def keep_positions_low(context: Context, span: int) -> None:
    """Number the pot's positions again where `span` more of them would lead out of the trained window (CR-RoPE).

    Skipped tokens take positions and no slots, so that positions may run out before slots do.
    """
    pot = context.pot
    if context.config.pot.method.distills and max(pot.next_position) + span > context.loaded.max_positions:
        number_in_order_(pot)
