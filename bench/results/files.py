"""Reading of result files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ondevice_bench.results.result import SCHEMA, Result, ResultError, Row


def parse_result(data: dict[str, Any]) -> Result:
    """The inverse of `Result.to_dict`.

    Raises:
        ResultError: the document is not of this form.
    """
    fields = dict(data)
    try:
        if fields.pop("schema") != SCHEMA:
            raise ResultError(f"The results are of schema {data['schema']}, not {SCHEMA}", fix="Measure again.")
        rows = tuple(Row(**row) for row in fields.pop("rows"))
        return Result(**fields, rows=rows)
    except (KeyError, TypeError) as error:
        raise ResultError(f"This is not a document of results: {error}", fix="Measure again.") from error


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
        return parse_result(data)
    except ResultError as error:
        raise ResultError(error.what, where=str(path), fix=error.fix) from error
