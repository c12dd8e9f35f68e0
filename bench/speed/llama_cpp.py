"""llama.cpp as a contender: it reads the same GGUF file, in a process of its own, by whichever package brings it.

A package built where it runs is stronger than one built for every machine: `--llama-cpp-python` names its environment.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ondevice.errors import ConfigError, ModelError
from ondevice.extras import install
from ondevice_bench.speed.other_interpreter import by_program

NAME = "llama.cpp"
PYTHON = Path(sys.executable)
_WORK = Path(__file__).with_name("llama_cpp_work.py")
_PACKAGES = ("llama-cpp-python", "xllamacpp")
_SHIFTING = "xllamacpp"  # the one whose cache drops the oldest tokens by itself
_CACHE_SIZE = re.compile(r"KV buffer size = +([\d.]+) MiB")


@dataclass(frozen=True)
class Variant:
    """One package of llama.cpp with one setting of flash attention.

    Attributes:
        python: the interpreter of its environment.
        package: as pip names it; "" where none is installed.
        flash_attention: on or off.
        shifts: let it drop the oldest tokens once the cache is full (its context shift).
    """

    python: Path
    package: str
    flash_attention: bool = True
    shifts: bool = False

    @property
    def label(self) -> str:
        """The name of the contender."""
        if not self.package:
            return NAME
        manner = "context shift" if self.shifts else f"{'' if self.flash_attention else 'no '}flash attention"
        return f"{NAME} of {self.package}, {manner}"

    def work(
        self,
        gguf: Path,
        ids: Sequence[int],
        question_ids: Sequence[Sequence[int]],
        new_tokens: int,
        num_threads: int,
        *,
        warm_up: int = 0,
        num_slots: int | None = None,
    ) -> dict[str, Any]:
        """Read a text, then write exactly `new_tokens` greedy tokens after it and each question.

        Args:
            ids: tokens of the text.
            warm_up: tokens of it that are read before the clock starts.
            num_slots: tokens that the cache holds; default: all.

        Returns:
            `load_seconds`, `reading_seconds`, `answers` as of `peer_work.Answer`, `peak_bytes`, and `cache_bytes` as
            its log says, None where it does not.

        Raises:
            ConfigError: no package is installed, or there is no such file.
            ModelError: it cannot do this.
        """
        if not self.package:
            raise ConfigError(f"{NAME} needs one of the packages {', '.join(_PACKAGES)}", fix=install(_PACKAGES[0]))
        if not gguf.is_file():
            raise ConfigError("There is no such file", where=str(gguf), fix="Name a .gguf file.")
        task = {
            "package": self.package,
            "flash_attention": self.flash_attention,
            "shifts": self.shifts,
            "gguf": str(gguf),
            "ids": [*ids],
            "question_ids": [[*question] for question in question_ids],
            "new_tokens": new_tokens,
            "num_threads": num_threads,
            "warm_up": warm_up,
            "num_slots": num_slots or len(ids) + max(map(len, question_ids)) + new_tokens + 64,
        }
        done, log = by_program(NAME, self.python, _WORK, task)
        if "error" in done:
            raise ModelError(f"{NAME} says: {done['error']}")
        sizes = [float(size) for size in _CACHE_SIZE.findall(log)]  # one a device
        return done | {"cache_bytes": round(sum(sizes) * 2**20) or None}


def builds(python: Path = PYTHON) -> list[dict[str, Any]]:
    """The packages that an environment has: name, version, what it was compiled for, its batch and type of cache.

    Raises:
        ConfigError: there is no such interpreter.
        ModelError: it cannot run our program.
    """
    if not python.is_file():
        raise ConfigError("There is no such Python", where=str(python), fix="Name the python of an environment.")
    found: list[dict[str, Any]] = by_program(NAME, python, _WORK, {})[0]["builds"]
    return found


def variants(python: Path, found: Sequence[dict[str, Any]]) -> list[Variant]:
    """The contenders of the `builds` of an environment; of no builds, one that says what it needs."""
    packages = [one["package"] for one in found]
    with_flash = [Variant(python, package, flash) for package in packages for flash in (True, False)]
    shifting = [Variant(python, package, shifts=True) for package in packages if package == _SHIFTING]
    return [*with_flash, *shifting] or [Variant(python, "")]
