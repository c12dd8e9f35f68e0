"""Reads a GGUF file: its metadata and where its tensors lie. Knows nothing about what a model is.

The `gguf` package walks the file through a memory map and takes 8 seconds for a vocabulary of 49,000;
this takes a tenth of a second. Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

# GGUF value types by number: struct formats of the scalars (7 is bool); 8 is a string, 9 an array.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One entry of the tensor table.

    Attributes:
        name: llama.cpp's name, for example `blk.0.attn_q.weight`.
        shape: outermost dimension first, as torch has it.
        kind: ggml's number of the quantisation type.
        offset: bytes from the start of the file.
    """

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def num_bytes(self) -> int:
        """Length in the file.

        Raises:
            ValueError: the quantisation type is not known.
        """
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        block_values, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(self.kind)]
        return prod(self.shape) // block_values * block_bytes

    def of_first(self, index: int) -> GgufTensor:
        """The part with this number in the first dimension."""
        return GgufTensor(self.name, self.shape[1:], self.kind, self.offset + index * self.num_bytes // self.shape[0])


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The header of a GGUF file."""

    metadata: dict[str, Any]
    tensors: tuple[GgufTensor, ...]


class _Cursor:
    """Reads little-endian values one after the other."""

    def __init__(self, data: mmap) -> None:
        self.data = data
        self.at = 0

    def take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{layout}", self.data, self.at)
        self.at += struct.calcsize(f"<{layout}")
        return values

    def string(self) -> str:
        (length,) = self.take("Q")
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            element, count = self.take("IQ")
            if element in _SCALARS:
                return list(self.take(f"{count}{_SCALARS[element]}"))
            return [self.value(element) for _ in range(count)]
        return self.take(_SCALARS[kind])[0]


def read_header(path: Path) -> GgufFile:
    """The metadata and the tensor table of a GGUF file, version 2 or 3.

    Raises:
        ValueError: it is not such a file, or ends too early.
        OSError: it cannot be read.
    """
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        return _parsed(data)


def _parsed(data: mmap) -> GgufFile:
    cursor = _Cursor(data)
    try:
        magic, version, num_tensors, num_fields = cursor.take("4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError("not a GGUF file of version 2 or 3")
        metadata = {}
        for _ in range(num_fields):
            key, (kind,) = cursor.string(), cursor.take("I")
            metadata[key] = cursor.value(kind)
        table = [_table_entry(cursor) for _ in range(num_tensors)]
    except (struct.error, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"the GGUF header is damaged at byte {cursor.at}") from error
    alignment = metadata.get("general.alignment", 32)
    start = -(-cursor.at // alignment) * alignment
    tensors = tuple(GgufTensor(name, shape, kind, start + offset) for name, shape, kind, offset in table)
    return GgufFile(metadata, tensors)


def _table_entry(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name, (num_dims,) = cursor.string(), cursor.take("I")
    dims = cursor.take(f"{num_dims}Q")  # fastest-moving dimension first
    kind, offset = cursor.take("IQ")
    return name, tuple(reversed(dims)), kind, offset
