"""One small adapter per model family: where a transformers model keeps its parts, as a uniform set of callables.

Nothing is copied: separate projections are fused by laying their weights out side by side once and pointing the
transformers modules at slices of the fused weight, so that the model stays usable and takes no more memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ondevice.errors import ModelError
from ondevice.kernels.gated import gelu_tanh
from ondevice.kernels.int4 import Int4Weight, joined_int4
from ondevice.kernels.norm import RMSNorm
from ondevice.kernels.packed import TILE_ROWS, PackedWeight, joined
from ondevice.kernels.projection import project
from ondevice.machine.process import forget_mapped
from ondevice.model.packed_modules import PackedLinear

Op = Callable[[Tensor], Tensor]

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2")
_ACTIVATIONS = {
    "silu": F.silu,
    "gelu_pytorch_tanh": gelu_tanh,
}  # those that kernels know; others stay transformers' own


@dataclass(frozen=True, slots=True)
class Linear:
    """A plain linear projection, weight (out_features, in_features)."""

    weight: Tensor | PackedWeight | Int4Weight
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return project(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class LayerParts:
    """The pieces of one decoder layer. Optional ones are None where the family has none.

    `qkv` gives (..., (num_heads + 2 * num_kv_heads) * head_dim), `gate_up` gives (..., 2 * intermediate_size).
    `sliding_window` limits attention to that many last positions.
    """

    input_norm: RMSNorm
    qkv: Op
    q_norm: RMSNorm | None
    k_norm: RMSNorm | None
    out: Op
    post_attention_norm: RMSNorm | None
    mlp_norm: RMSNorm
    gate_up: Op
    intermediate_size: int
    activation: Op
    down: Op
    post_mlp_norm: RMSNorm | None
    sliding_window: int | None

    @property
    def linears(self) -> dict[str, Linear]:
        """The projections that are plain products, by name."""
        named = {"qkv": self.qkv, "out": self.out, "gate, up": self.gate_up, "down": self.down}
        return {name: op for name, op in named.items() if isinstance(op, Linear)}


@dataclass(frozen=True, slots=True)
class ModelParts:
    """The pieces of a causal language model around its layers.

    `lm_head` is the weight (vocab_size, hidden_size), which bitsandbytes never quantises, and which is packed with the
    others; `logit_softcap` caps its logits. `rotary(hidden_states, position_ids)` gives cosines and sines, each
    (batch, n, rotary_dim), as transformers does: by frequencies that may depend on the positions (see `Rotary`).
    `max_positions` are those that the model was trained for. `devices` are those of the layers, where their slots of a
    pot are, too; all else is on `device`.
    """

    embed: Op
    layers: tuple[LayerParts, ...]
    norm: RMSNorm
    lm_head: Tensor | PackedWeight
    rotary: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    vocab_size: int
    max_positions: int
    scale: float
    attention_softcap: float | None
    logit_softcap: float | None
    device: torch.device
    devices: tuple[torch.device, ...]

    @property
    def is_spread(self) -> bool:
        """True if layers lie on several devices."""
        return len(set(self.devices)) > 1

    def norm_after(self, index: int) -> RMSNorm:
        """The norm of a layer's output, on that norm's device: of the next layer's input, or the last one of all."""
        is_last = index + 1 == len(self.layers)
        return (self.norm if is_last else self.layers[index + 1].input_norm).on(self.devices[index])


def model_parts(model: Any) -> ModelParts:
    """Take a transformers causal language model apart.

    Raises:
        ModelError: the family is not one of `FAMILIES`.
    """
    config = model.config
    if config.model_type not in FAMILIES:
        raise ModelError(
            f"Models of the family {config.model_type!r} are not supported",
            fix=f"Use a model of one of these families: {', '.join(FAMILIES)}.",
        )
    is_gemma = config.model_type == "gemma2"
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    body = model.model
    return ModelParts(
        embed=body.embed_tokens,
        layers=tuple(_layer_parts(layer, config, i) for i, layer in enumerate(body.layers)),
        norm=_norm(body.norm, is_gemma),
        lm_head=_weight(model.lm_head),
        rotary=body.rotary_emb,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        max_positions=config.max_position_embeddings,
        scale=float(body.layers[0].self_attn.scaling),
        attention_softcap=getattr(config, "attn_logit_softcapping", None),
        logit_softcap=getattr(config, "final_logit_softcapping", None),
        device=_device_of(model, "model.embed_tokens"),
        devices=tuple(_device_of(model, f"model.layers.{index}") for index in range(len(body.layers))),
    )


def _device_of(model: Any, name: str) -> torch.device:
    """The device of a part: by accelerate's device map, else that of its weights.

    Packed weights are no parameters; they lie where the norms do.
    """
    placed = getattr(model, "hf_device_map", None) or {}
    if len(set(placed.values())) > 1 and name in placed:
        return torch.device(placed[name])
    own = next(model.get_submodule(name).parameters(), None)
    return next(model.parameters()).device if own is None else own.device


def _layer_parts(layer: Any, config: Any, index: int) -> LayerParts:
    attn, mlp = layer.self_attn, layer.mlp
    is_gemma = config.model_type == "gemma2"
    if config.model_type == "phi3":
        qkv, gate_up, activation = _linear(attn.qkv_proj), _linear(mlp.gate_up_proj), mlp.activation_fn
    else:
        qkv = _fuse([attn.q_proj, attn.k_proj, attn.v_proj])
        gate_up, activation = _fuse([mlp.gate_proj, mlp.up_proj]), mlp.act_fn
    name = str(getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", ""))
    mlp_norm = layer.pre_feedforward_layernorm if is_gemma else layer.post_attention_layernorm
    return LayerParts(
        input_norm=_norm(layer.input_layernorm, is_gemma),
        qkv=qkv,
        q_norm=_norm(attn.q_norm) if hasattr(attn, "q_norm") else None,
        k_norm=_norm(attn.k_norm) if hasattr(attn, "k_norm") else None,
        out=_linear(attn.o_proj),
        post_attention_norm=_norm(layer.post_attention_layernorm, True) if is_gemma else None,
        mlp_norm=_norm(mlp_norm, is_gemma),
        gate_up=gate_up,
        intermediate_size=config.intermediate_size,
        activation=_ACTIVATIONS.get(name, activation),
        down=_linear(mlp.down_proj),
        post_mlp_norm=_norm(layer.post_feedforward_layernorm, True) if is_gemma else None,
        sliding_window=_sliding_window(attn, config, index),
    )


def _sliding_window(attn: Any, config: Any, index: int) -> int | None:
    layer_types = getattr(config, "layer_types", None)
    if layer_types:
        return config.sliding_window if layer_types[index] == "sliding_attention" else None
    return getattr(config, "sliding_window", None)


def _norm(norm: Any, is_gemma: bool = False) -> RMSNorm:
    # Gemma stores its norm weights minus one.
    weight = 1.0 + norm.weight.detach() if is_gemma else norm.weight.detach()
    eps = getattr(norm, "variance_epsilon", None) or norm.eps
    return RMSNorm(weight, eps)


def _fuse(projections: list[Any]) -> Op:
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
    """As `_fuse`; rows that are not in four bits stay where they are."""
    packed = [p for p in projections if isinstance(p, PackedLinear)]
    weight, start = packed[0].weight, 0
    if packed[0].rows is None:  # else they have been taken apart before, and share it
        weight = joined_int4([_weight(p) for p in projections])
        for projection in projections:
            if isinstance(projection, PackedLinear):
                projection.share(weight, start)
            start += projection.out_features
    biases = [p.bias.detach() for p in projections if p.bias is not None]
    return Linear(weight, torch.cat(biases) if biases else None)


def _fuse_packed(projections: list[PackedLinear]) -> Op:
    """As `_fuse`; rows of different formats stay apart in memory."""
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


def _linear(module: Any) -> Op:
    """The projection of a linear module; those of bitsandbytes know how to multiply with their own weights."""
    if type(module) is not nn.Linear and not isinstance(module, PackedLinear):
        return module
    return Linear(_weight(module), None if module.bias is None else module.bias.detach())


def _weight(module: Any) -> Any:
    """Its weight: a tensor, or a packed one."""
    weight = module.weight
    return weight.detach() if isinstance(weight, Tensor) else weight
