"""The output of a batch: one table of documents, one of answers, as Parquet and as lines of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from ondevice_batch.jobs import DOCUMENTS, rows_of
from ondevice_batch.places import Place

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
                text.write(json.dumps(_readable(row), ensure_ascii=False).encode(errors="backslashreplace") + b"\n")
        if writer is not None:
            writer.close()
    return counts


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    return {name: json.loads(value or "null") if name in _AS_JSON else value for name, value in row.items()}
