"""Projections and norms of transformers' modules as plain callables, several projections fused into one product.

Nothing is copied: the weights are laid side by side once and the transformers modules are pointed at slices of the
fused weight, so that the model stays usable and takes no more memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ondevice.kernels.int4 import Int4Weight, joined_int4
from ondevice.kernels.norm import RMSNorm
from ondevice.kernels.packed import TILE_ROWS, PackedWeight, joined
from ondevice.machine.process import forget_mapped
from ondevice.model.families.parts import Experts, Linear
from ondevice.model.mixture import Op
from ondevice.model.packed_modules import PackedLinear, SeparateExperts, linears_of


def norm_of(norm: Any, *, is_centred: bool = False) -> RMSNorm:
    """The norm of a module; a centred one stores its weights minus one (Gemma, Qwen3.5)."""
    weight = 1.0 + norm.weight.detach() if is_centred else norm.weight.detach()
    eps = getattr(norm, "variance_epsilon", None) or norm.eps
    return RMSNorm(weight, eps)


def fuse(projections: list[Any]) -> Op:
    """One matrix product instead of several; quantised projections stay apart, since their weights are packed."""
    if any(isinstance(p.weight, Int4Weight) for p in projections):
        return _fuse_int4(projections)
    if all(isinstance(p, PackedLinear) for p in projections):
        return _fuse_packed(projections)
    if any(type(p) is not nn.Linear for p in projections):
        return lambda x: torch.cat([p(x) for p in projections], dim=-1)
    apart = [p.weight.detach() for p in projections]
    weight = torch.cat(apart)
    has_bias = projections[0].bias is not None
    bias = torch.cat([p.bias.detach() for p in projections]) if has_bias else None
    start = 0
    for projection in projections:
        rows = slice(start, start + projection.out_features)
        projection.weight.data = weight[rows]
        if bias is not None:
            projection.bias.data = bias[rows]
        start = rows.stop
    for one in apart:  # what was mapped from a file to be laid side by side would stay in memory beside that
        if one.device.type == "cpu":
            forget_mapped(one.data_ptr(), one.nbytes)
    return Linear(weight, bias)


def _fuse_int4(projections: list[Any]) -> Op:
    """As `fuse`; rows that are not in four bits stay where they are."""
    packed = [p for p in projections if isinstance(p, PackedLinear)]
    weight, start = packed[0].weight, 0
    if packed[0].rows is None:  # else they have been taken apart before, and share it
        weight = joined_int4([weight_of(p) for p in projections])
        for projection in projections:
            if isinstance(projection, PackedLinear):
                projection.share(weight, start)
            start += projection.out_features
    biases = [p.bias.detach() for p in projections if p.bias is not None]
    return Linear(weight, torch.cat(biases) if biases else None)


def _fuse_packed(projections: list[PackedLinear]) -> Op:
    """As `fuse`; rows of different formats stay apart in memory."""
    sizes = [p.weight.shape[0] for p in projections]
    if any(size % TILE_ROWS for size in sizes[:-1]):
        return lambda x: torch.cat([p(x) for p in projections], dim=-1)
    weight = joined([p.weight for p in projections if isinstance(p.weight, PackedWeight)])
    biases = [p.bias.detach() for p in projections if p.bias is not None]
    start = 0
    for projection, size in zip(projections, sizes, strict=True):
        projection.weight = weight.rows(start, start + size)
        start += size
    return Linear(weight, torch.cat(biases) if len(biases) == len(projections) else None)


def linear_of(module: Any) -> Op:
    """The projection of a linear module; those of bitsandbytes know how to multiply with their own weights."""
    if type(module) is not nn.Linear and not (isinstance(module, PackedLinear) and module.inputs is None):
        return module
    return Linear(weight_of(module), None if module.bias is None else module.bias.detach())


def experts_of(router: Any, experts: Any, num_taken: int, activate: Op) -> Experts:
    """The experts of one layer; no weight is copied.

    Args:
        router: a module with a weight (num_experts, hidden_size), and a bias if it has one.
        experts: of transformers, or `SeparateExperts`.
        num_taken, activate: as of `Experts`.
    """
    bias = getattr(router, "bias", None)
    scores = Linear(router.weight.detach(), None if bias is None else bias.detach())
    if isinstance(experts, SeparateExperts):
        both: Sequence[Sequence[Op]] = [[*map(linear_of, modules)] for modules in (experts.gate_up, experts.down)]
    else:
        own = {name: weight.detach() for name, weight in experts.named_parameters(recurse=False)}
        both = linears_of(experts, own, Linear)
    gate_up, down = both
    return Experts(scores, num_taken, gate_up, down, activate)


def weight_of(module: Any) -> Any:
    """Its weight: a tensor, or a packed one."""
    weight = module.weight
    return weight.detach() if isinstance(weight, Tensor) else weight
