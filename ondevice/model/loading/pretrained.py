"""The calls into transformers that turn a checked checkpoint folder into a model and a tokenizer."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from ondevice.errors import ModelError
from ondevice.extras import install
from ondevice.machine.memory import free_memory_bytes, ran_out
from ondevice.model.loading._transformers import text_config, transformers
from ondevice.model.loading.checkpoint import TEXT_NAMES, Checkpoint
from ondevice.model.loading.packed_checkpoint import load_int4, load_rounded, load_unpacked, missing_weights
from ondevice.model.loading.placement import WeightForm


def load_weights(checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype, quantization: WeightForm) -> Any:
    """The causal LM of a checkpoint, on `device`.

    Raises:
        ModelError: it does not fit, does not load, or lacks weights.
    """
    if checkpoint.is_mxfp4:
        if quantization != "none":
            raise ModelError(
                f"Weights in MXFP4 cannot be rounded to {quantization} there",
                where=str(checkpoint.folder),
                fix="Use {engine.quantization} 4bit with {engine.dtype} bfloat16 on a GPU, or a CPU in float32.",
            )
        with _loading(checkpoint.folder, device):
            _require_all(checkpoint, missing_weights(checkpoint))
            return load_unpacked(checkpoint, device, dtype)
    options = {} if checkpoint.stored_quantization else _quantization_options(quantization, dtype)
    if device.type != "cpu" or quantization != "none":  # else the weights stay in the mapped file
        options["device_map"] = {"": device}
    with _loading(checkpoint.folder, device):
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            checkpoint.folder,
            config=text_config(checkpoint.folder),
            key_mapping=TEXT_NAMES,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            **options,
        )
    _require_all(checkpoint, sorted(info["missing_keys"]))  # transformers would go on with random numbers there
    return model


def load_rounded_weights(
    checkpoint: Checkpoint, device: torch.device, bits: Literal[4, 8] | None, on_fraction: Callable[[float], None]
) -> Any:
    """The causal LM of a checkpoint, its weights rounded: on a CPU to so many bits, on a GPU for `kernels.int4` (None).

    Raises:
        ModelError: it does not fit, does not load, or lacks weights.
    """
    with _loading(checkpoint.folder, device):
        _require_all(checkpoint, missing_weights(checkpoint))
        if bits is None:
            return load_int4(checkpoint, device, on_fraction)
        return load_rounded(checkpoint, bits, on_fraction)


@contextmanager
def _loading(folder: Path, device: torch.device) -> Iterator[None]:
    """Turn what goes wrong with a model into the error that says so."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, ImportError, KeyError, TypeError, MemoryError) as error:
        if ran_out(error):
            raise ModelError(
                f"There is no room for the model on {device.type}: {free_memory_bytes(device) / 1e9:.1f} GB are free",
                where=str(folder),
                fix="Close other programs, add {engine.quantization} 4bit, or choose a smaller model.",
            ) from error
        raise ModelError(
            f"transformers cannot load the model: {_first_line(error)}",
            where=str(folder),
            fix="Check that the folder holds one complete checkpoint.",
        ) from error


def _require_all(checkpoint: Checkpoint, missing: Sequence[str]) -> None:
    if missing:
        raise ModelError(
            f"{len(missing)} weights are missing, the first is {missing[0]}",
            where=str(checkpoint.folder),
            fix="Fetch the model again.",
        )


def load_tokenizer(folder: Path) -> Any:
    """The fast tokenizer of a checkpoint folder.

    Raises:
        ModelError: there is none that can be read.
    """
    try:
        if (folder / "tokenizer.json").is_file():  # complete in itself: no class may rebuild it differently
            return transformers.PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
        return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # the tokenizers library raises bare Exception for a damaged file
        raise ModelError(
            f"The model's tokenizer cannot be read: {_first_line(error)}",
            where=str(folder),
            fix="Put its tokenizer.json and tokenizer_config.json there.",
        ) from error


def _quantization_options(quantization: WeightForm, dtype: torch.dtype) -> dict[str, Any]:
    if quantization == "none":
        return {}
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ModelError(f"Quantising to {quantization} needs bitsandbytes", fix=install("bitsandbytes>=0.50"))
    # At every product of matrices it would say that activations are rounded to float16, which is its method.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    if quantization == "8bit":
        config = transformers.BitsAndBytesConfig(load_in_8bit=True)
    else:
        config = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
        )
    return {"quantization_config": config}


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
