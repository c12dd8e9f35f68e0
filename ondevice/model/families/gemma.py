"""Adapter of Gemma-2 and Gemma 3: norms around both halves of a layer, windows in most or in every other one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ondevice.model.families.common import attention, complete_plain, llama_halves, window_of
from ondevice.model.families.fusing import norm_of
from ondevice.model.families.parts import BY_KIND, AttentionLayer


def gemma2_layers(model: Any) -> list[AttentionLayer]:
    """The layers of a Gemma-2; the windowed ones have slots in the pot as the others."""
    return _layers(model, dict.fromkeys(BY_KIND, AttentionLayer), dict.fromkeys(BY_KIND, model.model.rotary_emb))


def gemma3_layers(model: Any) -> list[AttentionLayer]:
    """The layers of a Gemma 3: five of six keep a window of their own, and turn faster than the sixth."""
    return _layers(model, BY_KIND, {kind: partial(model.model.rotary_emb, layer_type=kind) for kind in BY_KIND})


def complete_gemma3(config: Any, fields: dict[str, Any]) -> None:
    """Set RoPE of both kinds of layers, which layers have windows, and the scale of attention, as llama.cpp does.

    Args:
        fields: metadata of a GGUF file, without the name of the family.

    Raises:
        ValueError: they say more than that.
    """
    turns, depth = config.rope_parameters, config.num_hidden_layers
    turns["sliding_attention"]["rope_theta"] = fields.pop("rope.freq_base_swa", 10_000.0)
    if fields.get("rope.scaling.type") == "linear":
        scaled = {"rope_type": fields.pop("rope.scaling.type"), "factor": fields["rope.scaling.factor"]}
        turns["full_attention"] |= scaled
    complete_plain(config, fields)
    period = fields.get("attention.sliding_window_pattern", 6)
    windows = period if isinstance(period, list) else [(index + 1) % period for index in range(depth)]
    config.layer_types = ["sliding_attention" if window else "full_attention" for window in windows]
    # The file does not say it, and the 27B, of 62 layers, alone has another one.
    is_27b = depth == 62
    config.query_pre_attn_scalar = config.hidden_size // config.num_attention_heads if is_27b else config.head_dim


def _layers(model: Any, kinds: Mapping[str, type[AttentionLayer]], turns: dict[str, Any]) -> list[AttentionLayer]:
    config, layers = model.config, list[AttentionLayer]()
    for index, (kind, layer) in enumerate(zip(config.layer_types, model.model.layers, strict=True)):
        halves = llama_halves(layer, config, is_centred=True) | {
            "mlp_norm": norm_of(layer.pre_feedforward_layernorm, is_centred=True),
            "post_attention_norm": norm_of(layer.post_attention_layernorm, is_centred=True),
            "post_mlp_norm": norm_of(layer.post_feedforward_layernorm, is_centred=True),
        }
        own = attention(layer.self_attn, config, turns[kind], is_centred=True)
        layers.append(kinds[kind](**halves, **own, sliding_window=window_of(config, index)))
    return layers
