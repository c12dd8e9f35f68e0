"""A checkpoint folder whose weights are rounded to four bits while they are read, for torch's own products on a GPU.

One tensor after the other is brought to the device in bfloat16 and packed there (`kernels.int4`). Embedding and head
stay in bfloat16, as do weights of an odd shape.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import nn

from ondevice.kernels.int4 import int4_bytes, suits_int4
from ondevice.kernels.rounding import quantize_int4
from ondevice.model.loading.checkpoint import Checkpoint
from ondevice.model.loading.packed_checkpoint import (
    HEAD,
    empty_checkpoint,
    modules_with_weights,
    with_generation_config,
)
from ondevice.model.packed_modules import PackedLinear, replace_module, set_weights

_DTYPE = torch.bfloat16


def load_int4(checkpoint: Checkpoint, device: torch.device, on_fraction: Callable[[float], None]) -> Any:
    """The causal LM of a checkpoint on a device.

    Raises:
        KeyError, ValueError, OSError: transformers cannot use the configuration, or the weights are not of its shape.
    """
    model, is_tied = empty_checkpoint(checkpoint), f"{HEAD}.weight" not in checkpoint.shapes
    for name, module, stored in modules_with_weights(model, checkpoint, on_fraction):
        if name == HEAD and is_tied:
            continue
        own = {part: weight.to(device, _DTYPE) for part, weight in stored.items()}
        if type(module) is nn.Linear and name != HEAD and suits_int4(module.out_features, module.in_features):
            replace_module(model, name, PackedLinear(quantize_int4(own["weight"]), own.get("bias")))
        else:
            set_weights(module, own)
    if is_tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    return with_generation_config(model.to(device), checkpoint)  # buffers alone are left to be moved


def int4_checkpoint_bytes(shapes: dict[str, tuple[int, ...]], share_kept: float = 0.0) -> int:
    """Memory of weights of these shapes on the device.

    Args:
        share_kept: of the value and down projections that stay in bfloat16 (those of a GGUF file of mixed types).
    """
    total = 0.0
    for name, shape in shapes.items():
        kept = 1.0
        if len(shape) == 2 and "embed_tokens" not in name and name != f"{HEAD}.weight" and suits_int4(*shape):
            kept = share_kept if "v_proj" in name or "down_proj" in name else 0.0
        total += kept * prod(shape) * _DTYPE.itemsize + (1 - kept) * int4_bytes(prod(shape))
    return int(total)
