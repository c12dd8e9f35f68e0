"""Float32 references of kernels in plain torch, one step after the other, each for the function of its name."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from ondevice.kernels.attention import _probabilities, causal_mask
from ondevice.kernels.coded_attention import _BLOCK, Coded
from ondevice.kernels.codes import decode
from ondevice.kernels.decode_attention import Termination
from ondevice.kernels.delta_weights import TINY, DeltaRule
from ondevice.kernels.int4 import Int4Weight, widened_ref
from ondevice.kernels.norm import RMSNorm
from ondevice.kernels.packed import PackedWeight, unpack
from ondevice.kernels.quantize import _SMALLEST_HALF, num_groups
from ondevice.kernels.token_loss import _cap
from torch import Tensor


def _whole_mask(query: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    """The additive mask as (batch, kv_heads, n, num_slots); without one queries are causal."""
    if mask is None:
        mask = causal_mask(query.shape[2], keys.shape[2], torch.float32, query.device)
    return mask.expand(keys.shape[0], keys.shape[1], query.shape[2], keys.shape[2])


def attention_mass_ref(
    query: Tensor, keys: Tensor, *, scale: float, mask: Tensor | None = None, softcap: float | None = None
) -> Tensor:
    """Reference for `attention_mass`: one query after the other, one query head after the other."""
    groups, mask = query.shape[1] // keys.shape[1], _whole_mask(query, keys, mask)
    mass = torch.zeros(keys.shape[:3], dtype=torch.float32, device=keys.device)
    for head in range(query.shape[1]):
        own = slice(head // groups, head // groups + 1)
        for i in range(query.shape[2]):
            one = query[:, head : head + 1, i : i + 1].float()
            mass[:, own] += _probabilities(
                one, keys[:, own].float(), mask=mask[:, own, i : i + 1], scale=scale, softcap=softcap
            ).squeeze(-2)
    return mass


def attention_peak_ref(
    query: Tensor, keys: Tensor, *, scale: float, mask: Tensor | None = None, softcap: float | None = None
) -> Tensor:
    """Reference for `attention_peak`: one query after the other."""
    groups, mask = query.shape[1] // keys.shape[1], _whole_mask(query, keys, mask)
    masses = []
    for head in range(groups):
        for i in range(query.shape[2]):
            one = query[:, head::groups, i : i + 1]
            masses.append(attention_mass_ref(one, keys, scale=scale, mask=mask[:, :, i : i + 1], softcap=softcap))
    return torch.stack(masses).amax(dim=0)


def attention_sharpness_ref(query: Tensor, keys: Tensor, *, scale: float, softcap: float | None = None) -> Tensor:
    """Reference for `attention_sharpness`: one query after the other, one query head after the other."""
    groups = query.shape[1] // keys.shape[1]
    sharpness = torch.zeros(keys.shape[0], keys.shape[2], device=keys.device)
    for head in range(query.shape[1]):
        own = slice(head // groups, head // groups + 1)
        for i in range(query.shape[2]):
            one = query[:, head : head + 1, i : i + 1].float()
            sharpness += _probabilities(one, keys[:, own].float(), scale=scale, softcap=softcap)[:, 0, 0] ** 2
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
    mask = _whole_mask(query, keys, mask).float()
    result = torch.zeros(keys.shape[0], num_queries, num_slots, device=keys.device)
    for head in range(query.shape[1]):
        for i in range(num_queries):
            scores = (keys[:, head // groups].float() @ query[:, head, i, :, None].float()).squeeze(-1) * scale
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            weights = (scores + mask[:, head // groups, i]).softmax(dim=-1)
            result[:, i] = torch.maximum(result[:, i], weights)
    return result


def attention_ref(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Reference for `attention`: float32, keys and values repeated for every query head, one full mask."""
    groups, mask = query.shape[1] // keys.shape[1], _whole_mask(query, keys, mask)
    keys, values, mask = (each.float().repeat_interleave(groups, 1) for each in (keys, values, mask))
    return (_probabilities(query.float(), keys, mask=mask, scale=scale, softcap=softcap) @ values).to(query.dtype)


def coded_attention_ref(
    query: Tensor,
    coded: Coded,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    scale: float,
    block_size: int = _BLOCK,
    order: Tensor | None = None,
    termination: Termination | None = None,
) -> tuple[Tensor, Tensor]:
    """Reference for `coded_attention`: all keys and values made wide in float32, head by head, then the references."""
    size = (*coded.keys.shape[:3], query.shape[3])
    keys, values = torch.zeros(size), torch.zeros(size)
    for head in range(size[1]):
        mean, spread = coded.frame.mean[head].float().cpu(), coded.frame.spread[head].float().cpu()
        numbers, values[:, head] = (
            decode(codes[:, head].cpu(), scales[:, head].cpu(), torch.float32)
            for codes, scales in ((coded.keys, coded.key_scales), (coded.values, coded.value_scales))
        )
        keys[:, head] = mean + spread * numbers
    at = positions.cpu().expand(keys.shape[:3]).long()
    cosines, sines = cos.float().cpu()[at], sin.float().cpu()[at]
    # `rotate_ref` takes the plain sine.
    plain = torch.cat((-sines[..., : sines.shape[-1] // 2], sines[..., sines.shape[-1] // 2 :]), dim=-1)
    rotated, wide = rotate_ref(keys, cosines, plain), query.float().cpu()
    if termination is None and order is None:
        out = attention_ref(wide, rotated, values, scale=scale)
        return out.to(query.dtype), torch.full(keys.shape[:2], -(-keys.shape[2] // block_size), dtype=torch.int32)
    out, blocks = decode_attention_ref(
        wide, rotated, values, scale=scale, block_size=block_size, order=order, termination=termination
    )
    return out.to(query.dtype), blocks


def decode_attention_ref(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scale: float,
    block_size: int = 64,
    order: Tensor | None = None,
    termination: Termination | None = None,
) -> tuple[Tensor, Tensor]:
    """Reference for `decode_attention`: float32, one KV head and one block after the other (ART, algorithm 1)."""
    batch, num_heads = query.shape[:2]
    num_kv_heads, num_slots = keys.shape[1:3]
    groups, num_blocks = num_heads // num_kv_heads, -(-num_slots // block_size)
    recency_first = torch.arange(num_blocks - 1, -1, -1)
    out, blocks_read = torch.zeros(query.shape), torch.zeros(batch, num_kv_heads, dtype=torch.int32)
    for b in range(batch):
        for head in range(num_kv_heads):
            shared = slice(head * groups, (head + 1) * groups)
            state = _Partial(query[b, shared].float(), keys[b, head].float(), values[b, head].float(), scale)
            of_head = _row(order, b, head)
            blocks = (recency_first if of_head is None else of_head).tolist()
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


def store_token_ref(
    query_keys: Tensor,
    new_values: Tensor,
    cos: Tensor,
    sin: Tensor,
    slot: Tensor,
    position: Tensor,
    keys: Tensor,
    values: Tensor,
    rotated: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Reference for `store_token_`, head by head in float32: the query, and new keys, values and rotated keys."""
    num_heads, num_kv_heads = query_keys.shape[1] - keys.shape[1], keys.shape[1]
    half, at, to = query_keys.shape[3] // 2, int(position), int(slot)
    turned = torch.empty_like(query_keys)
    for head in range(num_heads + num_kv_heads):
        x = query_keys[0, head, 0].float()
        swapped = torch.cat((x[half:], x[:half]))
        turned[0, head, 0] = (x * cos[at].float() + swapped * sin[at].float()).to(turned.dtype)
    keys, values, rotated = keys.clone(), values.clone(), rotated.clone()
    for head in range(num_kv_heads):
        keys[0, head, to] = query_keys[0, num_heads + head, 0]
        rotated[0, head, to] = turned[0, num_heads + head, 0]
        values[0, head, to] = new_values[0, head, 0]
    return turned[:, :num_heads], keys, values, rotated


class _Partial:
    """The online softmax of some rows of queries over one KV head: what is known after the blocks read so far."""

    def __init__(self, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> None:
        self._query, self._keys, self._values, self._scale = query, keys, values, scale
        self._maximum = torch.full((*query.shape[:2], 1), -torch.inf)
        self._total = torch.zeros(*query.shape[:2], 1)
        self._weighted = torch.zeros(query.shape)

    @property
    def output(self) -> Tensor:
        """(groups, 1, dim); zeros where nothing was read yet."""
        return torch.where(self._total > 0, self._weighted / self._total, 0.0)

    def read(self, slots: slice) -> None:
        scores = self._query @ self._keys[slots].T * self._scale
        maximum = torch.maximum(self._maximum, scores.amax(dim=-1, keepdim=True))
        decay, weights = torch.exp(self._maximum - maximum), torch.exp(scores - maximum)
        self._total = self._total * decay + weights.sum(dim=-1, keepdim=True)
        self._weighted = self._weighted * decay + weights @ self._values[slots]
        self._maximum = maximum


def _is_stable(now: Tensor, before: Tensor, termination: Termination, head: int) -> bool:
    """Equation 4 for every row of (groups, 1, dim) of one KV head."""
    tau = termination.tau[head] if isinstance(termination.tau, tuple) else termination.tau
    moved, norm, old_norm = (now - before).norm(dim=-1), now.norm(dim=-1), before.norm(dim=-1)
    limit = tau * norm if termination.is_relative else torch.full_like(norm, tau)
    product = norm * old_norm
    turned = torch.where(product > 0, 1 - (now * before).sum(dim=-1) / product, (moved > 0).float())
    return bool(((moved < limit) & (turned < termination.phi)).all())


def _row(tensor: Tensor | None, batch: int, head: int) -> Tensor | None:
    """The row of one sequence and KV head in (batch or 1, kv_heads or 1, n)."""
    return None if tensor is None else tensor[batch % tensor.shape[0], head % tensor.shape[1]]


def gated_ref(gate_up: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """Reference for `gated`, in float32."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (activation(gate) * up).to(gate_up.dtype)


def add_norm_ref(x: Tensor, residual: Tensor, norm: RMSNorm, before: RMSNorm | None = None) -> tuple[Tensor, Tensor]:
    """Reference for `add_norm_`, in float32; each result is rounded to the type of `x` when it is complete."""
    if before is not None:
        x = _norm_ref(x, before)
    total = (x.float() + residual.float()).to(x.dtype)
    return total, _norm_ref(total, norm)


def _norm_ref(x: Tensor, norm: RMSNorm) -> Tensor:
    wide = x.float()
    root = (wide.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt()
    return (wide / root * norm.weight.float()).to(x.dtype)


def project_ref(x: Tensor, weight: Tensor | PackedWeight | Int4Weight, bias: Tensor | None = None) -> Tensor:
    """Reference for `project`."""
    if isinstance(weight, PackedWeight):
        weight = unpack(weight)
    weight = made_wide(weight) if isinstance(weight, Int4Weight) else weight
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)


def made_wide(weight: Int4Weight) -> Tensor:
    """All of a weight in bfloat16, (out_features, in_features)."""
    return torch.cat([part if isinstance(part, Tensor) else widened_ref(part) for part in weight.parts])


def rotate_ref(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Reference for `rotate` in float32, pair by pair, as RoPE is defined (arXiv 2104.09864, eq. 34)."""
    half = cos.shape[-1] // 2
    out = x.float().clone()
    first, second = x[..., :half].float(), x[..., half : 2 * half].float()
    c, s = cos[..., half:].float(), sin[..., half:].float()
    out[..., :half] = first * c - second * s
    out[..., half : 2 * half] = second * c + first * s
    return out.to(x.dtype)


def token_loss_ref(hidden_states: Tensor, targets: Tensor, weight: Tensor, *, softcap: float | None = None) -> Tensor:
    """Reference for `token_loss`: all logits at once in float32, torch's own cross-entropy."""
    logits = _cap(hidden_states.float() @ weight.float().T, softcap)
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")


def delta_rule_ref(
    mixed: Tensor, gate: Tensor, steps: Tensor, strengths: Tensor, inputs: Tensor, state: Tensor, rule: DeltaRule
) -> tuple[Tensor, Tensor]:
    """Reference for `delta_rule`, token by token."""
    num_tokens = mixed.shape[1]
    padded = torch.cat((inputs[:, 1:], mixed), dim=1)
    taps = rule.taps.T[:, None].contiguous()
    convolved = F.silu(F.conv1d(padded.transpose(1, 2), taps, groups=taps.shape[0])).transpose(1, 2)
    width = rule.num_key_heads * rule.key_dim
    query, key, value = convolved.split((width, width, rule.num_value_heads * rule.value_dim), dim=-1)
    groups = rule.num_value_heads // rule.num_key_heads
    query, key = (
        x.unflatten(-1, (rule.num_key_heads, rule.key_dim)).repeat_interleave(groups, dim=2) for x in (query, key)
    )
    value = value.unflatten(-1, (rule.num_value_heads, rule.value_dim))
    query, key = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + TINY) for x in (query, key))
    query = query * rule.key_dim**-0.5
    keep = torch.exp(-rule.decay * F.softplus(steps + rule.step))
    strength, outs = strengths.sigmoid(), list[Tensor]()
    for at in range(num_tokens):
        state = state * keep[:, at, :, None, None]
        held = torch.einsum("bhkv,bhk->bhv", state, key[:, at])
        change = (value[:, at] - held) * strength[:, at, :, None]
        state = state + key[:, at, :, :, None] * change[:, :, None]
        outs.append(torch.einsum("bhkv,bhk->bhv", state, query[:, at]))
    out = torch.stack(outs, dim=1)
    out = out * torch.rsqrt(out.square().mean(-1, keepdim=True) + rule.eps) * rule.norm
    return out.flatten(2) * F.silu(gate), state


def state_space_ref(
    x: Tensor, steps: Tensor, decay: Tensor, keys: Tensor, queries: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Reference for `state_space`: one token after the other."""
    shared, outs = x.shape[2] // keys.shape[2], []
    keys, queries = (part.repeat_interleave(shared, dim=2) for part in (keys, queries))
    for token in range(x.shape[1]):
        step = steps[:, token, :, None, None]
        state = (step * decay[:, None, None]).exp() * state
        state = state + step * x[:, token, :, :, None] * keys[:, token, :, None]
        outs.append(torch.einsum("bhpn,bhn->bhp", state, queries[:, token]))
    return torch.stack(outs, dim=1), state
