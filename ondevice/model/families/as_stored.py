"""Weights of a GGUF file as llama.cpp's converter stores them, where it does not as transformers has them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ondevice.model.families.common import head_dim_of

_KEYS = ("attn_k", "attn_k_norm", "attn_v")


class AsStored:
    """A family whose weights are stored as they are."""

    def names(self, config: Any, name: str) -> tuple[str, ...]:
        """Names, as transformers would have them, of what has the rows of a parameter, one after the other."""
        return (name,)

    def rows(self, config: Any, name: str) -> Tensor | None:
        """The row of the file, or its number, that each row of a parameter is, (num_rows,) int64; None: the same."""
        return None

    def inputs(self, config: Any, name: str) -> Tensor | None:
        """The input that each stored column of a weight is multiplied by, (num_columns,) int64; None: its own."""
        return None

    def numbers(self, name: str, stored: Tensor) -> Tensor:
        """The numbers of a parameter that is no product's."""
        return stored

    def is_unused(self, config: Any, name: str) -> bool:
        """True for a tensor of the file that no layer needs."""
        # Divisors of RoPE's frequencies are in the configuration, and some layers predict further tokens.
        return name.startswith("rope_") or _layer_of(name) >= config.num_hidden_layers


class Gemma4Stored(AsStored):
    """Gemma 4: the file has keys of layers that take those of others."""

    def is_unused(self, config: Any, name: str) -> bool:
        first_shared = config.num_hidden_layers - config.num_kv_shared_layers
        is_shared = _layer_of(name) >= first_shared and name.split(".")[2] in _KEYS
        return is_shared or super().is_unused(config, name)


class LlamaStored(AsStored):
    """Llama: rotary dimensions are pairs side by side in the file, and in two halves here."""

    def rows(self, config: Any, name: str) -> Tensor | None:
        part = name.split(".")[-2]
        if part not in ("q_proj", "k_proj"):
            return None
        num_heads = config.num_attention_heads if part == "q_proj" else config.num_key_value_heads
        at = torch.arange(num_heads * head_dim_of(config))
        return at.view(num_heads, -1, 2).transpose(1, 2).flatten()


class CentredStored(AsStored):
    """Gemma: the file has norms with 1 added."""

    def numbers(self, name: str, stored: Tensor) -> Tensor:
        return stored - 1 if name.endswith("norm.weight") else stored


class Qwen35Stored(CentredStored):
    """Qwen3.5: values' heads of the delta rule take turns among those of keys in the file, and lie together here.

    The delta rule's own norm is no centred one, and its decay is stored as it is used.
    """

    _OF_VALUES = ("in_proj_qkv.weight", "in_proj_z.weight", "conv1d.weight")
    _OF_HEADS = ("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias")

    def rows(self, config: Any, name: str) -> Tensor | None:
        if config.linear_num_value_heads == config.linear_num_key_heads:
            return None
        if name.endswith(self._OF_HEADS):
            return _turns(config, 1).argsort()
        if not name.endswith(self._OF_VALUES):
            return None
        order = _turns(config, config.linear_value_head_dim).argsort()
        first = 0 if "in_proj_z" in name else 2 * config.linear_num_key_heads * config.linear_key_head_dim
        return torch.cat((torch.arange(first), first + order))

    def inputs(self, config: Any, name: str) -> Tensor | None:
        is_turned = config.linear_num_value_heads != config.linear_num_key_heads
        is_out = name.endswith("linear_attn.out_proj.weight")
        return _turns(config, config.linear_value_head_dim) if is_out and is_turned else None

    def numbers(self, name: str, stored: Tensor) -> Tensor:
        if name.endswith("linear_attn.norm.weight"):
            return stored
        return (-stored).log() if name.endswith("A_log") else super().numbers(name, stored)


class GptOssStored(AsStored):
    """gpt-oss: gate and up of experts are apart in the file, and take turns row by row here."""

    def names(self, config: Any, name: str) -> tuple[str, ...]:
        return _of_experts(name) or ((f"{name}.weight",) if name.endswith("sinks") else (name,))

    def rows(self, config: Any, name: str) -> Tensor | None:
        is_both = name.endswith("gate_up_proj")
        return torch.arange(2 * config.intermediate_size).view(2, -1).T.flatten() if is_both else None


class GraniteStored(LlamaStored):
    """Granite 4: gate and up are apart in the file, and what all tokens share is called otherwise beside experts.

    The decay of a state space is stored as it is used.
    """

    def names(self, config: Any, name: str) -> tuple[str, ...]:
        layer, _, part = name.partition(".shared_mlp.")
        if part:
            shared = f"{layer}.mlp.shared_expert" if config.num_local_experts else f"{layer}.mlp"
            parts = ("gate_proj", "up_proj") if part.startswith("input") else ("down_proj",)
            return tuple(f"{shared}.{one}.weight" for one in parts)
        name = name.replace("block_sparse_moe", "mlp")
        return _of_experts(name) or (name,)

    def numbers(self, name: str, stored: Tensor) -> Tensor:
        return (-stored).log() if name.endswith("A_log") else stored


def _of_experts(name: str) -> tuple[str, ...]:
    """Names of what has the rows of a parameter of experts; none where it is of something else."""
    module, _, part = name.partition(".experts.")
    if not part:
        return ()
    kind = "bias" if part.endswith("_bias") else "weight"
    parts = ("gate_proj", "up_proj") if part.startswith("gate_up") else ("down_proj",)
    return tuple(f"{module}.experts.{one}.{kind}" for one in parts)


def _layer_of(name: str) -> int:
    """The layer of a tensor of a file; -1 where it is of none."""
    first, _, rest = name.partition(".")
    layer = rest.partition(".")[0]
    return int(layer) if first == "blk" and layer.isdecimal() else -1


def _turns(config: Any, size: int) -> Tensor:
    """Our place of each stored number, where every head of values has so many."""
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    return torch.arange(values * size).view(keys, values // keys, size).transpose(0, 1).flatten()
