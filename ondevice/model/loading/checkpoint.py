"""Looks at a checkpoint folder before anything of it is loaded: is it safe, whole, and of a known family?

Reads config.json and the headers of the safetensors files; no weights, no code.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from ondevice.errors import ModelError, UnsafeModel
from ondevice.model.families import FAMILIES, family_name
from ondevice.model.loading.checksums import sample_sha256
from ondevice.model.loading.placement import WeightForm

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
_INDEX = "model.safetensors.index.json"
_FETCH_AGAIN = "Fetch the model again: the download was probably cut short."
# Names as files hold them, of checkpoints that see pictures, too, and those of the text model alone, by and by.
TEXT_NAMES = {
    r"^language_model\.": "",
    r"^model\.language_model\.": "model.",
    r"\.self_attn\.gate_proj\.": ".self_attn.g_proj.",  # of LFM3
    # Of Granite.
    r"\.block_sparse_moe\.input_linear\.weight$": ".block_sparse_moe.experts.gate_up_proj",
    r"\.block_sparse_moe\.output_linear\.weight$": ".block_sparse_moe.experts.down_proj",
    r"\.block_sparse_moe\.router\.layer\.": ".block_sparse_moe.router.",
}
MXFP4 = "mxfp4"  # as configurations name it
MXFP4_PARTS = ("_blocks", "_scales")  # what such a weight is stored as: numbers of four bits, and exponents
# Bytes for a weight that bitsandbytes quantises; 4-bit adds one float32 scale for 64 weights.
_QUANTIZED_BYTES = {"8bit": 1.0, "4bit": 0.5 + 4 / 64}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder that may be loaded.

    Attributes:
        folder: where it lies.
        config: the contents of config.json.
        weights: its safetensors files, sorted.
        shapes: shape of every tensor of the text model in them, by its `text_name`.
    """

    folder: Path
    config: dict[str, Any]
    weights: tuple[Path, ...]
    shapes: dict[str, tuple[int, ...]]

    @property
    def stored_quantization(self) -> WeightForm | None:
        """`8bit` or `4bit` when the checkpoint was saved quantised by bitsandbytes."""
        stored = self.config.get("quantization_config")
        if not stored or self.is_mxfp4:
            return None
        return "4bit" if stored.get("load_in_4bit") else "8bit"

    @property
    def is_mxfp4(self) -> bool:
        """True if its experts are stored in MXFP4; `shapes` has them as they are once unpacked."""
        return (self.config.get("quantization_config") or {}).get("quant_method") == MXFP4

    def fingerprint(self) -> str:
        """Hash of the configuration and of the weights' identity (name, size and samples of each file)."""
        volatile = ("_name_or_path", "transformers_version", "auto_map")
        config = {key: value for key, value in self.config.items() if key not in volatile}
        identity = [[path.name, sample_sha256(path)] for path in self.weights]
        return hashlib.sha256(json.dumps([config, identity], sort_keys=True).encode()).hexdigest()

    def weight_bytes(self, element_bytes: int, quantization: WeightForm) -> int:
        """Memory that the weights take with `element_bytes` for each that is not quantised."""
        if self.stored_quantization:
            return sum(path.stat().st_size for path in self.weights)
        total = 0.0
        for name, shape in self.shapes.items():
            is_kept = not is_product(name, shape) or "lm_head" in name
            per_weight = float(element_bytes) if is_kept else _QUANTIZED_BYTES.get(quantization, element_bytes)
            total += prod(shape) * per_weight
        return int(total)


def inspect(folder: Path) -> Checkpoint:
    """Check a folder and describe it.

    Raises:
        UnsafeModel: loading it would run code of its author.
        ModelError: something is missing or damaged, or the family is not known.
    """
    config = read_config(folder)
    weights = _weight_files(folder)
    shapes = {text_name(name): shape for path in weights for name, shape in _tensor_shapes(path) if text_name(name)}
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise ModelError(
            "The model has no tokenizer",
            where=str(folder),
            fix="Put its tokenizer.json and tokenizer_config.json there.",
        )
    found = Checkpoint(folder, config, weights, shapes)
    return replace(found, shapes=_unpacked(shapes)) if found.is_mxfp4 else found


def is_product(name: str, shape: tuple[int, ...]) -> bool:
    """True for the weight of a linear module, which can be rounded; experts and their routers are none."""
    return len(shape) == 2 and not re.search(r"embed_tokens|\.experts\.|\.router\.", name)


def _unpacked(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Shapes of weights that are stored as `MXFP4_PARTS`: (experts, rows, groups, 16) are (experts, columns, rows)."""
    blocks, scales = MXFP4_PARTS
    found = {name: shape for name, shape in shapes.items() if not name.endswith(MXFP4_PARTS)}
    for name, shape in shapes.items():
        if name.endswith(blocks) and len(shape) == 4 and f"{name.removesuffix(blocks)}{scales}" in shapes:
            found[name.removesuffix(blocks)] = (shape[0], 2 * shape[2] * shape[3], shape[1])
    return found


def text_name(name: str) -> str:
    """The name of a stored tensor in the text model alone; "" where it belongs to what sees, hears or drafts."""
    if re.match(
        r"mtp\.|(model\.)?(visual|(vision|audio)_tower|embed_(vision|audio)|vision_embedder|multi_modal_projector)\.",
        name,
    ):
        return ""
    for stored, own in TEXT_NAMES.items():
        name = re.sub(stored, own, name)
    return name


def pickle_refused(path: Path) -> UnsafeModel:
    """The error for a weight file that can run code when it is opened."""
    return UnsafeModel(
        "Weights in pickle form can run code when they are opened, so they are not loaded",
        where=str(path),
        fix="Convert them on a machine where you trust them: load the model with transformers and call "
        "save_pretrained(folder, safe_serialization=True); or take a copy published as safetensors.",
    )


def read_config(folder: Path) -> dict[str, Any]:
    """The contents of config.json, when the model is one that can be used.

    Raises:
        UnsafeModel: it needs code of its author.
        ModelError: it is missing or damaged, or the family or the stored quantisation is not known.
    """
    path = folder / "config.json"
    if not path.is_file():
        if (folder / "adapter_config.json").is_file():
            raise ModelError(
                "The folder holds an adapter, not a model", where=str(folder), fix="Merge it into its base model first."
            )
        raise ModelError(
            "The folder holds no model: config.json is missing", where=str(folder), fix="Name a checkpoint's folder."
        )
    try:
        config = json.loads(path.read_bytes())
        if not isinstance(config, dict):
            raise ValueError("not an object")
    except (ValueError, OSError) as error:
        raise ModelError("The model's configuration cannot be read", where=str(path), fix=_FETCH_AGAIN) from error
    _check_usable(folder, config)
    return config


def _check_usable(folder: Path, config: dict[str, Any]) -> None:
    family = family_name(config)
    if family not in FAMILIES:
        if "auto_map" in config:
            raise UnsafeModel(
                "The model comes with code of its own, which is never run",
                where=str(folder),
                fix=f"Choose a model of one of these families: {', '.join(FAMILIES)}.",
            )
        raise ModelError(
            f"Models of type {family!r} cannot be used",
            where=str(folder),
            fix=f"Choose one of these families: {', '.join(FAMILIES)}.",
        )
    method = (config.get("quantization_config") or {}).get("quant_method", "bitsandbytes")
    if method not in ("bitsandbytes", MXFP4):
        raise ModelError(
            f"The model is stored quantised by {method!r}, which cannot be read",
            where=str(folder),
            fix="Take its unquantised version and add {engine.quantization} 8bit or 4bit.",
        )


def _weight_files(folder: Path) -> tuple[Path, ...]:
    index = folder / _INDEX
    if index.is_file():
        names = _names_in_index(index)
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise ModelError(
                f"{len(missing)} of {len(names)} weight files are missing, the first is {missing[0]}",
                where=str(folder),
                fix=_FETCH_AGAIN,
            )
        return tuple(folder / name for name in names)
    if (folder / "model.safetensors").is_file():
        return (folder / "model.safetensors",)
    for path in sorted(folder.iterdir()):
        if path.suffix in PICKLE_SUFFIXES:
            raise pickle_refused(path)
    raise ModelError(
        "The folder holds no weights in safetensors form",
        where=str(folder),
        fix="Put model.safetensors there; for a GGUF model name the .gguf file itself.",
    )


def _names_in_index(index: Path) -> list[str]:
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError, OSError) as error:
        raise ModelError("The list of weight files cannot be read", where=str(index), fix=_FETCH_AGAIN) from error
    for name in names:
        if Path(name).suffix in PICKLE_SUFFIXES:
            raise pickle_refused(index.parent / name)
        if Path(name).name != name or Path(name).suffix != ".safetensors":
            raise UnsafeModel(
                f"The list of weight files names {name!r}, which is not a safetensors file beside it",
                where=str(index),
                fix="Take the model from a source that you trust.",
            )
    return names


def _tensor_shapes(path: Path) -> Iterable[tuple[str, tuple[int, ...]]]:
    from safetensors import SafetensorError, safe_open

    try:
        # Opening compares the header with the file's length; a Git LFS pointer has no header at all.
        with safe_open(path, framework="numpy") as file:
            return [(name, tuple(file.get_slice(name).get_shape())) for name in file.keys()]  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(
            f"A weight file is damaged or incomplete: {error}", where=str(path), fix=_FETCH_AGAIN
        ) from error
