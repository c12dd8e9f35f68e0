"""Description of a measurement for the command line, known without loading torch."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

INTS, FLOATS = tuple[int, ...], tuple[float, ...]  # kinds of options that are written with commas


@dataclass(frozen=True)
class Option:
    """One option of one measurement.

    Attributes:
        name: with underscores.
        kind: type of the value.
        help: one sentence.
        default: `...` where the option must be given; INTS and FLOATS have theirs as text.
        min: the smallest value of a number.
        shown: stands for the default in the help.
        flag: if it is not that of the name.
    """

    name: str
    kind: Any
    help: str
    default: Any = None
    min: int | None = None
    shown: str | None = None
    flag: str = ""


@dataclass(frozen=True)
class Entry:
    """One row of a registry.

    Attributes:
        name: of the command.
        module: holds `MEASUREMENT`, a `Measurement`; it is imported when the command runs.
        doc: what is measured.
        options: in the order of the help; every command also takes those of the pot, `--out` and `--json`.
        resumes: whether a stopped run is kept in the file of `--out`, after each item, and goes on from there.
        grid: the option whose values may be measured on machines of their own, by --address: numbers, or names of
            contenders. "": none.
        fits_text: a pot without a size of its own is as large as the text needs, as for a user; otherwise it is fixed.
    """

    name: str
    module: str
    doc: str
    options: tuple[Option, ...]
    resumes: bool = False
    grid: str = ""
    fits_text: bool = False

    def measurement(self) -> Any:
        """The `Measurement` of its module."""
        return importlib.import_module(self.module).MEASUREMENT
