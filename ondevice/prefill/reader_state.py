"""A reader as tensors, so that reading goes on where it was broken off, with the same passes and the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor

from ondevice.context import Context
from ondevice.errors import DamagedPot
from ondevice.pot.saved_state import check_names, take, take_counts
from ondevice.prefill.reader import Chunk, Reader
from ondevice.prefill.selection import Part

_NOVELTY, _WORDS = "novelty.", "words."
_CHUNK, _CUTS, _COPIED = "chunk", "cuts", "copied"


def reader_state(reader: Reader, context: Context) -> dict[str, Tensor]:
    """The reader's state between two passes, by name; without a speculator."""
    chunk = reader.chunk
    cuts = [] if chunk is None else [chunk.parts[0].start, *(part.stop for part in chunk.parts)]
    state = {_CUTS: torch.tensor(cuts, dtype=torch.int64)}
    if chunk is not None:
        state[_CHUNK] = torch.tensor([int(chunk.distills), int(chunk.prunes)])
    state |= {_NOVELTY + name: tensor for name, tensor in reader.novelty.state().items()}
    if context.slim_steps:
        state |= {_WORDS + name: tensor for name, tensor in reader.words.state().items()}
    if context.host is not None:
        state[_COPIED] = torch.tensor(context.host.num_copied)
    return state


def restore_reader(reader: Reader, context: Context, state: Mapping[str, Tensor]) -> None:
    """Take over what `reader_state` gave; the pot and the cursor of the context are restored.

    Raises:
        DamagedPot: no reading of this document leaves that state.
    """
    cursor, decoder = context.num_positions, context.decoder
    novelty, words = ({name.removeprefix(kind): part for name, part in state.items() if name.startswith(kind)}
                      for kind in (_NOVELTY, _WORDS))  # fmt: skip
    rest = {name: part for name, part in state.items() if not name.startswith((_NOVELTY, _WORDS))}
    check_names(rest, {_CHUNK, _CUTS, _COPIED})

    def ids(start: int, stop: int) -> Tensor:
        return decoder.ids(context.tokens.ids(start, stop))

    reader.novelty.restore(novelty, ids, cursor, decoder.parts.hidden_size, decoder.dtype)
    if context.slim_steps:
        reader.words.restore(words)
    reader.chunk = _chunk(reader, context, rest)
    if context.host is not None:
        copied = take_counts(rest, _COPIED, len(context.pot.num_cached), context.pot.shape.capacity)
        if any(there > used for there, used in zip(copied, context.pot.num_cached, strict=True)):
            raise DamagedPot("more was copied than the pot holds")
        context.host.num_copied = copied


def _chunk(reader: Reader, context: Context, state: Mapping[str, Tensor]) -> Chunk | None:
    """The passes that are left of a chunk."""
    cuts = take(state, _CUTS, torch.int64, (None,)).tolist()
    if not cuts:
        return None
    distills, prunes = (bool(flag) for flag in take_counts(state, _CHUNK, 2, 1))
    start, stop = context.spans[0] if context.spans else (0, 0)
    rises = len(cuts) > 1 and all(first < last for first, last in pairwise(cuts))
    can_be = (reader.policy is not None or not distills) and (bool(context.slim_steps) or not prunes)
    if not rises or not can_be or cuts[0] != start or cuts[-1] > stop or cuts[-1] - cuts[0] > reader.room:
        raise DamagedPot("the passes that are left are not those of its document")
    return Chunk([Part(first, last) for first, last in pairwise(cuts)], distills, prunes)
