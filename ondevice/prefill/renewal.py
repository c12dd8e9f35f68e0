"""Novelty of what is compressed already, given what is compressed before it: the second case of equation 4 of InfiniPot
(arXiv 2410.01518, section 3.3.2).

The first case scores a token when it is read. By the next distillation most of what came before it then is gone: that
it followed from those no longer counts. So the tokens of the pot are read once more by themselves, in their order, in
one pass that stores nothing. Heads hold different tokens; those that most heads hold are taken for the context, and
what is not among them keeps the novelty that it had. It costs about a second reading.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ondevice.context import Context
from ondevice.model.decoder import Decoder
from ondevice.pot.memory_pot import MemoryPot, Victims
from ondevice.pot.slot_counts import count_heads


def renew_novelty(context: Context) -> None:
    """Give the tokens that the last distillation kept a novelty among themselves, where the settings want that."""
    config = context.config.pot
    if not (config.renews_novelty and config.needs_novelty and context.num_cycles):
        return
    pot, decoder, prefix = context.pot, context.decoder, context.chat.prefix
    tokens = compressed(pot, context.num_positions)
    ids = [*prefix, *context.tokens.ids(0, context.num_positions)[tokens].tolist()]
    novelty = _nats(decoder, decoder.ids(ids))[:, max(len(prefix) - 1, 0) :]
    known = torch.from_numpy(tokens[len(tokens) - novelty.shape[1] :].astype(np.int32)).to(decoder.device)
    if known.numel():
        pot.set_novelty_(known, novelty)


def compressed(pot: MemoryPot, num_tokens: int) -> npt.NDArray[np.int64]:
    """The document tokens (n,), rising, that most heads kept at the last distillation; as many as a head kept on
    average."""
    kept = [pot.origin[layer, :, :, :ranked] for layer, ranked in enumerate(pot.num_ranked)]
    heads = count_heads(torch.cat([origin.flatten() for origin in kept]), num_tokens)
    best = np.argsort(-heads.counts.astype(np.int64), kind="stable")[: round(sum(pot.num_ranked) / len(kept))]
    return np.sort(heads.tokens[best]).astype(np.int64)


def _nats(decoder: Decoder, ids: Tensor) -> Tensor:
    """Cross-entropy (1, n - 1) of ids (1, n), each given those before it; in pieces where layers see no further."""
    windows = [layer.sliding_window for layer in decoder.parts.layers if layer.sliding_window is not None]
    size = min((decoder.parts.max_positions, *windows))
    parts = []
    for start in range(0, ids.shape[1] - 1, size - 1):
        piece = ids[:, start : start + size]
        states = decoder.forward(piece, _Nothing(len(decoder.parts.layers))).hidden_states
        parts.append(decoder.head.novelty(states[:, :-1], piece[:, 1:]).clamp(min=0.0))
    return torch.cat(parts, dim=1) if parts else torch.empty(1, 0, device=ids.device)


class _Nothing:
    """A cache that holds nothing before a pass and nothing after it."""

    def __init__(self, num_layers: int) -> None:
        self.num_cached, self.next_position = [0] * num_layers, [0] * num_layers
        self.max_positions = 0
        self.victims: Victims | None = None

    def append_(self, layer: int, keys: Tensor, rotated: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        return rotated, values

    def commit_(
        self, num_tokens: int, origin: Tensor | int, num_transient: int = 0, offsets: Sequence[Tensor] | None = None
    ) -> None: ...

    def discard_(self, num_tokens: int) -> None: ...
