"""What a batch leaves behind: one table of documents, one of answers, as Parquet and as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from ondevice.batch.jobs import DOCUMENTS, rows_of
from ondevice.batch.places import Place
from ondevice.errors import ConfigError

_AS_JSON = ("also", "ledger", "sources", "unfounded", "error")  # columns that hold JSON


@dataclass(frozen=True, slots=True)
class Outcome:
    """Numbers of documents and answers, and of those with an error; tokens that were read, and seconds that it took."""

    documents: int
    documents_failed: int
    tokens: int
    seconds: float
    answers: int
    answers_failed: int


def gather(place: Place, answers: str | None) -> Outcome:
    """Write `documents.parquet` and, of the folder of `answers`, `answers.parquet` and `answers.jsonl`."""
    documents = _collect(place, DOCUMENTS, "documents")
    asked = _collect(place, answers, "answers") if answers else _Counts()
    return Outcome(documents.rows, documents.failed, documents.tokens, documents.seconds, asked.rows, asked.failed)


@dataclass
class _Counts:
    rows: int = 0
    failed: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def add(self, row: dict[str, Any]) -> None:
        self.rows += 1
        self.failed += row["error"] != ""
        self.tokens += row.get("tokens", 0)
        self.seconds += row["seconds"]


def _collect(place: Place, folder: str, name: str) -> _Counts:
    counts, writer = _Counts(), None
    with place.writing(f"{name}.parquet") as table, place.writing(f"{name}.jsonl") as lines, lines.open("wb") as text:
        for batch in rows_of(place, folder):
            writer = writer or pa.parquet.ParquetWriter(table, batch.schema)
            writer.write_batch(batch)
            for row in batch.to_pylist():
                counts.add(row)
                text.write(json.dumps(_readable(row), ensure_ascii=False).encode() + b"\n")
        if writer is not None:
            writer.close()
    return counts


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    return {name: json.loads(value or "null") if name in _AS_JSON else value for name, value in row.items()}


def read_questions(path: Path) -> list[dict[str, str]]:
    """Questions, one JSON object a line: `question`, and an `id` of its own, else its number.

    Raises:
        ConfigError: a line is no such object, or there is none.
    """
    questions: list[dict[str, str]] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The questions cannot be read: {error}", where=str(path), fix="Check the name.") from None
    for number, line in _numbered(lines):
        try:
            found = json.loads(line)
            question, id = found["question"], found.get("id", number)
            if not isinstance(question, str) or not question.strip() or not isinstance(id, str | int):
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ConfigError(
                "A line is no question", where=f"{path}, line {number}", fix='Write {"question": "..."} on each.'
            ) from None
        questions.append({"id": str(id), "question": question})
    if not questions:
        raise ConfigError("There is no question", where=str(path), fix='Write {"question": "..."} on each line.')
    if len({one["id"] for one in questions}) < len(questions):
        raise ConfigError("Two questions have the same id", where=str(path), fix="Give each one of its own, or none.")
    return questions


def _numbered(lines: Iterable[str]) -> Iterable[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())
