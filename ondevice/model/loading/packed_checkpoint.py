"""A checkpoint folder whose weights are rounded to 8 or 4 bits while they are read.

One tensor after the other is read and packed, so that the unpacked model is never in memory as a whole: for float32 on
a CPU (`kernels.rounding`), where of the embedding only the rows are read that are asked for; for torch's own products
on a GPU (`kernels.int4`), where embedding and head stay in bfloat16, as do weights of an odd shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ondevice.kernels.attention import prepare_attention
from ondevice.kernels.int4 import int4_bytes, suits_int4
from ondevice.kernels.projection import prepare_packed
from ondevice.kernels.rounding import GROUP_SIZE, quantize, quantize_int4
from ondevice.model.families.common import attention_sizes
from ondevice.model.loading._transformers import transformers
from ondevice.model.loading.checkpoint import Checkpoint, text_name
from ondevice.model.loading.outline import folder_outline
from ondevice.model.packed_modules import PackedEmbedding, PackedLinear, replace_module, set_weights, stored_parts

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head"
_INT4_DTYPE = torch.bfloat16


def load_rounded(checkpoint: Checkpoint, bits: Literal[4, 8], on_fraction: Callable[[float], None]) -> Any:
    """The causal LM of a checkpoint, on the CPU, with packed weights; those of an odd width stay in float32.

    The head has 8 bits in any case: what it loses in 4, every token loses.

    Raises:
        KeyError, ValueError, OSError: transformers cannot use the configuration, or the weights are not of its shape.
    """
    model = folder_outline(checkpoint)
    for name, module, own in modules_with_weights(model, checkpoint, on_fraction):
        if type(module) is nn.Linear and module.in_features % GROUP_SIZE == 0:
            bias = own["bias"].float() if "bias" in own else None
            replace_module(model, name, PackedLinear(quantize(own["weight"], 8 if name == HEAD else bits), bias))
        elif isinstance(module, nn.Embedding):
            replace_module(model, name, PackedEmbedding(partial(_rows, own["weight"]), module))
        else:
            set_weights(module, {part: weight.float() for part, weight in own.items()})
    prepare_packed(module.weight for module in model.modules() if isinstance(module, PackedLinear))
    prepare_attention(*attention_sizes(model.config), in_bfloat16=True)
    return with_generation_config(model, checkpoint)


def load_int4(checkpoint: Checkpoint, device: torch.device, on_fraction: Callable[[float], None]) -> Any:
    """The causal LM of a checkpoint on a device.

    Raises:
        KeyError, ValueError, OSError: transformers cannot use the configuration, or the weights are not of its shape.
    """
    model, is_tied = folder_outline(checkpoint), f"{HEAD}.weight" not in checkpoint.shapes
    for name, module, stored in modules_with_weights(model, checkpoint, on_fraction):
        if name == HEAD and is_tied:
            continue
        own = {part: weight.to(device, _INT4_DTYPE) for part, weight in stored.items()}
        if type(module) is nn.Linear and name != HEAD and suits_int4(module.out_features, module.in_features):
            replace_module(model, name, PackedLinear(quantize_int4(own["weight"]), own.get("bias")))
        else:
            set_weights(module, own)
    if is_tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    return with_generation_config(model.to(device), checkpoint)  # buffers alone are left to be moved


def _rows(mapped: Tensor, ids: Tensor) -> Tensor:
    """Rows of a tensor in a file that is mapped, in float32: only those asked for are read."""
    return mapped[ids].float()


def with_generation_config(model: Any, checkpoint: Checkpoint) -> Any:
    """The model with what its folder says about generating, if anything."""
    if (checkpoint.folder / "generation_config.json").is_file():
        model.generation_config = transformers.GenerationConfig.from_pretrained(
            checkpoint.folder, local_files_only=True
        )
    return model


def missing_weights(checkpoint: Checkpoint) -> list[str]:
    """Names of weights that the model needs and the files lack."""
    model = folder_outline(checkpoint)
    names = {name for name, _ in model.named_parameters()}
    tied = {f"{HEAD}.weight"} if model.config.tie_word_embeddings else set()
    return sorted(names - tied - checkpoint.shapes.keys())


def rounded_bytes(checkpoint: Checkpoint, bits: Literal[4, 8]) -> int:
    """Bytes of the weights in memory."""
    per_weight = {8: (8 + 16 / GROUP_SIZE) / 8, 4: (4 + 32 / GROUP_SIZE) / 8}
    shapes = {
        name: shape for name, shape in checkpoint.shapes.items() if "embed_tokens" not in name
    }  # stays in its file
    head = shapes.pop(f"{HEAD}.weight", checkpoint.shapes.get(EMBEDDING, ()))
    others = sum(prod(shape) * (per_weight[bits] if len(shape) == 2 else 4) for shape in shapes.values())
    return int(others + prod(head) * per_weight[8])


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
        total += kept * prod(shape) * _INT4_DTYPE.itemsize + (1 - kept) * int4_bytes(prod(shape))
    return int(total)


def modules_with_weights(
    model: Any, checkpoint: Checkpoint, on_fraction: Callable[[float], None]
) -> Iterator[tuple[str, nn.Module, dict[str, Tensor]]]:
    """The modules of an empty model by name, each with its own weights as they are stored; a head may be tied.

    The files are mapped, and stay so while a tensor of theirs is used.

    Raises:
        KeyError, ValueError: a weight is not there, or has another shape.
    """
    from safetensors import safe_open

    files = [safe_open(path, framework="pt", device="cpu") for path in checkpoint.weights]
    stored = {text_name(name): (file, name) for file in files for name in file.keys()}  # noqa: SIM118
    if f"{HEAD}.weight" not in stored:
        stored[f"{HEAD}.weight"] = stored[EMBEDDING]
    done, total = 0, sum(weight.numel() for module in model.modules() for weight in stored_parts(module).values())
    for name, module in list(model.named_modules()):
        own = dict[str, Tensor]()
        for part, weight in stored_parts(module).items():
            file, key = stored[f"{name}.{part}"]
            own[part] = file.get_tensor(key)
            if own[part].shape != weight.shape:
                raise ValueError(f"{name}.{part} has the shape {[*own[part].shape]} instead of {[*weight.shape]}")
        if own:
            yield name, module, own
            done += sum(weight.numel() for weight in own.values())
            on_fraction(done / total)
