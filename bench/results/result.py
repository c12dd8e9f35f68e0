"""The one form of every measured figure: rows, a summary, and where they come from; to JSON and back.

Evaluations and benchmarks make a `Result`; the command line shows it, writes it, and makes the tables under
docs/results from the files.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ondevice.config import EngineConfig
from ondevice.errors import OndeviceError
from ondevice.files import READABLE, replacing
from ondevice.machine.facts import describe_machine, versions

SCHEMA = 1
DIRTY = "-dirty"  # ends the commit of a checkout with uncommitted changes


class ResultError(OndeviceError):
    """A file of results cannot be read or written."""

    code = "result"


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one contender in one case, over `n` measurements."""

    contender: str
    case: dict[str, Any]
    metric: str
    unit: str
    p50: float
    p10: float
    p90: float
    n: int


@dataclass(frozen=True, slots=True)
class Result:
    """A run: what was measured, by which command, on what. `complete` is False while measurements are missing."""

    command: str
    config: dict[str, Any]
    seed: int
    machine: dict[str, Any]
    versions: dict[str, str]
    commit: str
    date: str
    rows: tuple[Row, ...] = ()
    summary: dict[str, float] = field(default_factory=dict)
    complete: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The JSON document; `complete` is in it only while it is false."""
        data = {"schema": SCHEMA, **asdict(self)}
        if self.complete:
            del data["complete"]
        return data


def row(contender: str, case: dict[str, Any], metric: str, unit: str, values: Sequence[float]) -> Row:
    """The row of one or more measurements of the same thing."""
    p10, p50, p90 = (float(q) for q in np.percentile(np.asarray(values, np.float64), (10, 50, 90)))
    return Row(contender, case, metric, unit, p50, p10, p90, len(values))


def new_result(command: str, config: EngineConfig, device: torch.device) -> Result:
    """A result without rows, stamped with everything that it depends on."""
    settings = config.to_dict()
    for part in (settings, settings["spec"]):
        if Path(part["model"]).is_absolute():  # where a model lies is private, and no part of the result
            part["model"] = Path(part["model"]).name
    return Result(
        command=command,
        config=settings,
        seed=config.seed,
        machine=describe_machine(device),
        versions=versions(),
        commit=commit(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        complete=False,
    )


def write_text(path: Path, text: str) -> None:
    """Write a file so that it is either the old one or the new one, whenever we are stopped.

    Raises:
        ResultError: it cannot be written.
    """
    try:
        with replacing(path, mode=READABLE, is_synced=False) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ResultError(
            f"The file cannot be written: {error.strerror}", where=str(path), fix="Name another place."
        ) from error


def write_result(path: Path, result: Result) -> None:
    """Write a result as JSON that reads well in a diff, a line for each field and each row; whole or not at all."""
    data = result.to_dict()
    rows = ",\n".join(f"  {json.dumps(row)}" for row in data["rows"])
    fields = [f" {json.dumps(k)}: " + (f"[\n{rows}\n ]" if k == "rows" else json.dumps(v)) for k, v in data.items()]
    write_text(path, "{\n" + ",\n".join(fields) + "\n}\n")


def commit() -> str:
    """The commit of the checkout that runs, `DIRTY` after it when tracked files differ; "" outside a checkout. Where
    ONDEVICE_COMMIT is set, what it says: for a copy of the files that was carried to another machine.
    """
    if named := os.environ.get("ONDEVICE_COMMIT"):
        return named
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    try:
        return _git(root, "rev-parse", "HEAD") + (DIRTY if _git(root, "diff", "HEAD", "--name-only") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()
