"""Attention of a few new queries over the slots of a pot, and the attention mass a slot receives.

The new tokens are always the last slots; without a mask every query sees all older slots and, causally, the new
ones. Grouped-query heads are folded into the query length, so that keys and values are never repeated.
"""

from functools import cache, lru_cache
from typing import Required, TypedDict, Unpack

import torch
import torch.nn.functional as F
from ondevice.kernels.backend import uses_numba
from ondevice.kernels.cpu.threads import are_helping
from torch import Tensor

_MAX_SCORES = 1 << 24  # scores, or numbers of a mask, that are held at once
# One query on a CPU: with fewer slots the kernel's call costs more than it saves, and larger blocks save no more. Where
# helpers run the products, torch's threads would be in their way: they go on spinning.
_MIN_SLOTS, _MIN_SLOTS_HELPED, _BLOCK_SIZE = 1024, 64, 256


class Scoring(TypedDict, total=False):
    """Arguments of `attention`, and of all that looks at its probabilities, on how scores are made and which count."""

    scale: Required[float]
    mask: Tensor | None
    softcap: float | None
    sinks: Tensor | None


def attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    in_bfloat16: bool = False,
) -> Tensor:
    """Scaled dot-product attention, grouped-query aware.

    Args:
        query: (batch, heads, n, dim), after RoPE; query i is the token in slot num_slots - n + i.
        keys: (batch, kv_heads, num_slots, dim), after RoPE.
        values: as `keys`.
        scale: factor on the scores.
        mask: additive, (batch or 1, kv_heads or 1, n, num_slots); None: causal, all older slots visible.
        softcap: scores become softcap * tanh(scores / softcap) (Gemma-2).
        sinks: (heads,), the score of nothing in each head, which takes its share of the attention (gpt-oss).
        in_bfloat16: products of many queries may be of bfloat16, summed up in float32, where a CPU is faster with it.

    Returns:
        (batch, heads, n, dim), dtype of `query`.
    """
    if sinks is not None and softcap is None and query.device.type == "cpu":
        out, sums = _flash_cpu(query, keys, values, scale, mask)
        return out.mul_(_left_of(sums, sinks).unsqueeze(-1))
    is_plain = mask is None and softcap is None and sinks is None
    if is_plain and query.device.type == "cpu":
        if query.shape[2] > 1:
            return _causal_cpu(query, keys, values, scale, in_bfloat16)
        if keys.shape[2] >= (_MIN_SLOTS_HELPED if are_helping() else _MIN_SLOTS) and uses_numba(query):
            return _one_query_cpu(query, keys, values, scale)
    if is_plain and _has_flash(query):
        # The kernel knows which slots a query sees: no mask is laid out, and what it would hide is not computed.
        bias = _causal_bias(query.shape[2], keys.shape[2]) if query.shape[2] > 1 else None
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=bias, scale=scale, enable_gqa=True)
    if mask is None and query.shape[2] > 1 and query.shape[2] * keys.shape[2] > _MAX_SCORES:
        return _causal_in_slices(query, keys, values, scale, softcap, sinks)
    if softcap is None and sinks is None:
        folded, mask = _fold(query, keys.shape[1]), _fold_mask(query, keys, mask)
        out = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask, scale=scale)
    else:
        out = (
            _probabilities(query, keys, scale=scale, mask=mask, softcap=softcap, sinks=sinks).to(values.dtype) @ values
        )
    return out.reshape(query.shape)


def _causal_bias(num_queries: int, num_slots: int) -> Tensor:
    """The last slots are those of the queries."""
    # Here, since it brings torch's compiler along: 140 MB, of which a CPU has no use.
    from torch.nn.attention.bias import causal_lower_right

    return causal_lower_right(num_queries, num_slots)


def prepare_attention(num_heads: int, num_kv_heads: int, head_dim: int, *, in_bfloat16: bool = False) -> None:
    """Compile what such heads need on a CPU, which otherwise the first passage or the first answer would wait for."""
    from ondevice.kernels.cpu import causal_attention, decode_attention

    decode_attention.prepare(num_heads // num_kv_heads, head_dim)
    causal_attention.prepare(head_dim, in_bfloat16=in_bfloat16)


def observed_attention(
    query: Tensor, keys: Tensor, values: Tensor, **scoring: Unpack[Scoring]
) -> tuple[Tensor, Tensor]:
    """`attention` and `attention_mass` of the same queries, whose probabilities are computed once.

    All of them are held at once: meant for the one query of a decoding step (heavy hitters, arXiv 2306.14048).
    """
    probabilities = _probabilities(query, keys, **scoring)
    out = probabilities.to(values.dtype) @ values
    return out.reshape(query.shape), probabilities.sum(dim=-2)


def attention_mass(query: Tensor, keys: Tensor, **scoring: Unpack[Scoring]) -> Tensor:
    """Attention that every slot receives from the given queries: eq. 2 of InfiniPot (arXiv 2410.01518).

    The probabilities are summed over the queries and over the query heads that share a KV head.

    Args:
        query, keys, scoring: as for `attention`.

    Returns:
        (batch, kv_heads, num_slots), float32; sums to groups * n over the slots, less what sinks take.
    """
    return _probabilities(query, keys, **scoring).sum(dim=-2)


def attention_peak(query: Tensor, keys: Tensor, **scoring: Unpack[Scoring]) -> Tensor:
    """The most attention that any of the given queries pays to each slot: the score of KVzip (arXiv 2505.23416, eq. 2).

    The maximum goes over the queries and over the query heads that share a KV head.

    Args:
        query, keys, scoring: as for `attention`.

    Returns:
        (batch, kv_heads, num_slots), float32, between 0 and 1.
    """
    return _probabilities(query, keys, **scoring).amax(dim=-2)


def head_maximum(query: Tensor, keys: Tensor, **scoring: Unpack[Scoring]) -> Tensor:
    """Attention that every slot gets from each query in the head that gives it most: the token importance of
    SpecPrefill (arXiv 2502.02789, section 3.2.2).

    Args:
        query, keys, scoring: as for `attention`.

    Returns:
        (batch, n, num_slots) float32.
    """
    probabilities = _probabilities(query, keys, **scoring)
    return probabilities.unflatten(2, (-1, query.shape[2])).amax(dim=(1, 2))


@lru_cache(maxsize=2)  # that of a pass and that of its observed queries; what is here counts for no pot
def causal_mask(num_queries: int, num_slots: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(1, 1, num_queries, num_slots), additive: the queries are the last slots. The same for all layers of a pass."""
    visible = torch.ones(num_queries, num_slots, dtype=torch.bool, device=device).tril(num_slots - num_queries)
    return additive_mask(visible[None, None], dtype)


def additive_mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where `visible`, the most negative number of `dtype` elsewhere."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, torch.finfo(dtype).min)


def _causal_cpu(query: Tensor, keys: Tensor, values: Tensor, scale: float, in_bfloat16: bool) -> Tensor:
    """The kernel that Numba compiles, where it is faster; else torch's."""
    if uses_numba(query):
        # Imported here: Numba is loaded by those who compile.
        from ondevice.kernels.cpu import causal_attention

        if causal_attention.suits(query, keys):
            return causal_attention.attend(query, keys, values, scale=scale, in_bfloat16=in_bfloat16)
    return _causal_torch(query, keys, values, scale)[0]


def _flash_cpu(query: Tensor, keys: Tensor, values: Tensor, scale: float, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attention by torch's kernel, and the log-sum-exp of each query's scores, (batch, heads, n) float32."""
    if mask is None and query.shape[2] > 1:
        return _causal_torch(query, keys, values, scale)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    folded = _fold(query, keys.shape[1])
    out, sums = flash(folded, keys, values, attn_mask=_fold_mask(query, keys, mask), scale=scale)
    return out.reshape(query.shape), sums.reshape(query.shape[:3])


def _left_of(sums: Tensor, sinks: Tensor) -> Tensor:
    """Share of the attention that sinks leave to the slots, of log-sum-exps (batch, heads, n)."""
    return torch.sigmoid(sums - sinks[:, None].to(sums.dtype))


def _causal_torch(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The older slots without any mask, the new ones with the causal kernel, joined by their log-sum-exp.

    torch's CPU kernel computes masked scores all the same; here none is computed in vain.
    """
    batch, num_heads, num_queries, head_dim = query.shape
    num_kv_heads, num_older = keys.shape[1], keys.shape[2] - num_queries
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    shape = (batch, num_kv_heads, num_heads // num_kv_heads, num_queries, head_dim)
    new_keys, new_values = (t[:, :, None, num_older:].expand(shape).reshape(query.shape) for t in (keys, values))
    new, new_lse = flash(query, new_keys, new_values, 0.0, True, scale=scale)
    if num_older == 0:
        return new, new_lse
    older, older_lse = flash(_fold(query, num_kv_heads), keys[:, :, :num_older], values[:, :, :num_older], scale=scale)
    older_lse = older_lse.reshape(new_lse.shape)
    weight = torch.sigmoid(new_lse - older_lse).unsqueeze(-1).to(query.dtype)
    return torch.lerp(older.reshape(query.shape), new, weight), torch.logaddexp(new_lse, older_lse)


def _has_flash(query: Tensor) -> bool:
    """True if torch's flash attention is there for such queries: it is for 16 bits, from the A100 on."""
    if not query.is_cuda or query.dtype not in (torch.float16, torch.bfloat16) or query.shape[3] > 256:
        return False
    return _capability(query.device) >= (8, 0)


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def _one_query_cpu(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """The kernel of `decode_attention`, which reads all blocks here: query heads that share a KV head read it once."""
    # Imported here: Numba is loaded by those who compile.
    from ondevice.kernels.cpu.decode_attention import Reading, attend

    return attend(query, keys, values, Reading(scale, _BLOCK_SIZE))[0]


def _causal_in_slices(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, softcap: float | None, sinks: Tensor | None
) -> Tensor:
    """A long prompt, some queries at a time, so that no mask of all by all is ever held."""
    num_queries, num_slots = query.shape[2], keys.shape[2]
    size = max(_MAX_SCORES // num_slots, 1)
    parts = []
    for start in range(0, num_queries, size):
        stop = min(start + size, num_queries)
        seen = num_slots - num_queries + stop
        part = query[:, :, start:stop], keys[:, :, :seen], values[:, :, :seen]
        parts.append(attention(*part, scale=scale, softcap=softcap, sinks=sinks))
    return torch.cat(parts, dim=2)


def _fold(query: Tensor, num_kv_heads: int) -> Tensor:
    """(batch, heads, n, dim) -> (batch, kv_heads, groups * n, dim)."""
    batch, num_heads, num_queries, head_dim = query.shape
    return query.reshape(batch, num_kv_heads, num_heads // num_kv_heads * num_queries, head_dim)


def _fold_mask(query: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor | None:
    """The additive mask of folded queries; without one they are causal, and a single query sees everything."""
    if mask is None:
        if query.shape[2] == 1:
            return None
        mask = causal_mask(query.shape[2], keys.shape[2], query.dtype, query.device)
    return mask.repeat(1, 1, query.shape[1] // keys.shape[1], 1)


def _probabilities(
    query: Tensor,
    keys: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Softmax of the scores in float32 or wider, (batch, kv_heads, groups * n, num_slots)."""
    wide, mask = torch.promote_types(query.dtype, torch.float32), _fold_mask(query, keys, mask)
    scores = (_fold(query, keys.shape[1]) @ keys.transpose(-1, -2)).to(wide).mul_(scale)
    if softcap is not None:
        scores = scores.div_(softcap).tanh_().mul_(softcap)
    if mask is not None:
        scores += mask.to(wide)
    if sinks is None:
        return scores.softmax(dim=-1)
    left = _left_of(scores.logsumexp(dim=-1).view(query.shape[:3]), sinks)
    return scores.softmax(dim=-1).mul_(left.view(scores.shape[:3]).unsqueeze(-1))
