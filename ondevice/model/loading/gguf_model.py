"""A user's own GGUF file, through transformers: every weight dequantised, the tokenizer rebuilt from the file.

Takes half a minute at every start; a safetensors folder of the same model starts in seconds.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from ondevice.errors import ModelError
from ondevice.model.families import FAMILIES, gguf_families
from ondevice.model.loading._transformers import empty_model, transformers
from ondevice.model.loading.gguf_file import GgufFile, read_header
from ondevice.model.loading.gguf_int4 import int4_gguf_bytes
from ondevice.model.loading.gguf_packed import can_pack, outline_packed, packed_bytes, vector
from ondevice.model.loading.gguf_tokenizer import SPLITS
from ondevice.model.loading.kept_tiles import kept_header

# What transformers raises where it cannot read a file; NotImplementedError: of a kind of numbers that it does not know.
_OF_TRANSFORMERS = (ValueError, KeyError, NotImplementedError, RuntimeError, ImportError, OSError)


@dataclass(frozen=True, slots=True)
class GgufSummary:
    """Facts of the header.

    Attributes:
        family: of `FAMILIES`.
        num_parameters: values in all tensors.
        pre_tokenizer: llama.cpp's name for how text is split before the merges, or "".
        is_packable: whether the weights can be used as they are stored.
        packed_bytes: memory that they then take; 0 where they cannot.
        int4_bytes: memory that they take on a GPU, those of four bits as they are stored.
        header: all of it.
    """

    family: str
    num_parameters: int
    pre_tokenizer: str
    is_packable: bool
    packed_bytes: int
    int4_bytes: int
    header: GgufFile


def inspect_gguf(path: Path) -> GgufSummary:
    """Read the header and check that the file is whole and of a known family.

    Raises:
        ModelError: it is not.
    """
    try:
        gguf, size = kept_header(path) or read_header(path), path.stat().st_size
        is_cut = any(tensor.offset + tensor.num_bytes > size for tensor in gguf.tensors)
    except (OSError, ValueError) as error:
        raise ModelError(f"The GGUF file cannot be read: {error}", where=str(path), fix="Fetch it again.") from error
    if is_cut:
        raise ModelError("The GGUF file is cut short", where=str(path), fix="Fetch it again.")
    architecture, families = str(gguf.metadata.get("general.architecture")), gguf_families()
    if architecture not in families:
        raise ModelError(
            f"GGUF models of type {architecture!r} cannot be used",
            where=str(path),
            fix=f"Choose one of these families: {', '.join(sorted(families))}.",
        )
    num_parameters = sum(prod(tensor.shape) for tensor in gguf.tensors)
    pre_tokenizer = str(gguf.metadata.get("tokenizer.ggml.pre", ""))
    num_packed = packed_bytes(gguf) if can_pack(gguf) else 0
    num_int4, family = int4_gguf_bytes(gguf) if num_packed else 0, families[architecture]
    return GgufSummary(family, num_parameters, pre_tokenizer, num_packed > 0, num_packed, num_int4, gguf)


def outline_gguf(path: Path, summary: GgufSummary, dtype: torch.dtype) -> tuple[Any, Any]:
    """The model without its weights, and transformers' tokenizer; raises as `load_gguf`."""
    if summary.is_packable:
        return outline_packed(path, summary.header, dtype)
    where = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name, "local_files_only": True}
    try:
        return empty_model(_config(path, where, summary), dtype), transformers.AutoTokenizer.from_pretrained(**where)
    except _OF_TRANSFORMERS as error:
        raise _unusable(path, error) from error


def load_gguf(path: Path, summary: GgufSummary, dtype: torch.dtype) -> tuple[Any, Any]:
    """The model, on the CPU, and transformers' tokenizer.

    Raises:
        ModelError: transformers cannot read the file.
    """
    where = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name, "local_files_only": True}
    # Before GgufConfig came, dequantising was the only thing transformers did with such a file.
    config = getattr(transformers, "GgufConfig", None)
    options = {} if config is None else {"quantization_config": config(dequantize=True)}
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # its bar cannot be switched off otherwise
            own = _config(path, where, summary)
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                **where, config=own, dtype=dtype, output_loading_info=True, **options
            )
            if missing := sorted(info["missing_keys"]):  # transformers would go on with random numbers there
                raise ValueError(f"{len(missing)} weights are missing, the first is {missing[0]}")
            tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    except _OF_TRANSFORMERS as error:
        raise _unusable(path, error) from error
    if summary.pre_tokenizer == "smollm":  # transformers leaves out the split into single digits
        tokenizer.backend_tokenizer.pre_tokenizer = SPLITS["smollm"]
    return model, tokenizer


def _config(path: Path, where: dict[str, Any], summary: GgufSummary) -> Any:
    """The model's configuration; raises what transformers does, or ValueError where metadata say what nobody reads."""
    config, family = transformers.AutoConfig.from_pretrained(**where), FAMILIES[summary.family]
    own = {key.removeprefix(f"{family.gguf}."): value for key, value in summary.header.metadata.items()}
    own |= {
        tensor.name.removesuffix(".weight"): vector(path, tensor).tolist()
        for tensor in summary.header.tensors
        if tensor.name.startswith("rope_")
    }
    family.complete(config, own)
    return config


def _unusable(path: Path, error: Exception) -> ModelError:
    fix = "Take the model's safetensors version."
    return ModelError(f"The GGUF file cannot be used: {error}", where=str(path), fix=fix)
