"""Products of a model file, kept in the cache folder: header, tokenizer, and packed weights that later starts map.

Processes share the pages of the weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ondevice.errors import ModelError
from ondevice.kernels.packed import BY_NUMBER, PackedRows, PackedWeight
from ondevice.model.loading.cache_folder import (
    built_beside,
    cache_dir,
    held,
    intact_folder,
    remove_folders,
    require_room,
    source_of,
    writing,
)
from ondevice.model.loading.checksums import sample_sha256
from ondevice.model.loading.gguf_file import GgufFile, GgufTensor
from ondevice.model.loading.gguf_tokenizer import GgufTokenizer
from ondevice.model.loading.progress import Progress

_LAYOUT = 5  # to be raised wherever `kernels.packed` or the order of tensors changes
_FEWEST = 50_000_000  # bytes: fewer are packed in a moment
_TILES, _INDEX, _SOURCE, _NAME = "tiles", "index.json", "path", "name"
_HEADER, _CONFIG, _TOKENIZER, _RENDERED = "header.json", "config.json", "tokenizer.json", "chat.json"


@dataclass(frozen=True, slots=True)
class Kept:
    """Products of a file that `keep_tiles` kept.

    Attributes:
        weights: by the names of their modules.
        config: of transformers, where it read the file.
        tokenizer: in the format of `tokenizer.json`, with the conversations that it has `rendered`.
    """

    weights: dict[str, PackedWeight]
    config: dict[str, Any]
    tokenizer: str
    rendered: dict[str, str]


def kept_header(path: Path) -> GgufFile | None:
    """The header of a file, its lists left empty; None: it is not kept, or not whole."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        fields, tensors = json.loads((_intact(path) / _HEADER).read_bytes())
        named = (GgufTensor(**one | {"shape": tuple(one["shape"])}) for one in tensors)
        return GgufFile(fields, tuple(named))
    return None


def kept(path: Path) -> Kept | None:
    """Products that are kept of a file; None: they are not there, or not whole."""
    with suppress(OSError, ValueError, KeyError, TypeError, RuntimeError):
        folder = _intact(path)
        index: dict[str, list[list[int]]] = json.loads((folder / _INDEX).read_bytes())
        # Copied where it is written to, which nobody does; read-only memory torch would warn of.
        tiles = torch.from_numpy(np.memmap(folder / _TILES, np.uint8, "c"))
        weights = {name: PackedWeight(tuple(_rows(tiles, *part) for part in parts)) for name, parts in index.items()}
        tokenizer = (folder / _TOKENIZER).read_text(encoding="utf-8")
        config = json.loads((folder / _CONFIG).read_bytes())
        return Kept(weights, config, tokenizer, json.loads((folder / _RENDERED).read_bytes()))
    return None


def keep_tiles(
    path: Path,
    header: GgufFile,
    tokenizer: GgufTokenizer,
    config: dict[str, Any] | None,
    report: Progress,
    weights: Mapping[str, PackedWeight],
) -> None:
    """Keep what was made of a model file, the weights in this order; without room or rights it is made at each start.

    What was kept of files that are not there any more, or are others now, goes.
    """
    title, num_bytes = f"{path.name} packed", sum(weight.nbytes for weight in weights.values())
    if num_bytes < _FEWEST:
        return
    with suppress(ModelError):
        cache, name = cache_dir(), _folder_of(path)
        _drop_stale(cache, str(path.absolute()))
        report(f"Keeping {path.name} packed for the next start ({num_bytes / 1e6:,.0f} MB)", None)
        with writing(title, cache), held(cache / f"{name}.lock", "Waiting for another process", report):
            require_room(title, cache, num_bytes)
            with built_beside(cache / name, source={_SOURCE: str(path.absolute()), _NAME: name}) as folder:
                at, index = 0, dict[str, list[list[int]]]()
                with (folder / _TILES).open("wb") as file:
                    for module, weight in weights.items():
                        for part in weight.parts:
                            form, size = part.form, part.data.shape[:2]
                            entry = [at, *size, form.number, part.num_rows]
                            index.setdefault(module, []).append(entry)
                            for tensor in part.tensors:
                                file.write(memoryview(tensor.contiguous().numpy()).cast("B"))
                                at += tensor.nbytes
                fields = {key: [] if isinstance(value, list) else value for key, value in header.metadata.items()}
                made = {_INDEX: index, _HEADER: [fields, [asdict(one) for one in header.tensors]]}
                made[_CONFIG] = config or {}
                for name, content in (made | {_RENDERED: tokenizer.rendered()}).items():
                    (folder / name).write_text(json.dumps(content), encoding="utf-8")
                (folder / _TOKENIZER).write_text(tokenizer.backend_tokenizer.to_str(), encoding="utf-8")


def drop_tiles(path: Path) -> int:
    """Delete what is kept of a model file; returns the bytes that are free now."""
    return remove_folders(cache_dir() / _folder_of(path))


def _drop_stale(cache: Path, path: str) -> None:
    for folder in cache.glob("packed-*/"):
        source = source_of(folder).get(_SOURCE, "")
        if source == path or not Path(source).exists():
            remove_folders(folder)


def _intact(path: Path) -> Path:
    """The whole folder of a model file; raises OSError where there is none, or what was made of another file."""
    folder = intact_folder(_folder_of(path))
    if folder is None or source_of(folder).get(_NAME) != folder.name:
        raise FileNotFoundError
    return folder


def _folder_of(path: Path) -> str:
    return f"packed-{_LAYOUT}-{sample_sha256(path)[:16]}"


def _rows(tiles: Tensor, at: int, num_tiles: int, num_units: int, form_number: int, num_rows: int) -> PackedRows:
    form = BY_NUMBER[form_number]
    data, rest = _taken(tiles[at:], num_tiles, num_units, form.unit_bytes)
    if form.lower == "beside":
        return PackedRows(data, form, num_rows)
    lower, _ = _taken(rest, num_tiles, num_units * form.unit_groups, form.lower_bytes)
    return PackedRows(data, form, num_rows, lower)


def _taken(tiles: Tensor, *shape: int) -> tuple[Tensor, Tensor]:
    """The first of the bytes in a shape, and the rest."""
    return tiles[: prod(shape)].view(shape), tiles[prod(shape) :]
