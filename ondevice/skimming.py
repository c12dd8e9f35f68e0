"""Reading with a speculator: it reads a stretch ahead, and the main model reads what it lets through.

It owns what is chosen and not yet read. The document's skipped tokens keep their places: positions of the main pot
count them, until the next distillation numbers its survivors anew.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ondevice.events import TokensChosen
from ondevice.pot.catalyst import catalyst_prompt
from ondevice.pot.distill import reset_positions
from ondevice.prefill.choose import choose, importance
from ondevice.prefill.speculate import Speculator

if TYPE_CHECKING:
    from ondevice.documents.tokens import DocumentTokens
    from ondevice.model.decoder import Decoder
    from ondevice.session import Session

UNTIL_END = -1  # stop of a span of tokens whose end is not known yet


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens for one pass of the main model: those at `offsets` (n,) int64 of the document's [start, stop).

    `stand_in` (stop - start,) float32: novelty of tokens whose predecessor is skipped; None: it is 0.
    """

    start: int
    stop: int
    offsets: Tensor
    stand_in: Tensor | None


class Skimmer:
    """What is chosen of one session's document and not yet read.

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
        self._stretch_start = 0
        self._novelty: Tensor | None = None

    def look_ahead(self, session: Session, tokens: DocumentTokens) -> TokensChosen:
        """Score the stretch behind the cursor and choose from it.

        Raises:
            PassStopped: the session is stopping; nothing has changed.
        """
        began, speculator = time.perf_counter(), self.speculator
        start, stop = session.spans[0]
        if speculator.room == 0:
            speculator.make_room(session.is_stopping)
        end = start + speculator.room
        if stop == UNTIL_END:
            is_at_end = not tokens.ensure(end + 1)
            end = min(end, tokens.num_tokens)
        else:
            end = min(end, stop)
            is_at_end = end == stop
        ids = session.decoder.ids(tokens.ids(start, end))
        speculator.go_on_at(start)
        stretch = speculator.read(ids, session.is_stopping)
        offsets = choose(importance(stretch.maxima), session.config.spec, is_first=start == 0)
        self.until, self.is_at_end, self._stretch_start = end, is_at_end, start
        self.chosen, self._novelty = offsets + start, stretch.novelty
        session.decoder.synchronize()
        return TokensChosen(
            start=start,
            stop=end,
            tokens=stretches(self.chosen.cpu().numpy()),
            num_chosen=offsets.shape[0],
            seconds=time.perf_counter() - began,
        )

    def parts(self, num_tokens: int, num_passes: int, start: int) -> list[Part]:
        """The next `num_tokens` chosen tokens in passes of even size, from the cursor `start` on.

        Every part reaches up to the first token of the next, so that together they cover the document.
        """
        parts = []
        for i in range(num_passes):
            first, last = num_tokens * i // num_passes, num_tokens * (i + 1) // num_passes
            stop = int(self.chosen[last]) if last < self.chosen.shape[0] else self.until
            stand_in = self._novelty
            if stand_in is not None:
                stand_in = stand_in[start - self._stretch_start : stop - self._stretch_start]
            parts.append(Part(start, stop, self.chosen[first:last] - start, stand_in))
            start = stop
        return parts

    def is_done(self, cursor: int) -> bool:
        """Whether the main model, at document token `cursor`, has nothing more to read of this span."""
        return self.is_at_end and cursor == self.until and not self.chosen.numel()

    def done(self, part: Part) -> None:
        """The main model has read a part."""
        self.chosen = self.chosen[part.offsets.shape[0] :]


def keep_positions_low(session: Session, span: int) -> None:
    """Number the pot's positions anew where `span` more of them would lead out of the trained window.

    Skipped tokens take positions and no slots, so that they may run out before the slots do.
    """
    pot, config = session.used_pot(), session.config.pot
    is_distilled = config.context_reset and config.policy not in ("full", "truncate")
    if is_distilled and max(pot.next_position) + span > session.loaded.max_positions:
        for layers, _ in pot.layers_by_length():
            reset_positions(pot, layers, session.decoder.rotate_keys)


def new_skimmer(session: Session, decoder: Decoder | None) -> Skimmer | None:
    """The speculator of a session; None where its settings ask for none."""
    if decoder is None or not session.config.spec.needs_speculator:
        return None
    prompt = session.decoder.ids(session.loaded.tokenizer.encode(catalyst_prompt(session.config.pot))[0])
    speculator = Speculator(
        decoder,
        session.config.pot,
        session.config.spec,
        prompt=prompt,
        prefix=session.parts.prefix,
        eos_ids=session.loaded.tokenizer.eos_ids,
        seed=session.config.seed,
    )
    return Skimmer(speculator)


def stretches(tokens: np.ndarray) -> np.ndarray:
    """Rising token numbers (n,) as stretches [start, stop), (m, 2) int32."""
    if not tokens.size:
        return np.empty((0, 2), np.int32)
    ends = np.flatnonzero(np.diff(tokens) != 1)
    starts, stops = np.append(0, ends + 1), np.append(ends, tokens.size - 1)
    return np.stack((tokens[starts], tokens[stops] + 1), axis=1).astype(np.int32)
