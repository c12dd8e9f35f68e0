"""From a model's name to a model in memory: `load_model` and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ondevice.config import Quantization
from ondevice.model.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to use.

    Attributes:
        model: a causal LM of transformers, in eval mode, without gradients.
        tokenizer: its tokenizer.
        name: as the user gave it, or the folder's name.
        device: where its weights lie.
        dtype: of the weights that are not quantised, and of the activations.
        quantization: `none`, `8bit` or `4bit`.
        fingerprint: sha256, hexadecimal; equal for equal configuration, weights, type and quantisation.
        max_positions: positions that the model was trained for.
        notice: a sentence for the user, or "".
    """

    model: Any
    tokenizer: Tokenizer
    name: str
    device: torch.device
    dtype: torch.dtype
    quantization: Quantization
    fingerprint: str
    max_positions: int
    notice: str = ""
