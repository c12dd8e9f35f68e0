"""Models with random weights of a given shape: to be timed, where what they say does not matter.

Weights are laid out once, where they are used, and filled there; the tokenizer has one token per byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from ondevice.model.loading._transformers import transformers
from ondevice.model.loading.load import LoadedModel
from ondevice.model.loading.placement import require_memory
from ondevice.model.tokenizer import Tokenizer

_LLAMA_3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """Sizes of a model of the Llama family; `head_dim` is `hidden_size / num_heads`."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    intermediate_size: int
    vocab_size: int
    max_positions: int
    rope_parameters: dict[str, Any] = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 10_000.0})

    def config(self) -> Any:
        """The transformers config of this shape."""
        return transformers.LlamaConfig(
            num_hidden_layers=self.num_layers,
            hidden_size=self.hidden_size,
            num_attention_heads=self.num_heads,
            num_key_value_heads=self.num_kv_heads,
            intermediate_size=self.intermediate_size,
            vocab_size=self.vocab_size,
            max_position_embeddings=self.max_positions,
            rope_parameters=dict(self.rope_parameters),
            tie_word_embeddings=False,
        )


SHAPES = {
    # As Llama 2: every head has keys of its own. Half as deep and wide, and few words, so that it fits anywhere.
    "llama-2-like": LlamaShape(16, 2048, 32, 32, 5504, 4096, 4096),
    "llama-2-like-attention": LlamaShape(1, 2048, 32, 32, 256, 512, 4096),
    "llama-2-like-small": LlamaShape(2, 256, 8, 8, 688, 512, 4096),
    "tiny": LlamaShape(2, 32, 2, 1, 64, 256, 8192),
    # The next two as the last two, a quarter as wide and half as deep.
    "llama-3.1-8b-small": LlamaShape(16, 1024, 16, 4, 3584, 4096, 8192),
    "llama-3.2-1b-small": LlamaShape(8, 512, 8, 2, 2048, 4096, 8192),
    "llama-3.2-1b": LlamaShape(16, 2048, 32, 8, 8192, 128_256, 131_072, _LLAMA_3_ROPE),
    "llama-3.1-8b": LlamaShape(32, 4096, 32, 8, 14_336, 128_256, 131_072, _LLAMA_3_ROPE),
}


def random_model(
    name: str, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0
) -> LoadedModel:
    """A model of the shape `name` of `SHAPES`; the same arguments give the same weights on the same kind of device.

    Raises:
        ModelError: it does not fit into the memory that is free.
    """
    device, shape = torch.device(device), SHAPES[name]
    config = shape.config()
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config).to(dtype)
    require_memory(sum(p.numel() for p in model.parameters()) * dtype.itemsize, device, "none")
    model.to_empty(device=device)
    # Not a parameter: laying the model out has lost what its constructor computes.
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(device)
    _fill_(model, torch.Generator(device).manual_seed(seed))
    model.eval().requires_grad_(False)
    return LoadedModel(
        model=model,
        tokenizer=_byte_tokenizer(),
        name=name,
        device=device,
        dtype=dtype,
        quantization="none",
        fingerprint=f"random {name} {seed} {dtype}",
        max_positions=shape.max_positions,
    )


@torch.no_grad()
def _fill_(model: Any, generator: torch.Generator) -> None:
    """Uniform numbers that keep activations about as large as they come in: the cheapest there are."""
    for parameter in model.parameters():
        if parameter.dim() == 1:  # norms
            parameter.fill_(1.0)
        else:
            bound = (3.0 / parameter.shape[1]) ** 0.5
            parameter.uniform_(-bound, bound, generator=generator)


def _byte_tokenizer() -> Tokenizer:
    """One token per byte of UTF-8."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(transformers.PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False))
