"""Sources of an answer: the attention of the queries that chose its words, traced to passages of the document.

When the answer is written it is taken out of the pot and read once more in a pass that observes attention; decoding
itself is not touched. Attention is no proof: it says what the model attended to, not why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ondevice.context import Context
from ondevice.decode.passages import strongest_passages
from ondevice.events import Sources
from ondevice.model.decoder import Decoder
from ondevice.model.passes import PassStopped
from ondevice.pot.memory_pot import MemoryPot

# What any text after the document attends to: headings, beginnings, the tokens that soak up attention.
_NEUTRAL = "\n\nThis is what the text says: it is about"
_LEAST = 1 / 3  # of the first passage's share: others mostly support nothing
_MAX_SCORES = 1 << 22  # attention scores that are held at once


@dataclass(frozen=True, slots=True)
class Look:
    """Attention per query: for each layer (kv_heads, num_cached) float32, of slots as they lie in the pot.

    Attributes:
        answer: of the queries that chose the tokens of the answer.
        neutral: of a text that has nothing to do with the question.
    """

    answer: list[Tensor]
    neutral: list[Tensor]

    def beyond_neutral(self, *, first_layer: int | None = None) -> list[Tensor]:
        """Attention of each head to a slot beyond what it always pays it; passages are chosen by this.

        Args:
            first_layer: layers before it count nothing; None: the first half, whose heads look at what is near or
                alike and not at what is meant (measured by `ondevice eval sources`).
        """
        first = len(self.answer) // 2 if first_layer is None else first_layer
        pairs = zip(self.answer, self.neutral, strict=True)
        return [(a - n).clamp_min(0) * (layer >= first) for layer, (a, n) in enumerate(pairs)]


def find_sources(
    context: Context,
    ids: list[int],
    written: list[int],
    number: int,
    is_stopped: Callable[[], bool],
    num_there: int = 0,
) -> Sources:
    """The passages that an answer attended to, the one it attended to most first.

    Args:
        context: its pot holds the document, what was brought back for this answer, and of the question what is there.
        ids: the question with its template.
        written: tokens of the answer.
        number: passages, at most.
        num_there: tokens of the question that the pot still holds, all but the last one at most. They leave it, unless
            it was stopped before.

    Returns:
        The passages with at least a third of the first one's share, and how many tokens of the answer they are from:
        what fits into the free slots beside the question; no seconds yet. None of a stream, whose text is not kept,
        and none where `is_stopped` returned True.
    """
    tokens = context.tokens
    num_seen = min(len(written), context.pot.num_free + num_there - len(ids) + 1)
    if not tokens.keeps_text or num_seen < 1:
        return Sources()
    try:
        look = look_back(context, ids, written[:num_seen], is_stopped, num_there)
    except PassStopped:
        return Sources()
    scores, attention = (token_weights(context, slots) for slots in (look.beyond_neutral(), look.answer))
    found = strongest_passages(tokens, scores, attention, number)
    return Sources(tuple(one for one in found if one.share >= _LEAST * found[0].share), num_seen)


def look_back(
    context: Context, ids: list[int], written: list[int], is_stopped: Callable[[], bool], num_there: int = 0
) -> Look:
    """Read a question and its answer again, and a neutral text, and note what they attend to.

    Args:
        num_there: as `find_sources`.

    Raises:
        PassStopped: `is_stopped` returned True; the pot is as it was, or without the question.
    """
    pot, decoder = context.pot, context.decoder
    num_document = [used - num_there for used in pot.num_cached]
    next_position = [at - num_there for at in pot.next_position]
    # The last token of the question chose the first of the answer, and so on; the last of the answer chose none.
    answer = _attention(decoder, pot, [*ids[num_there:], *written[:-1]], len(written), is_stopped)
    if num_there:
        pot.rewind_to_(num_document, next_position)
    neutral_ids = context.loaded.tokenizer.encode(_NEUTRAL)[0].tolist()[: pot.num_free]
    neutral = _attention(decoder, pot, neutral_ids, len(neutral_ids), is_stopped)
    return Look([layer[:, :used] for layer, used in zip(answer, num_document, strict=True)], neutral)


def token_weights(context: Context, slots: list[Tensor]) -> npt.NDArray[np.float64]:
    """Numbers of slots summed over layers and heads: (n,) for the document tokens up to the cursor.

    The prompt and the sinks, which take in what attention has no use for, do not count.

    Args:
        slots: for each layer (kv_heads, num_cached).
    """
    pot = context.pot
    weights = torch.zeros(context.num_positions, dtype=torch.float64)
    for layer, values in enumerate(slots):
        used = values.shape[-1]
        origin, positions = pot.origin[layer, 0, :, :used], pot.positions[layer, 0, :, :used]
        counts = (origin >= 0) & (positions >= context.num_protected)
        weights.index_add_(0, origin[counts].cpu().long(), values[counts].cpu().double())
    return weights.numpy()


def _attention(
    decoder: Decoder, pot: MemoryPot, ids: list[int], num_observed: int, is_stopped: Callable[[], bool]
) -> list[Tensor]:
    """Attention per query of the last tokens of `ids`, read at the end of the pot and taken out of it again."""
    heads = (pot.shape.kv_size[1], 1)
    sums = [torch.zeros(heads[0], used, device=decoder.device) for used in pot.num_cached]
    size = max(_MAX_SCORES // (decoder.parts.num_heads * (max(pot.num_cached) + len(ids))), 1)
    first = len(ids) - num_observed
    cuts = [0, *range(first, len(ids), size), len(ids)] if first else [*range(0, len(ids), size), len(ids)]
    with pot.savepoint():
        for start, stop in pairwise(cuts):
            observed = stop - start if start >= first else 0
            out = decoder.forward(decoder.ids(ids[start:stop]), pot, num_observed=observed, is_stopped=is_stopped)
            for total, mass in zip(sums, out.mass, strict=False):
                total += mass[0, :, : total.shape[-1]]
    groups = decoder.parts.num_heads // decoder.parts.kv_size[1]
    return [total / (groups * num_observed) for total in sums]
