"""Pieces of adapters that families share: halves of a layer, short convolutions, layers without RoPE."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ondevice.kernels.gated import gelu_tanh
from ondevice.model.families.fusing import fuse, linear_of, norm_of

# Those that kernels know; others stay transformers' own.
_ACTIVATIONS = {"silu": F.silu, "gelu_pytorch_tanh": gelu_tanh}


def llama_halves(layer: Any, config: Any, *, is_centred: bool = False) -> dict[str, Any]:
    """Norms before both halves of a layer, and a gated feed-forward network with separate projections."""
    mlp = layer.mlp
    return {
        "input_norm": norm_of(layer.input_layernorm, is_centred=is_centred),
        "mlp_norm": norm_of(layer.post_attention_layernorm, is_centred=is_centred),
        "gate_up": fuse([mlp.gate_proj, mlp.up_proj]),
        "intermediate_size": config.intermediate_size,
        "activation": activation_of(config, mlp.act_fn),
        "down": linear_of(mlp.down_proj),
    }


def short_convolution(inputs: Tensor, taps: Tensor, bias: Tensor | None) -> Tensor:
    """The last inputs of each token, times their taps: torch's convolution takes far longer for one token.

    Args:
        inputs: (batch, num_taps + n, channels), those before the tokens first.
        taps: (num_taps, channels), the oldest input first.

    Returns:
        (batch, n, channels).
    """
    num_taps = taps.shape[0]
    num_tokens = inputs.shape[1] - num_taps
    mixed = taps[0] * inputs[:, 1 : num_tokens + 1]
    for back in range(1, num_taps):
        mixed.addcmul_(taps[back], inputs[:, back + 1 : back + 1 + num_tokens])
    return mixed if bias is None else mixed.add_(bias)


def attention(attn: Any, config: Any, turn: Any, *, is_centred: bool = False) -> dict[str, Any]:
    """Attention with separate projections, and norms of queries and keys where it has them."""
    return {
        "qkv": fuse([attn.q_proj, attn.k_proj, attn.v_proj]),
        "out": linear_of(attn.o_proj),
        "q_norm": norm_of(attn.q_norm, is_centred=is_centred) if hasattr(attn, "q_norm") else None,
        "k_norm": norm_of(attn.k_norm, is_centred=is_centred) if hasattr(attn, "k_norm") else None,
        **heads(attn, config, turn),
    }


def heads(attn: Any, config: Any, turn: Any) -> dict[str, Any]:
    """The numbers of heads, and how they attend."""
    return {
        "num_heads": config.num_attention_heads,
        "num_kv_heads": config.num_key_value_heads,
        "head_dim": head_dim_of(config),
        "scale": float(attn.scaling),
        "softcap": getattr(config, "attn_logit_softcapping", None),
        "turn": turn,
    }


def head_dim_of(config: Any) -> int:
    """Numbers of one head of the layers that attend to all."""
    config = _full_attention(config)
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def attention_sizes(config: Any) -> tuple[int, int, int]:
    """Heads of queries, of keys, and `head_dim_of` them, of the layers that attend to all."""
    return config.num_attention_heads, _full_attention(config).num_key_value_heads, head_dim_of(config)


def _full_attention(config: Any) -> Any:
    return config.per_layer_config["full_attention"] if getattr(config, "is_heterogeneous", False) else config


def complete_plain(config: Any, fields: dict[str, Any]) -> None:
    """Set what RoPE's frequencies are divided by, and how many numbers of a head turn.

    Args:
        fields: metadata of a GGUF file, without the name of the family, and its tensors of such divisors.

    Raises:
        ValueError: they say more than that.
    """
    rope, scaling = config.rope_parameters, fields.get("rope.scaling.type", "none")
    short = fields.get("rope_factors_short", fields.get("rope_freqs"))
    if short is not None:
        first = fields.get("rope.scaling.original_context_length", config.max_position_embeddings)
        config.original_max_position_embeddings = rope["original_max_position_embeddings"] = first
        rope |= {"rope_type": "longrope", "short_factor": short, "long_factor": fields.get("rope_factors_long", short)}
        rope["attention_factor"] = fields.get("rope.scaling.attn_factor", 1.0)
        rope["factor"] = config.max_position_embeddings / first
        scaling = scaling.replace("longrope", "none")
    if (share := fields.get("rope.dimension_count", head_dim_of(config)) / head_dim_of(config)) < 1:
        rope["partial_rotary_factor"] = share
    if scaling != "none":
        raise ValueError(f"its RoPE is scaled ({scaling}), which is not read from such a file")


def as_written(value: float) -> float:
    """The number that was stored in float32: 9.999999747378752e-06 means 1e-05."""
    return float(str(np.float32(value)))


def window_of(config: Any, index: int) -> int | None:
    """The sliding window of a layer; None: it attends to all."""
    window: int | None = getattr(config, "sliding_window", None)
    layer_types = getattr(config, "layer_types", None)
    return window if not layer_types or layer_types[index] == "sliding_attention" else None


def activation_of(config: Any, module: Any) -> Any:
    """The activation of the feed-forward network: one that kernels know, or the module's own."""
    name = getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", "")
    return _ACTIVATIONS.get(str(name), module)


class NoTurn:
    """RoPE of a layer without positions: every angle is 0, so that the same kernels serve it."""

    def __init__(self, config: Any) -> None:
        self._head_dim = head_dim_of(config)

    def __call__(self, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, (batch, n, dim) of the type of `states`."""
        ones = torch.ones(*positions.shape, self._head_dim, dtype=states.dtype, device=states.device)
        return ones, torch.zeros_like(ones)
