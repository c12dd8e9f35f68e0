"""Registry of the model families: one adapter each, which says where a transformers model keeps its parts.

Which family a model is of is asked here alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ondevice.errors import ModelError
from ondevice.model.families.as_stored import (
    AsStored,
    CentredStored,
    Gemma4Stored,
    GptOssStored,
    GraniteStored,
    LlamaStored,
    Qwen35Stored,
)
from ondevice.model.families.common import complete_plain
from ondevice.model.families.fusing import norm_of, weight_of
from ondevice.model.families.gemma import complete_gemma3, gemma2_layers, gemma3_layers
from ondevice.model.families.gemma4 import gemma4_embeddings, gemma4_layers
from ondevice.model.families.gguf_fields import (
    gemma4_fields,
    gpt_oss_fields,
    granite_fields,
    granite_hybrid_fields,
    ministral3_fields,
)
from ondevice.model.families.gpt_oss import gpt_oss_layers
from ondevice.model.families.granite import granite_embeddings, granite_hybrid_layers, granite_layers
from ondevice.model.families.lfm import lfm2_layers, lfm3_layers
from ondevice.model.families.llama import complete_smollm3, llama_layers, phi3_layers
from ondevice.model.families.parts import Layer, ModelParts
from ondevice.model.families.qwen3_5 import qwen3_5_layers
from ondevice.model.mixture import Op


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models.

    Attributes:
        layers: takes a causal LM of transformers apart, layer by layer.
        norm: the name of its last norm in the body.
        is_centred: its norms store their weights minus one.
        gguf: llama.cpp's name of it; "": GGUF files of it are not read.
        fields: those of transformers' configuration from such a file; None: transformers reads them.
        complete: sets in that configuration what transformers' reader leaves out of a GGUF file's metadata.
        stored: how weights lie in such a file.
        overflows_float16: its hidden states do.
        embed: takes such a model, and gives `ModelParts.embed`.
        own_embeddings: the same for `ModelParts.own_embeddings`.
    """

    layers: Callable[[Any], Sequence[Layer]]
    norm: str = "norm"
    is_centred: bool = False
    gguf: str = ""
    fields: Callable[[dict[str, Any], dict[str, tuple[int, ...]]], dict[str, Any]] | None = None
    complete: Callable[[Any, dict[str, Any]], None] = complete_plain
    stored: AsStored = field(default_factory=AsStored)
    overflows_float16: bool = False
    embed: Callable[[Any], Op] = lambda model: model.model.embed_tokens
    own_embeddings: Callable[[Any], Callable[[Tensor, Tensor], Tensor] | None] = lambda _: None


FAMILIES: dict[str, Family] = {
    "llama": Family(llama_layers, gguf="llama", stored=LlamaStored()),  # Mistral's GGUF files say that of themselves
    "mistral": Family(llama_layers),
    "qwen2": Family(llama_layers, gguf="qwen2"),
    "qwen3": Family(llama_layers, gguf="qwen3"),
    "phi3": Family(phi3_layers, gguf="phi3"),
    "gemma2": Family(gemma2_layers, is_centred=True, gguf="gemma2", stored=CentredStored(), overflows_float16=True),
    "smollm3": Family(llama_layers, gguf="smollm3", complete=complete_smollm3, stored=LlamaStored()),
    "ministral3": Family(llama_layers, gguf="mistral3", fields=ministral3_fields, stored=LlamaStored()),
    "gemma3_text": Family(
        gemma3_layers,
        is_centred=True,
        gguf="gemma3",
        complete=complete_gemma3,
        stored=CentredStored(),
        overflows_float16=True,
    ),
    "gemma4_text": Family(
        gemma4_layers,
        gguf="gemma4",
        fields=gemma4_fields,
        stored=Gemma4Stored(),
        overflows_float16=True,
        own_embeddings=gemma4_embeddings,
    ),
    "gemma4_unified_text": Family(gemma4_layers, overflows_float16=True),  # the 12B, whose GGUF files are as the others
    "qwen3_5_text": Family(qwen3_5_layers, is_centred=True, gguf="qwen35", stored=Qwen35Stored()),
    "lfm2": Family(lfm2_layers, norm="embedding_norm", gguf="lfm2"),
    "lfm3": Family(lfm3_layers, norm="embedding_norm"),
    "gpt_oss": Family(
        gpt_oss_layers, gguf="gpt-oss", fields=gpt_oss_fields, stored=GptOssStored(), overflows_float16=True
    ),
    "granite": Family(
        granite_layers, gguf="granite", fields=granite_fields, stored=LlamaStored(), embed=granite_embeddings
    ),
    "granitemoehybrid": Family(
        granite_hybrid_layers,
        gguf="granitehybrid",
        fields=granite_hybrid_fields,
        stored=GraniteStored(),
        embed=granite_embeddings,
    ),
}
# Checkpoints that see pictures, too: their text model is loaded alone, of this family where they name none.
_SEEING = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
    "mistral3": "mistral",
    "qwen3_5": "qwen3_5_text",
}


def family_name(config: Any) -> str | None:
    """The family of a configuration of transformers, or of the contents of a config.json; None: it names none."""
    name = config.get("model_type") if isinstance(config, Mapping) else config.model_type
    if not isinstance(name, str):
        return None
    text = config.get("text_config") if name in _SEEING and isinstance(config, Mapping) else None
    return str(text.get("model_type", _SEEING[name])) if isinstance(text, Mapping) else _SEEING.get(name, name)


def gguf_families() -> dict[str, str]:
    """The families whose GGUF files are read, by llama.cpp's names of them."""
    return {family.gguf: name for name, family in FAMILIES.items() if family.gguf}


def named(family: str) -> dict[str, str]:
    """The field of a configuration that says that it is of this family."""
    return {"model_type": family}


def model_parts(model: Any) -> ModelParts:
    """Take a transformers causal language model apart.

    Raises:
        ModelError: the family is not one of `FAMILIES`.
    """
    config, body = model.config, model.model
    family = FAMILIES.get(family_name(config) or "")
    if family is None:
        raise ModelError(
            f"Models of the family {family_name(config)!r} are not supported",
            fix=f"Use a model of one of these families: {', '.join(FAMILIES)}.",
        )
    return ModelParts(
        embed=family.embed(model),
        all_layers=tuple(family.layers(model)),
        norm=norm_of(getattr(body, family.norm), is_centred=family.is_centred),
        lm_head=weight_of(model.lm_head),
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        max_positions=config.max_position_embeddings,
        logit_softcap=getattr(config, "final_logit_softcapping", None),
        own_embeddings=family.own_embeddings(model),
        logit_scale=1 / getattr(config, "logits_scaling", 1.0),
        device=next(model.parameters()).device,  # packed weights are no parameters; they lie where the norms do
    )
