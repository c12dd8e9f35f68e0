"""One large model over several GPUs, by accelerate's device map: layers one after the other, all else on the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ondevice.errors import ModelError
from ondevice.machine.memory import free_memory_bytes

_WEIGHTS = 0.85  # of a GPU's free memory, at most: pots and activations want some


def free_of_all(device: torch.device) -> dict[int, int]:
    """Free bytes of every GPU; none where the device is no GPU."""
    if device.type != "cuda":
        return {}
    return {index: free_memory_bytes(torch.device("cuda", index)) for index in range(torch.cuda.device_count())}


def device_map(outline: Any, weight_bytes: int, free: Mapping[int, int]) -> dict[str, int]:
    """The device of each part of a model, by its name: equally many bytes of layers on every GPU, in their order, so
    that the hidden states move from one to the next once, and pots have equal room.

    Args:
        outline: the model on torch's meta device, in the type that it will have.
        weight_bytes: of all its weights.
        free: bytes of each GPU.

    Raises:
        ModelError: they do not fit.
    """
    import accelerate  # takes long, and most machines have no use for it

    beside = [outline.get_output_embeddings(), outline.model.norm]  # which accelerate would put behind the last layer
    ties = getattr(outline.config, "tie_word_embeddings", False)
    extra = 0 if ties else sum(part.numel() * part.element_size() for one in beside for part in one.parameters())
    largest = max(
        sum(part.numel() * part.element_size() for part in layer.parameters()) for layer in outline.model.layers
    )
    even = weight_bytes // len(free) + largest
    most = {gpu: min(int(_WEIGHTS * num_bytes), even) - (extra if gpu == 0 else 0) for gpu, num_bytes in free.items()}
    most[max(most)] = int(_WEIGHTS * free[max(free)])  # what is left over after rounding to whole layers
    placed = accelerate.infer_auto_device_map(
        outline, max_memory=dict(most), no_split_module_classes=list(outline._no_split_modules)
    )
    layers = {
        f"model.layers.{index}": _of(placed, f"model.layers.{index}") for index in range(len(outline.model.layers))
    }
    if not all(isinstance(gpu, int) for gpu in layers.values()):
        raise ModelError(
            f"The weights take {weight_bytes / 1e9:.1f} GB, and {sum(free.values()) / 1e9:.1f} GB are free on "
            f"{len(free)} GPUs",
            fix="Add {engine.quantization} 4bit, or choose a smaller model.",
        )
    return {"model.embed_tokens": 0, "model.norm": 0, "model.rotary_emb": 0, "lm_head": 0, **layers}


def _of(placed: Mapping[str, Any], name: str) -> Any:
    """The device of a part, or of what it is a part of."""
    while name not in placed:
        name = name.rpartition(".")[0] if name else ""
        if not name:
            return placed.get("")
    return placed[name]
