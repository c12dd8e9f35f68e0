"""A checkpoint folder whose weights are rounded to 8 or 4 bits while they are read.

One tensor after the other is read and packed, so that the unpacked model is never in memory as a whole: for float32 on
a CPU (`kernels.rounding`), where of the embedding only the rows are read that are asked for; for torch's own products
on a GPU (`kernels.int4`), where embedding and head stay in bfloat16, as do weights of an odd shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ondevice.kernels.attention import prepare_attention
from ondevice.kernels.int4 import int4_bytes, suits_int4
from ondevice.kernels.mxfp4 import MXFP4_BITS, mxfp4_weights, pack_mxfp4
from ondevice.kernels.projection import prepare_packed
from ondevice.kernels.rounding import GROUP_SIZE, quantize, quantize_int4
from ondevice.model.families.common import attention_sizes
from ondevice.model.loading._transformers import transformers
from ondevice.model.loading.checkpoint import MXFP4_PARTS, Checkpoint, is_product, text_name
from ondevice.model.loading.outline import folder_outline
from ondevice.model.packed_modules import (
    EXPERT_WEIGHTS,
    PackedEmbedding,
    PackedLinear,
    holds_experts,
    replace_module,
    separate_experts,
    set_weights,
    stored_parts,
)

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head"
_INT4_DTYPE = torch.bfloat16


def load_rounded(checkpoint: Checkpoint, bits: Literal[4, 8], on_fraction: Callable[[float], None]) -> Any:
    """The causal LM of a checkpoint, on the CPU, with packed weights; those of an odd width stay in float32.

    The head has 8 bits in any case: what it loses in 4, every token loses.

    Raises:
        KeyError, ValueError, OSError: transformers cannot use the configuration, or the weights are not of its shape.
    """
    model = folder_outline(checkpoint)

    def packed(weight: Tensor, bias: Tensor | None, bits: Literal[4, 8] = bits) -> PackedLinear:
        return PackedLinear(quantize(weight, bits), None if bias is None else bias.float())

    def as_stored(weight: Tensor, bias: Tensor | None) -> PackedLinear:
        return PackedLinear(pack_mxfp4(weight), None if bias is None else bias.float())

    for name, module, own in modules_with_weights(model, checkpoint, on_fraction):
        if type(module) is nn.Linear and module.in_features % GROUP_SIZE == 0:
            replace_module(model, name, packed(own["weight"], own.get("bias"), 8 if name == HEAD else bits))
        elif holds_experts(module) and all(has_groups(own[part].shape) for part in EXPERT_WEIGHTS):
            replace_module(model, name, separate_experts(module, own, as_stored if checkpoint.is_mxfp4 else packed))
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

    def packed(weight: Tensor, bias: Tensor | None) -> PackedLinear:
        return PackedLinear(quantize_int4(weight), bias)

    model, is_tied = folder_outline(checkpoint), f"{HEAD}.weight" not in checkpoint.shapes
    for name, module, stored in modules_with_weights(model, checkpoint, on_fraction):
        if name == HEAD and is_tied:
            continue
        own = {part: weight.to(device, _INT4_DTYPE) for part, weight in stored.items()}
        if holds_experts(module) and all(has_groups(own[part].shape) for part in EXPERT_WEIGHTS):
            replace_module(model, name, separate_experts(module, own, packed))
        elif type(module) is nn.Linear and name != HEAD and suits_int4(module.out_features, module.in_features):
            replace_module(model, name, packed(own["weight"], own.get("bias")))
        else:
            set_weights(module, own)
    if is_tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    return with_generation_config(model.to(device), checkpoint)  # buffers alone are left to be moved


def load_unpacked(checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> Any:
    """The causal LM of a checkpoint in MXFP4, on a device, all in one floating-point type; raises as `load_rounded`."""
    model = folder_outline(checkpoint, dtype)
    for _, module, own in modules_with_weights(model, checkpoint, lambda _: None):
        set_weights(module, {part: weight.to(device, dtype) for part, weight in own.items()})
    return with_generation_config(model.to(device), checkpoint)


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
    total = prod(head) * per_weight[8]
    for name, shape in shapes.items():
        if len(shape) == 3 and name.endswith(EXPERT_WEIGHTS) and has_groups(shape):
            total += prod(shape) * ((MXFP4_BITS + 16 / GROUP_SIZE) / 8 if checkpoint.is_mxfp4 else per_weight[bits])
        else:
            total += prod(shape) * (per_weight[bits] if is_product(name, shape) else 4)
    return int(total)


def has_groups(shape: Sequence[int]) -> bool:
    """True if both sides of the matrices of experts are whole groups: whichever it is that they share scales along."""
    return all(size % GROUP_SIZE == 0 for size in shape[-2:])


def int4_checkpoint_bytes(shapes: dict[str, tuple[int, ...]], share_kept: float = 0.0) -> int:
    """Memory of weights of these shapes on the device.

    Args:
        share_kept: of the value and down projections that stay in bfloat16 (those of a GGUF file of mixed types).
    """
    total = 0.0
    for name, shape in shapes.items():
        kept = 1.0
        if len(shape) == 3 and name.endswith(EXPERT_WEIGHTS) and has_groups(shape):
            kept = 0.0
        elif is_product(name, shape) and name != f"{HEAD}.weight" and suits_int4(*shape):
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
            own[part] = _tensor(stored, f"{name}.{part}")
            if own[part].shape != weight.shape:
                raise ValueError(f"{name}.{part} has the shape {[*own[part].shape]} instead of {[*weight.shape]}")
        if own:
            yield name, module, own
            done += sum(weight.numel() for weight in own.values())
            on_fraction(done / total)


def _tensor(stored: dict[str, tuple[Any, str]], name: str) -> Tensor:
    """A weight of files; one that is stored in MXFP4 is made wide.

    Args:
        stored: the file of each tensor, and its name there.
    """
    parts = [f"{name}{part}" for part in MXFP4_PARTS]
    if name in stored or not all(part in stored for part in parts):
        file, key = stored[name]
        return file.get_tensor(key)  # type: ignore[no-any-return]
    blocks, scales = (stored[part][0].get_tensor(stored[part][1]) for part in parts)
    return torch.stack([mxfp4_weights(*one).T for one in zip(blocks, scales, strict=True)])
