"""References of kernels in plain torch, one step after the other, each for the function of its name."""

from __future__ import annotations

import torch
from ondevice.kernels.attention import _probabilities, causal_mask
from ondevice.kernels.quantize import _SMALLEST_HALF, num_groups
from torch import Tensor


def attention_mass_ref(
    query: Tensor, keys: Tensor, *, scale: float, mask: Tensor | None = None, softcap: float | None = None
) -> Tensor:
    """Reference for `attention_mass`: one query after the other, one query head after the other."""
    groups, num_queries, num_slots = query.shape[1] // keys.shape[1], query.shape[2], keys.shape[2]
    if mask is None:
        mask = causal_mask(num_queries, num_slots, torch.float32, query.device)
    mask = mask.expand(keys.shape[0], keys.shape[1], num_queries, num_slots)
    mass = torch.zeros(keys.shape[:3], dtype=torch.float32, device=keys.device)
    for head in range(query.shape[1]):
        kv_head = head // groups
        for i in range(num_queries):
            one = query[:, head, i : i + 1].float()
            mass[:, kv_head] += _probabilities(
                one, keys[:, kv_head].float(), mask[:, kv_head, i : i + 1], scale, softcap
            ).squeeze(-2)
    return mass


def attention_peak_ref(
    query: Tensor, keys: Tensor, *, scale: float, mask: Tensor | None = None, softcap: float | None = None
) -> Tensor:
    """Reference for `attention_peak`: one query after the other."""
    masses = []
    groups, num_queries, num_slots = query.shape[1] // keys.shape[1], query.shape[2], keys.shape[2]
    if mask is None:
        mask = causal_mask(num_queries, num_slots, torch.float32, query.device)
    mask = mask.expand(keys.shape[0], keys.shape[1], num_queries, num_slots)
    for head in range(groups):
        for i in range(num_queries):
            one = query[:, head::groups, i : i + 1]
            masses.append(attention_mass_ref(one, keys, scale=scale, mask=mask[:, :, i : i + 1], softcap=softcap))
    return torch.stack(masses).amax(dim=0)


def attention_sharpness_ref(query: Tensor, keys: Tensor, *, scale: float, softcap: float | None = None) -> Tensor:
    """Reference for `attention_sharpness`: one query after the other, one query head after the other."""
    groups = query.shape[1] // keys.shape[1]
    sharpness = torch.zeros(keys.shape[0], keys.shape[2], device=keys.device)
    for head in range(query.shape[1]):
        for i in range(query.shape[2]):
            one = query[:, head, i : i + 1].float()
            probabilities = _probabilities(one, keys[:, head // groups].float(), None, scale, softcap)
            sharpness += probabilities.squeeze(-2) ** 2
    return sharpness


def block_scores_ref(query: Tensor, keys: Tensor, *, block_size: int, unit_size: int) -> Tensor:
    """Reference for `block_scores`: keys averaged unit by unit, one dot product for each query head."""
    batch, num_heads, groups = keys.shape[0], query.shape[1], query.shape[1] // keys.shape[1]
    local = query.float().mean(dim=2)
    blocks = []
    for block in keys.float().split(block_size, dim=2):
        best = torch.full((batch,), -torch.inf)
        for unit in block.split(unit_size, dim=2):
            mean_key, score = unit.mean(dim=2), torch.zeros(batch)
            for head in range(num_heads):
                score += (local[:, head] * mean_key[:, head // groups]).sum(dim=-1).cpu() / num_heads
            best = torch.maximum(best, score)
        blocks.append(best)
    return torch.stack(blocks, dim=1).to(keys.device)


def keep_slots_ref(buffer: Tensor, index: Tensor, num_cached: int) -> Tensor:
    """Reference for `keep_slots_`: a new tensor, head by head and slot by slot."""
    out = buffer.clone()
    out[:, :, :num_cached] = 0
    for batch in range(index.shape[0]):
        for head in range(index.shape[1]):
            for to, at in enumerate(index[batch, head].tolist()):
                out[batch, head, to] = buffer[batch, head, at]
    return out


def replace_slots_ref(buffer: Tensor, index: Tensor | slice, new: Tensor) -> Tensor:
    """Reference for `replace_slots_`: a new tensor, head by head and slot by slot."""
    out = buffer.clone()
    for batch in range(buffer.shape[0]):
        for head in range(buffer.shape[1]):
            at = range(buffer.shape[2])[index] if isinstance(index, slice) else index[batch, head].tolist()
            for i, slot in enumerate(at):
                out[batch, head, slot] = new[batch, head, i]
    return out


def quantize_ref(x: Tensor) -> tuple[Tensor, Tensor]:
    """Reference for `quantize`, vector by vector."""
    vectors = x.float().flatten(0, -2)
    numbers, scales = torch.zeros_like(vectors, dtype=torch.int8), torch.zeros(vectors.shape[0])
    for i, vector in enumerate(vectors):
        scales[i] = vector.abs().max() / 127
        if scales[i] > 0:
            numbers[i] = torch.round(vector / scales[i]).to(torch.int8)
    return numbers.view(x.shape), scales.view(x.shape[:-1])


def quantize_four_ref(x: Tensor) -> tuple[Tensor, Tensor]:
    """Reference for `quantize_four`, group by group and number by number."""
    vectors, size = x.float().flatten(0, -2), x.shape[-1] // num_groups(x.shape[-1])
    codes = torch.zeros(vectors.shape[0], x.shape[-1] // 2, dtype=torch.uint8)
    scales = torch.zeros(vectors.shape[0], 2 * num_groups(x.shape[-1]), dtype=torch.float16)
    for i, vector in enumerate(vectors):
        for group, numbers in enumerate(vector.split(size)):
            low = numbers.min().half()
            step = ((numbers.max() - low.float()) / 15).clamp(min=_SMALLEST_HALF).half()
            scales[i, 2 * group], scales[i, 2 * group + 1] = step, low
            for j, number in enumerate(numbers):
                code = int(((number - low.float()) / step.float()).round().clamp(0, 15))
                at = group * size + j
                half = x.shape[-1] // 2
                codes[i, at % half] |= code << (4 * (at >= half))
    return codes.view(*x.shape[:-1], -1), scales.view(*x.shape[:-1], -1)


def head_maximum_ref(
    query: Tensor, keys: Tensor, *, scale: float, mask: Tensor | None = None, softcap: float | None = None
) -> Tensor:
    """Reference for `head_maximum`: float32, one query head and one query after the other."""
    groups, num_queries, num_slots = query.shape[1] // keys.shape[1], query.shape[2], keys.shape[2]
    if mask is None:
        mask = causal_mask(num_queries, num_slots, torch.float32, query.device)
    mask = mask.expand(keys.shape[0], keys.shape[1], num_queries, num_slots).float()
    result = torch.zeros(keys.shape[0], num_queries, num_slots, device=keys.device)
    for head in range(query.shape[1]):
        for i in range(num_queries):
            scores = (keys[:, head // groups].float() @ query[:, head, i, :, None].float()).squeeze(-1) * scale
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            weights = (scores + mask[:, head // groups, i]).softmax(dim=-1)
            result[:, i] = torch.maximum(result[:, i], weights)
    return result
