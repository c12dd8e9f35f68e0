"""Decode attention that stops once its output has converged: ART (arXiv 2606.00024).

The slots of a pot are read block by block with an online softmax. After each block a detector compares the normalised
partial output; when that has stood still for some blocks in a row, the rest is not read. Query heads that share a KV
head are read for together, and end together.
"""

import torch
from ondevice.kernels.attention import additive_mask, attention
from ondevice.kernels.backend import uses_triton
from ondevice.kernels.termination import Termination
from torch import Tensor


def decode_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scale: float,
    block_size: int = 64,
    order: Tensor | None = None,
    termination: Termination | None = None,
    positions: Tensor | None = None,
    query_positions: Tensor | None = None,
    window: int | None = None,
    num_used: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of one new token, or a few, over all slots or as many blocks of them as it takes.

    Args:
        query: (batch, num_heads, n, head_dim), after RoPE.
        keys: (batch, num_kv_heads, num_slots, head_dim), after RoPE; may be a view into a larger buffer.
        values: as `keys`.
        scale: factor on the scores.
        block_size: slots of a block; block b begins at slot b * block_size.
        order: (batch or 1, num_kv_heads or 1, num_blocks) int32, the blocks in the order in which they are read;
            None: from the last to the first. Block 0 is always read, if need be after the others.
        termination: when reading ends; None: after the last block.
        positions: (batch or 1, num_kv_heads or 1, num_slots) int32, logical position of each slot; None: the queries
            are in the last n slots, and causal.
        query_positions: (n,) int32, with `positions`: a query sees the slots whose position is not above its own.
        window: with `positions`: and above its own less this.
        num_used: (1,) int32 on the device, the slots there are: those after them are not read. The host need not know,
            so that a CUDA graph can hold the call. Not with `order` or `positions`; None: all.

    Returns:
        The output, shape and dtype of `query`, and the blocks that were read, (batch, num_kv_heads) int32.
    """
    options = {
        "scale": scale,
        "block_size": block_size,
        "order": order,
        "termination": termination,
        "positions": positions,
        "query_positions": query_positions,
        "window": window,
    }
    if num_used is not None and not uses_triton(query):
        return _read_used(query, keys, values, scale, block_size, num_used)
    if query.device.type != "cpu" and not uses_triton(query):
        return _read_all(query, keys, values, scale, block_size, positions, query_positions, window)
    if uses_triton(query):
        # Imported here: neither Triton nor Numba is there on every machine.
        from ondevice.kernels.triton.decode_attention import attend

        return attend(query, keys, values, num_used=num_used, **options)
    from ondevice.kernels.cpu.decode_attention import attend as attend_on_cpu

    return attend_on_cpu(query, keys, values, **options)


def _read_all(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float,
    block_size: int,
    positions: Tensor | None,
    query_positions: Tensor | None,
    window: int | None,
) -> tuple[Tensor, Tensor]:
    """torch's own attention, which nothing ends early: for devices that neither kernel is for."""
    mask = None
    if positions is not None and query_positions is not None:
        distance = query_positions[:, None] - positions[:, :, None]
        visible = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        mask = additive_mask(visible, query.dtype)
    blocks_read = torch.full((keys.shape[0], keys.shape[1]), -(-keys.shape[2] // block_size), dtype=torch.int32)
    return attention(query, keys, values, scale=scale, mask=mask), blocks_read.to(query.device)


def _read_used(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, block_size: int, num_used: Tensor
) -> tuple[Tensor, Tensor]:
    """torch's own attention over all slots, with a mask for those that are not used."""
    slots, num_queries = torch.arange(keys.shape[2], device=query.device), query.shape[2]
    last = num_used - num_queries + torch.arange(num_queries, device=query.device)
    mask = additive_mask(slots[None] <= last[:, None], query.dtype)[None, None]
    blocks_read = ((num_used + block_size - 1) // block_size).expand(keys.shape[:2])
    return attention(query, keys, values, scale=scale, mask=mask), blocks_read


def decode_attention_ref(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scale: float,
    block_size: int = 64,
    order: Tensor | None = None,
    termination: Termination | None = None,
    positions: Tensor | None = None,
    query_positions: Tensor | None = None,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Reference for `decode_attention`: float32, one KV head and one block after the other (ART, algorithm 1)."""
    batch, num_heads, num_queries, _ = query.shape
    num_kv_heads, num_slots = keys.shape[1:3]
    groups, num_blocks = num_heads // num_kv_heads, -(-num_slots // block_size)
    recency_first = torch.arange(num_blocks - 1, -1, -1)
    out, blocks_read = torch.zeros(query.shape), torch.zeros(batch, num_kv_heads, dtype=torch.int32)
    for b in range(batch):
        for head in range(num_kv_heads):
            shared = slice(head * groups, (head + 1) * groups)
            visible = _visible(num_queries, num_slots, _row(positions, b, head), query_positions, window)
            state = _Partial(query[b, shared].float(), keys[b, head].float(), values[b, head].float(), visible, scale)
            blocks = (recency_first if order is None else _row(order, b, head)).tolist()
            num_stable = 0
            for i, block in enumerate(blocks):
                before = state.output
                state.read(slice(block * block_size, (block + 1) * block_size))
                blocks_read[b, head] += 1
                if termination is None:
                    continue
                num_stable = num_stable + 1 if i > 0 and _is_stable(state.output, before, termination, head) else 0
                if num_stable >= termination.patience:
                    if 0 in blocks[i + 1 :]:  # the sinks are always read
                        state.read(slice(0, block_size))
                        blocks_read[b, head] += 1
                    break
            out[b, shared] = state.output
    return out.to(query.dtype), blocks_read


class _Partial:
    """The online softmax of some rows of queries over one KV head: what is known after the blocks read so far."""

    def __init__(self, query: Tensor, keys: Tensor, values: Tensor, visible: Tensor, scale: float) -> None:
        self._query, self._keys, self._values, self._visible, self._scale = query, keys, values, visible, scale
        self._maximum = torch.full((*query.shape[:2], 1), -torch.inf)
        self._total = torch.zeros(*query.shape[:2], 1)
        self._weighted = torch.zeros(query.shape)

    @property
    def output(self) -> Tensor:
        """(groups, num_queries, head_dim); zeros where nothing was visible yet."""
        return torch.where(self._total > 0, self._weighted / self._total, 0.0)

    def read(self, slots: slice) -> None:
        scores = self._query @ self._keys[slots].T * self._scale
        scores = scores.masked_fill(~self._visible[:, slots], -torch.inf)
        maximum = torch.maximum(self._maximum, scores.amax(dim=-1, keepdim=True))
        base = maximum.masked_fill(maximum == -torch.inf, 0.0)
        decay, weights = torch.exp(self._maximum - base), torch.exp(scores - base)
        self._total = self._total * decay + weights.sum(dim=-1, keepdim=True)
        self._weighted = self._weighted * decay + weights @ self._values[slots]
        self._maximum = maximum


def _is_stable(now: Tensor, before: Tensor, termination: Termination, head: int) -> bool:
    """Equation 4 for every row of (groups, num_queries, head_dim) of one KV head."""
    tau = termination.tau[head] if isinstance(termination.tau, tuple) else termination.tau
    now, before = now[..., :: termination.probe_stride], before[..., :: termination.probe_stride]
    moved, norm, old_norm = (now - before).norm(dim=-1), now.norm(dim=-1), before.norm(dim=-1)
    limit = tau * norm if termination.is_relative else torch.full_like(norm, tau)
    product = norm * old_norm
    turned = torch.where(product > 0, 1 - (now * before).sum(dim=-1) / product, (moved > 0).float())
    return bool(((moved < limit) & (turned < termination.phi)).all())


def _visible(
    num_queries: int, num_slots: int, positions: Tensor | None, query_positions: Tensor | None, window: int | None
) -> Tensor:
    """(num_queries, num_slots): without positions the queries are the last slots, and causal."""
    if positions is None or query_positions is None:
        return torch.ones(num_queries, num_slots, dtype=torch.bool).tril(num_slots - num_queries)
    distance = query_positions[:, None] - positions[None]
    return (distance >= 0) & (distance < (distance.max() + 1 if window is None else window))


def _row(tensor: Tensor | None, batch: int, head: int) -> Tensor | None:
    """The row of one sequence and KV head in (batch or 1, num_kv_heads or 1, n)."""
    return None if tensor is None else tensor[batch % tensor.shape[0], head % tensor.shape[1]]
