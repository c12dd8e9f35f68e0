"""A checkpoint folder whose weights are rounded to 8 or 4 bits while they are read, for float32 on a CPU.

One tensor after the other is read and packed (`kernels.rounding`), so that the unpacked model is never in memory as a
whole; of the embedding only the rows are read that are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from torch import Tensor, nn

from ondevice.kernels.attention import prepare_attention
from ondevice.kernels.projection import prepare_packed
from ondevice.kernels.rounding import GROUP_SIZE, quantize
from ondevice.model.families.common import attention_sizes
from ondevice.model.loading._transformers import empty_model, text_config, transformers
from ondevice.model.loading.checkpoint import Checkpoint, text_name
from ondevice.model.packed_modules import PackedEmbedding, PackedLinear, replace_module, set_weights, stored_parts

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head"


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of a tensor in a file that is mapped: only those asked for are read.

    Attributes:
        data: (num_rows, width), of the type in the file.
    """

    data: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.data.shape[0], self.data.shape[1]

    def gather(self, ids: Tensor) -> Tensor:
        """ids (n,) int64 -> (n, width) float32."""
        return self.data[ids].float()


def load_rounded(checkpoint: Checkpoint, bits: Literal[4, 8], on_fraction: Callable[[float], None]) -> Any:
    """The causal LM of a checkpoint, on the CPU, with packed weights; those of an odd width stay in float32.

    The head has 8 bits in any case: what it loses in 4, every token loses.

    Raises:
        KeyError, ValueError, OSError: transformers cannot use the configuration, or the weights are not of its shape.
    """
    model = empty_checkpoint(checkpoint)
    for name, module, own in modules_with_weights(model, checkpoint, on_fraction):
        if type(module) is nn.Linear and module.in_features % GROUP_SIZE == 0:
            bias = own["bias"].float() if "bias" in own else None
            replace_module(model, name, PackedLinear(quantize(own["weight"], 8 if name == HEAD else bits), bias))
        elif isinstance(module, nn.Embedding):
            replace_module(model, name, PackedEmbedding(FileRows(own["weight"]), module))
        else:
            set_weights(module, {part: weight.float() for part, weight in own.items()})
    prepare_packed(module.weight for module in model.modules() if isinstance(module, PackedLinear))
    prepare_attention(*attention_sizes(model.config), in_bfloat16=True)
    return with_generation_config(model, checkpoint)


def with_generation_config(model: Any, checkpoint: Checkpoint) -> Any:
    """The model with what its folder says about generating, if anything."""
    if (checkpoint.folder / "generation_config.json").is_file():
        model.generation_config = transformers.GenerationConfig.from_pretrained(
            checkpoint.folder, local_files_only=True
        )
    return model


def missing_weights(checkpoint: Checkpoint) -> list[str]:
    """Names of weights that the model needs and the files lack."""
    model = empty_checkpoint(checkpoint)
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


def empty_checkpoint(checkpoint: Checkpoint) -> Any:
    """The causal LM of a checkpoint without its weights."""
    return empty_model(text_config(checkpoint.folder))


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
