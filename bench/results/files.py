"""Reading of result files."""

from __future__ import annotations

import json
from pathlib import Path

from ondevice.result import Result, ResultError


def read_result(path: Path) -> Result:
    """The result in a file.

    Raises:
        ResultError: it cannot be read, or is of another form.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("it is not an object")
    except (OSError, ValueError) as error:
        raise ResultError(f"The results cannot be read: {error}", where=str(path), fix="Measure again.") from error
    try:
        return Result.from_dict(data)
    except ResultError as error:
        raise ResultError(error.what, where=str(path), fix=error.fix) from error
