"""From a model's name to a model in memory: `load_model` and its result.

Nothing that could run code is opened: safetensors and GGUF only, no remote code, ever.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ondevice.config import DEFAULT_MODEL, DeviceName, DtypeName, Quantization
from ondevice.errors import ModelError
from ondevice.machine.process import trim_heap
from ondevice.model.families import family_name
from ondevice.model.loading import catalogue, hub, outline, pretrained, stored
from ondevice.model.loading.catalogue import SMOLLM2, CatalogueModel, HubRepository
from ondevice.model.loading.checkpoint import PICKLE_SUFFIXES, inspect, pickle_refused
from ondevice.model.loading.checksums import sample_sha256
from ondevice.model.loading.form import Form, form_of, form_of_file, form_of_row
from ondevice.model.loading.gguf_model import inspect_gguf, load_gguf, outline_gguf
from ondevice.model.loading.gguf_packed import Int4Store
from ondevice.model.loading.gguf_weights import DenseStore
from ondevice.model.loading.placement import (
    WeightForm,
    choose_device,
    choose_dtype,
    recommendations_for,
    require_memory,
)
from ondevice.model.loading.progress import Progress, silent
from ondevice.model.tokenizer import Tokenizer

MODEL_VARIABLE = "ONDEVICE_MODEL"  # what `auto` takes, for those who have decided once and for all


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to use.

    Attributes:
        model: a causal LM of transformers, or its skeleton, in eval mode, without gradients.
        tokenizer: its tokenizer.
        name: the hub id, or the name of its folder or file.
        device: where its weights lie.
        dtype: of the weights that are not quantised, and of the activations.
        quantization: what the weights are in memory.
        fingerprint: sha256, hexadecimal; equal for equal configuration, weights, type and quantisation.
        max_positions: positions that the model was trained for.
        source: what loads it again: a name of the catalogue, a hub id or a path.
        notice: a sentence for the user, or "".
        weight_bytes: memory of its weights, as it was reckoned before they were loaded.
    """

    model: Any
    tokenizer: Tokenizer
    name: str
    device: torch.device
    dtype: torch.dtype
    quantization: WeightForm
    fingerprint: str
    max_positions: int
    source: str = ""
    notice: str = ""
    weight_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Wish:
    """A request for a model: the arguments of `load_model`, the device chosen; or for its outline alone."""

    device: torch.device
    dtype: DtypeName
    quantization: Quantization
    report: Progress
    is_outline: bool = False


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
        name_or_path: `auto` for the best that this machine carries, a name of the catalogue, a folder with safetensors,
            a .gguf file, or a hub id.
        device: `auto` takes CUDA when there is one.
        dtype: `auto` takes bfloat16 on CUDA (float16 before Ampere) and float32 on a CPU.
        quantization: weights in 8 or 4 bits: on a CPU in float32, and in 4 on a GPU in bfloat16, by kernels of ours and
            of torch; elsewhere by bitsandbytes. `auto` takes 8 on that CPU where float32 would take a gigabyte or more,
            keeps the weights of a GGUF file as they are stored where it can (there, and of those in 4 bits on that
            GPU), and unpacks those elsewhere, as `none` always does.
        on_progress: called with a stage to show and its fraction done, or None if that is unknown.

    Raises:
        UnsafeModel: the checkpoint could run code.
        ModelDownloadError: a model of the catalogue is not here and cannot be fetched.
        ModelError: anything else that keeps the model from being used.
    """
    wish = _Wish(choose_device(device), dtype, quantization, on_progress or silent)
    name = default_model() if name_or_path == DEFAULT_MODEL else name_or_path
    loaded = _load_best(wish) if name == DEFAULT_MODEL else _load(name, wish)
    trim_heap()  # what a tokenizer of 150,000 words was read with: 70 MB
    return loaded


def default_model() -> str:
    """The model that `auto` takes: the one that the environment names, else `auto` itself."""
    return os.environ.get(MODEL_VARIABLE, "").strip() or DEFAULT_MODEL


def outline_model(
    name: str, device: torch.device, *, dtype: DtypeName = "auto", quantization: Quantization = "auto"
) -> LoadedModel:
    """A model without its weights, which are on torch's meta device; `weight_bytes` says what they would take.

    Nothing is loaded or fetched. A model of the catalogue that is not here has the sizes of its row, and a tokenizer
    that knows no word.

    Args:
        name: as for `load_model`, but `auto`.
        device: where it would be; one that this machine lacks would compute in bfloat16.
        dtype, quantization: as for `load_model`.

    Raises:
        UnsafeModel, ModelError: as `load_model`; or it is neither here nor in the catalogue.
    """
    if dtype == "auto" and device.type == "cuda" and not torch.cuda.is_available():
        dtype = "bfloat16"
    if catalogue.find(name) is None:
        require_local(name)
    return _load(name, _Wish(device, dtype, quantization, silent, is_outline=True))


def _load(name: str, wish: _Wish) -> LoadedModel:
    path, row = _path_of(name), catalogue.find(name)
    if row is not None:
        loaded = _from_catalogue(row, wish)
    elif os.path.isfile(path):
        loaded = _from_file(path, wish)
    elif os.path.isdir(path):
        loaded = _from_folder(path, path.resolve().name, wish)
    elif hub.is_hub_id(name):
        loaded = _from_folder(hub.fetch(HubRepository(name), wish.report), name, wish)
    else:
        raise ModelError(
            "There is no such model",
            where=name,
            fix="Name one of `ondevice models list`, a folder, a .gguf file, or a hub id of the form owner/model.",
        )
    return replace(loaded, source=name)


def _from_catalogue(row: CatalogueModel, wish: _Wish) -> LoadedModel:
    path = stored.stored(row) if wish.is_outline else stored.ensure(row, wish.report)
    if path is None:
        return _from_row(row, wish)
    if row.file:
        return _from_file(path, wish, row.title)
    if row is SMOLLM2:
        notice = f"{row.title} shows that everything works, but is too small to answer hard questions."
        return _from_folder(path, row.title, wish, notice)
    return _from_folder(path, row.repository.repo, wish)


def _load_best(wish: _Wish) -> LoadedModel:
    """The best model of the catalogue that is here, else the best that can be had; a notice says why not a better one.

    Raises:
        ModelError: not even the smallest can be had.
    """
    suited, failed = list(recommendations_for(wish.device)), list[ModelError]()
    better = suited[0].model
    for one in stored.choices(suited):
        quantization = wish.quantization if one.quantization == "none" else one.quantization
        try:
            loaded = _load(one.model.name, replace(wish, quantization=quantization))
        except ModelError as error:
            better = better if failed else one.model
            failed.append(error)
            continue
        if one.model is better:
            return loaded
        why = failed[0].what if failed else f"`ondevice models fetch {better.name}` brings it"
        notice = f"{loaded.name} is used, though {better.title} would suit this machine better: {why}."
        return replace(loaded, notice=" ".join(text for text in (loaded.notice, notice) if text))
    raise failed[-1]


def require_local(name: str) -> None:
    """Refuse a model that would have to be fetched.

    A file may name the model that it was made with, but only the user sends for one. A folder that lies here may be
    read, no matter who named it: no code of it runs.

    Raises:
        ModelError: it is not on this machine.
    """
    row = catalogue.find(name)
    if row is not None:
        if stored.stored(row) is None:
            stored.require_readable(row)
            raise ModelError(
                f"{row.title} is not on this machine", where=name, fix=f"Run `ondevice models fetch {row.name}` once."
            )
        return
    is_share = name.replace("\\", "/").startswith("//")  # of another machine, where a system opens those as paths
    path = _path_of(name)
    is_path = not is_share and (os.path.isfile(path) or os.path.isdir(path))
    if not is_path and not (hub.is_hub_id(name) and hub.cached(HubRepository(name)) is not None):
        raise ModelError(
            "The saved pot names a model that is not on this machine, and no file decides what is fetched",
            where=name,
            fix="If you trust that name, give it yourself with {engine.model} (or {spec.model}).",
        )


def _path_of(name: str) -> Path:
    """The path that a name may be. Here and where it is looked for `os.path` takes any text, and `Path` may raise."""
    return Path(os.path.expanduser(name))


def _from_row(row: CatalogueModel, wish: _Wish) -> LoadedModel:
    """The outline of a model that is not here."""
    dtype = choose_dtype(wish.dtype, wish.device, row.family)
    model, checkpoint = outline.row_outline(row, dtype)
    form = form_of_row(row, checkpoint, dtype, wish.device, wish.quantization)
    return _finished(model, outline.no_tokenizer(), row.title, outline.META, dtype, form, row.name)


def _from_folder(folder: Path, name: str, wish: _Wish, notice: str = "") -> LoadedModel:
    checkpoint = inspect(folder)
    dtype = choose_dtype(wish.dtype, wish.device, family_name(checkpoint.config) or "")
    form = form_of(checkpoint, dtype, wish.device, wish.quantization)
    device, tokenizer = wish.device, pretrained.load_tokenizer(folder)
    if wish.is_outline:
        model, device = outline.folder_outline(checkpoint, dtype), outline.META
    elif form.bits is not None or form.is_int4:
        require_memory(form.num_bytes, device, form.weights)
        report = partial(wish.report, f"Loading {name}, weights in {form.bits or 4} bits")
        model = pretrained.load_rounded_weights(checkpoint, device, form.bits, report)
    else:
        require_memory(form.num_bytes, device, form.weights)
        wish.report(f"Loading {name}", None)
        model = pretrained.load_weights(checkpoint, device, dtype, form.weights)
    return _finished(model, tokenizer, name, device, dtype, form, checkpoint.fingerprint(), notice)


def _from_file(path: Path, wish: _Wish, name: str = "") -> LoadedModel:
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
    dtype = choose_dtype(wish.dtype, wish.device, summary.family)
    form = form_of_file(summary, dtype, wish.device, wish.quantization)
    name, device = name or path.name, wish.device
    if wish.is_outline:
        model, tokenizer = outline_gguf(path, summary, dtype)
        return _finished(model, tokenizer, name, outline.META, dtype, form, sample_sha256(path))
    require_memory(form.num_bytes, device, form.weights)
    dense = None if form.weights == "stored" else DenseStore(device, dtype)
    model, tokenizer = load_gguf(path, summary, wish.report, Int4Store(device) if form.is_int4 else dense)
    return _finished(model, tokenizer, name, device, dtype, form, sample_sha256(path))


def _finished(
    model: Any,
    hf_tokenizer: Any,
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    form: Form,
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
        quantization=form.weights,
        fingerprint=hashlib.sha256(f"{identity} {dtype} {form.weights}{' int4' * form.is_int4}".encode()).hexdigest(),
        max_positions=model.config.max_position_embeddings,
        notice=notice,
        weight_bytes=form.num_bytes,
    )
