"""The state space of Mamba-2 (arXiv 2405.21060): a state that decays with each token, and takes the token in.

S = exp(dt A) S + dt x B^T, and y = S C. Some tokens at a time are computed as attention among them is (section 6 of the
paper), so that few products of matrices serve many tokens; nothing grows with the length of the text.
"""

from __future__ import annotations

import torch
from torch import Tensor

_CHUNK = 64  # tokens: their decays between each other are held for all heads


def state_space(
    x: Tensor, steps: Tensor, decay: Tensor, keys: Tensor, queries: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Outputs of tokens, and the state after them; all in float32.

    Args:
        x: (batch, n, heads, dim).
        steps: (batch, n, heads), each positive: dt.
        decay: (heads,), each negative: A.
        keys, queries: (batch, n, num_groups, state_size): B and C, which heads of a group share.
        state: (batch, heads, dim, state_size) before them; it stays as it is.

    Returns:
        (batch, n, heads, dim), and the new state.
    """
    sizes, outs = (keys.shape[2], x.shape[2] // keys.shape[2]), list[Tensor]()
    state = state.unflatten(1, sizes)
    chunks = (part.split(_CHUNK, dim=1) for part in (x * steps[..., None], steps * decay, keys, queries))
    for values, logs, k, q in zip(*chunks, strict=True):
        values, logs = values.unflatten(2, sizes), logs.cumsum(1).unflatten(2, sizes)
        is_later = torch.ones(logs.shape[1], logs.shape[1], dtype=torch.bool, device=x.device).triu(1)
        between = logs[:, :, None] - logs[:, None]  # (batch, to, from, num_groups, heads of one)
        weights = between.masked_fill_(is_later[:, :, None, None], -torch.inf).exp_()
        weights *= torch.einsum("blgn,bsgn->blsg", q, k)[..., None]
        within = torch.einsum("blsgh,bsghp->blghp", weights, values)
        before = torch.einsum("blgn,bghpn->blghp", q, state) * logs.exp()[..., None]
        outs.append((within + before).flatten(2, 3))
        last = logs[:, -1:]
        added = torch.einsum("bsghp,bsgn->bghpn", values * (last - logs).exp()[..., None], k)
        state = state * last[:, 0, :, :, None, None].exp() + added
    return torch.cat(outs, dim=1), state.flatten(1, 2)
