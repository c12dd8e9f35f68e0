"""The corpus: each document's id, the hash of its bytes, and its text; in tasks that take a CPU and no model."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from ondevice.documents import Limits
from ondevice.documents.extract import read
from ondevice.documents.types import Document, Page
from ondevice.errors import OndeviceError
from ondevice.regular_file import blocks, open_regular
from ondevice_batch.places import local_file, opened, unescaped

_MAX_BYTES = Limits().file_bytes


def identify(row: Mapping[str, Any]) -> dict[str, Any]:
    """Of one `uri`, `escaped`, the `id` (sha256 of its bytes, hexadecimal) and its `bytes`; or what kept it from being
    read as `error`, and an id that is made of the URI."""
    uri, digest, num_bytes = row["uri"], hashlib.sha256(), 0
    try:
        fs, path = opened(unescaped(uri))
        is_local = isinstance(fs, LocalFileSystem)
        with open_regular(path, _MAX_BYTES) if is_local else fs.open(path, "rb") as file:
            for block in blocks(file, _MAX_BYTES, uri):
                digest.update(block)
                num_bytes += len(block)
    except Exception as error:  # of whatever file system: each has errors of its own
        unread = hashlib.sha256(b"unread " + uri.encode()).hexdigest()
        return {"id": unread, "uri": uri, "bytes": 0, "error": error_text(error, uri)}
    return {"id": digest.hexdigest(), "uri": uri, "bytes": num_bytes, "error": ""}


def one_of_each(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each id, the largest document first, so that none is still read when all others are done; `also` names
    what else has the same bytes, as JSON."""
    by_id: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["uri"]):
        by_id.setdefault(row["id"], []).append(row)
    merged = [{**same[0], "also": json.dumps([one["uri"] for one in same[1:]])} for same in by_id.values()]
    return sorted(merged, key=lambda row: -row["bytes"])


def parse(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with the `document` in it, as JSON, and `parse_seconds`; or with the `error` of the parser."""
    began, document, problem = time.perf_counter(), "", row["error"]
    if not problem:
        try:
            with local_file(unescaped(row["uri"])) as path:
                document = json.dumps(asdict(read(path)))
        except Exception as error:
            problem = error_text(error, row["uri"])
    return {**row, "document": document, "error": problem, "parse_seconds": time.perf_counter() - began}


def parsed(text: str) -> Document:
    """The document of `parse`."""
    fields = json.loads(text)
    return Document(**{**fields, "pages": tuple(Page(**page) for page in fields["pages"])})


def error_text(error: BaseException, where: str) -> str:
    """An error as the JSON that stands in a column: code, what, where, fix."""
    if isinstance(error, OndeviceError):
        told = error.to_dict()
        return json.dumps(told | {"where": told["where"] or where})
    what = (str(error).strip().splitlines() or [""])[0]
    told = {"code": "error", "what": f"{type(error).__name__}: {what}".rstrip(": "), "where": where, "fix": ""}
    return json.dumps(told)
