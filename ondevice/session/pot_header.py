"""The header of a saved pot: what was read, with which model and settings. Nothing in it is believed unchecked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ondevice.config import EngineConfig
from ondevice.documents.types import Document
from ondevice.errors import ConfigError, DamagedPot, PotMismatch
from ondevice.events import PageNote
from ondevice.pot.saving import read_header
from ondevice.schema import SchemaError, parse

_NAMES = {"model": "another model", "tokenizer": "another tokenizer", "dtype": "another data type"}


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens that were read and left out, and distillations, as in `Session`."""

    num_read: int
    num_skipped: int
    num_cycles: int

    def __post_init__(self) -> None:
        if min(self.num_read, self.num_skipped, self.num_cycles) < 0 or self.num_cycles > self.num_read:
            raise DamagedPot("its counts cannot be")


@dataclass(frozen=True, slots=True)
class PotHeader:
    """The header.

    Attributes:
        format: of the file.
        model, tokenizer, dtype: fingerprints of what it was read with.
        method: the settings that what was read depends on; compared, and never used.
        config: the settings it was read with.
        document: what was read, without its text.
        notes: on pages without text.
        counts: of the reading.
        capacity, capacities: slots of the pot, as in `PotShape`.
        sha256: checksum of each tensor, by name.
        saved: when, ISO 8601.
        spans: document tokens still to be read, as in `Context`; none of a document that was read to its end.
    """

    format: int
    model: str
    tokenizer: str
    dtype: str
    method: dict[str, Any]
    config: EngineConfig
    document: Document
    notes: tuple[PageNote, ...]
    counts: Counts
    capacity: int
    sha256: dict[str, str]
    capacities: tuple[int, ...] | None = None
    saved: str = ""
    spans: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        num_pages, size_bytes = self.document.num_pages, self.document.size_bytes
        if (num_pages is not None and num_pages < 1) or (size_bytes is not None and size_bytes < 0):
            raise DamagedPot("its document is smaller than nothing")

    @classmethod
    def read(cls, path: Path) -> PotHeader:
        """The header of a file.

        Raises:
            PotError: there is no such file, it is not a saved pot, or it is damaged.
            PotMismatch: another version has written it.
        """
        header = read_header(path)
        try:
            return parse(cls, header, "the header")
        except DamagedPot as error:
            error.where = str(path)
            raise
        except (SchemaError, ConfigError) as error:
            raise DamagedPot(str(error).removesuffix("."), where=str(path)) from error

    def check_match(self, path: Path, expected: Mapping[str, Any]) -> None:
        """Refuse a pot that was made by something else.

        Args:
            expected: `method` holds the settings of the pot, the other entries are fingerprints.

        Raises:
            PotMismatch: says what differs.
        """
        reasons = [name for key, name in _NAMES.items() if getattr(self, key) != expected[key]]
        reasons += [
            f"{option}={_show(self.method.get(option))} instead of {_show(value)}"
            for option, value in json.loads(json.dumps(expected["method"])).items()  # tuples have become lists
            if self.method.get(option) != value
        ]
        if reasons:
            raise PotMismatch(
                f"The pot was saved with {', '.join(reasons)}",
                where=str(path),
                fix="Use the same model and settings, or read the document again.",
            )


def _show(value: Any) -> str:
    return f"{value!r:.100}"
