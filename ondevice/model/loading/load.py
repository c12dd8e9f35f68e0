"""From a model's name to a model in memory: `load_model` and its result.

Nothing that could run code is opened: safetensors and GGUF only, no remote code, ever.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ondevice.config import DEFAULT_MODEL, DeviceName, DtypeName, Quantization
from ondevice.errors import ModelError
from ondevice.model.loading import embedded, gguf_packed, hub, pretrained
from ondevice.model.loading.checkpoint import PICKLE_SUFFIXES, inspect, pickle_refused
from ondevice.model.loading.checksums import sample_sha256
from ondevice.model.loading.gguf_model import inspect_gguf, load_gguf
from ondevice.model.loading.placement import WeightForm, choose_device, choose_dtype, recommendation_for, require_memory
from ondevice.model.loading.progress import Progress, silent
from ondevice.model.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to use.

    Attributes:
        model: a causal LM of transformers, in eval mode, without gradients.
        tokenizer: its tokenizer.
        name: the hub id, or the name of its folder or file.
        device: where its weights lie.
        dtype: of the weights that are not quantised, and of the activations.
        quantization: what the weights are in memory.
        fingerprint: sha256, hexadecimal; equal for equal configuration, weights, type and quantisation.
        max_positions: positions that the model was trained for.
        notice: a sentence for the user, or "".
    """

    model: Any
    tokenizer: Tokenizer
    name: str
    device: torch.device
    dtype: torch.dtype
    quantization: WeightForm
    fingerprint: str
    max_positions: int
    notice: str = ""


@dataclass(frozen=True, slots=True)
class _Wish:
    """How the caller wants the model: the arguments of `load_model`, the device chosen."""

    device: torch.device
    dtype: DtypeName
    quantization: Quantization
    report: Progress


def load_model(
    name_or_path: str = DEFAULT_MODEL,
    *,
    device: DeviceName = "auto",
    dtype: DtypeName = "auto",
    quantization: Quantization = "auto",
    on_progress: Progress | None = None,
) -> LoadedModel:
    """Load a causal LM of one of the known families.

    Args:
        name_or_path: `smollm2` for the default model, a folder with safetensors, a .gguf file, or a hub id.
        device: `auto` takes CUDA when there is one.
        dtype: `auto` takes bfloat16 on CUDA (float16 before Ampere) and float32 on a CPU.
        quantization: bitsandbytes 8- or 4-bit weights; `auto` keeps those of a GGUF file as they are stored where it
            can (on a CPU in float32), and unpacks them elsewhere, as `none` always does.
        on_progress: called with a stage to show and its fraction done, or None where that is unknown.

    Raises:
        UnsafeModel: the checkpoint could run code.
        ModelDownloadError: the default model is not here and cannot be fetched.
        ModelError: anything else that keeps the model from being used.
    """
    wish = _Wish(choose_device(device), dtype, quantization, on_progress or silent)
    path = _path_of(name_or_path)
    if name_or_path == DEFAULT_MODEL:
        folder = embedded.ensure_embedded(wish.report)
        return _from_folder(folder, embedded.NAME, wish, _embedded_notice(wish.device))
    if os.path.isfile(path):
        return _from_file(path, wish)
    if os.path.isdir(path):
        return _from_folder(path, path.resolve().name, wish)
    if hub.is_hub_id(name_or_path):
        return _from_folder(hub.fetch(name_or_path, wish.report), name_or_path, wish)
    raise ModelError(
        "There is no such model",
        where=name_or_path,
        fix=f"Name {DEFAULT_MODEL}, a folder, a .gguf file, or a hub id of the form owner/model.",
    )


def require_local(name: str) -> None:
    """Refuse a model that would have to be fetched.

    A file may name the model that it was made with, but only the user sends for one. A folder that lies here may be
    read whoever named it: no code of it runs.

    Raises:
        ModelError: it is not on this machine.
    """
    if name == DEFAULT_MODEL:
        if embedded.cached_embedded() is None:
            raise ModelError("The default model is not on this machine", where=name, fix="Run `ondevice fetch` once.")
        return
    is_share = name.replace("\\", "/").startswith("//")  # of another machine, where a system opens those as paths
    path = _path_of(name)
    is_path = not is_share and (os.path.isfile(path) or os.path.isdir(path))
    if not is_path and not (hub.is_hub_id(name) and hub.cached(name) is not None):
        raise ModelError(
            "The saved pot names a model that is not on this machine, and no file decides what is fetched",
            where=name,
            fix="If you trust that name, give it yourself with {engine.model} (or {spec.model}).",
        )


def _path_of(name: str) -> Path:
    """The path that a name may be. Here and where it is looked for `os.path` takes any text, and `Path` may raise."""
    return Path(os.path.expanduser(name))


def _from_folder(folder: Path, name: str, wish: _Wish, notice: str = "") -> LoadedModel:
    checkpoint = inspect(folder)
    dtype = choose_dtype(wish.dtype, wish.device, checkpoint.config["model_type"])
    chosen = "none" if wish.quantization == "auto" else wish.quantization
    quantization = checkpoint.stored_quantization or chosen
    require_memory(checkpoint.weight_bytes(dtype.itemsize, quantization), wish.device, quantization)
    wish.report(f"Loading {name}", None)
    model = pretrained.load_weights(checkpoint, wish.device, dtype, quantization)
    tokenizer = pretrained.load_tokenizer(folder)
    return _finished(model, tokenizer, name, wish.device, dtype, quantization, checkpoint.fingerprint(), notice)


def _from_file(path: Path, wish: _Wish) -> LoadedModel:
    if path.suffix in PICKLE_SUFFIXES:
        raise pickle_refused(path)
    if path.suffix != ".gguf":
        raise ModelError("A single file can only be a GGUF model", where=str(path), fix="Name the folder it lies in.")
    if wish.quantization not in ("auto", "none"):
        raise ModelError(
            "A GGUF model cannot be quantised again",
            where=str(path),
            fix="Leave {engine.quantization} out, or take the model's safetensors version.",
        )
    summary = inspect_gguf(path)
    dtype = choose_dtype(wish.dtype, wish.device, summary.architecture)
    is_plain = wish.device.type == "cpu" and dtype == torch.float32
    if wish.quantization == "auto" and is_plain and summary.is_packable:
        return _from_packed(path, wish)
    require_memory(summary.num_parameters * dtype.itemsize, wish.device, "none")
    wish.report(f"Loading {path.name} (takes a while: it is unpacked at every start)", None)
    model, tokenizer = load_gguf(path, summary, dtype)
    return _finished(model.to(wish.device), tokenizer, path.name, wish.device, dtype, "none", sample_sha256(path))


def _from_packed(path: Path, wish: _Wish) -> LoadedModel:
    require_memory(gguf_packed.packed_file_bytes(path), wish.device, "stored")
    stage = f"Loading {path.name}"
    model, tokenizer = gguf_packed.load_packed(path, lambda fraction: wish.report(stage, fraction))
    return _finished(model, tokenizer, path.name, wish.device, torch.float32, "stored", sample_sha256(path))


def _finished(
    model: Any,
    hf_tokenizer: Any,
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    quantization: WeightForm,
    identity: str,
    notice: str = "",
) -> LoadedModel:
    model.eval().requires_grad_(False)
    ends = model.generation_config.eos_token_id
    return LoadedModel(
        model=model,
        tokenizer=Tokenizer(hf_tokenizer, eos_ids=ends if isinstance(ends, list) else [] if ends is None else [ends]),
        name=name,
        device=device,
        dtype=dtype,
        quantization=quantization,
        fingerprint=hashlib.sha256(f"{identity} {dtype} {quantization}".encode()).hexdigest(),
        max_positions=model.config.max_position_embeddings,
        notice=notice,
    )


def _embedded_notice(device: torch.device) -> str:
    better = recommendation_for(device)
    notice = f"{embedded.NAME} shows that everything works, but is too small to answer hard questions."
    if better.model == DEFAULT_MODEL:
        return notice
    return f"{notice} For this machine try {better.model}: `{better.command}`."
