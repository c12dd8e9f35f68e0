"""An index of documents by their signatures: one int8 vector for every 64 tokens, in plain files that are mapped.

Two files for each model: the vectors one behind the other, and a record of 48 bytes for each document. Adding appends;
a record is written once its vectors are there, so that after a crash what has no record is overwritten by the next
document. Nothing is held in memory between two searches, and a search reads each vector once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from ondevice.errors import LibraryError
from ondevice.kernels.best_dot import LEAST, best_dot

_RECORD = np.dtype([("id", "S32"), ("first", "<u8"), ("count", "<u8")])
_GONE = b""  # in place of the id of a document that was removed
_COMPACT_AT = 2  # times as many vectors as belong to documents
_FEWEST_TO_COMPACT = 1 << 14  # vectors


class SignatureIndex:
    """The documents of one model.

    Args:
        folder: made with the first document.
        dimensions: of a vector; an index of other ones is begun again.
    """

    def __init__(self, folder: Path, dimensions: int) -> None:
        self._folder, self._dimensions = folder, dimensions
        self._vectors, self._records = folder / f"{dimensions}.i8", folder / f"{dimensions}.documents"

    def __len__(self) -> int:
        return int((self._read()["id"] != _GONE).sum())

    def ids(self) -> list[str]:
        """Ids of all documents, in the order in which they came."""
        return [one.decode() for one in self._read()["id"] if one != _GONE]

    def add(self, documents: Sequence[tuple[str, npt.NDArray[np.int8]]]) -> None:
        """Add documents, each in place of one with the same id.

        Args:
            documents: ids of 32 hexadecimal digits, and vectors (num_blocks, dimensions).

        Raises:
            LibraryError: the files cannot be written.
        """
        ids = np.array([one.encode() for one, _ in documents], "S32")
        with self._changing():
            records = self._read()
            records["id"][np.isin(records["id"], ids)] = _GONE
            first = int((records["first"] + records["count"]).max(initial=0))
            new = np.empty(len(documents), _RECORD)
            with open(self._vectors, "r+b" if self._vectors.exists() else "w+b") as file:
                file.truncate(first * self._dimensions)  # what a crash has left
                file.seek(0, os.SEEK_END)
                for i, (one, (_, vectors)) in enumerate(zip(ids, documents, strict=True)):
                    assert vectors.shape[1:] == (self._dimensions,)
                    file.write(np.ascontiguousarray(vectors, np.int8).tobytes())
                    new[i] = one, first, len(vectors)
                    first += len(vectors)
                file.flush()
                os.fsync(file.fileno())
            self._write(np.concatenate([records, new]))

    def remove(self, document_id: str) -> None:
        """Remove a document, if it is there; once half of the vectors belong to none, the files are rewritten.

        Raises:
            LibraryError: the files cannot be written.
        """
        if not self._records.exists():
            return
        with self._changing():
            records = self._read()
            found = records["id"] == document_id.encode()
            if not found.any():
                return
            records["id"][found] = _GONE
            here = records[records["id"] != _GONE]
            num_all = int((records["first"] + records["count"]).max(initial=0))
            if num_all >= max(_FEWEST_TO_COMPACT, _COMPACT_AT * int(here["count"].sum())):
                records = self._compact(here)
            self._write(records)

    def search(self, query: npt.NDArray[np.int8], most: int) -> list[tuple[str, int]]:
        """The documents that have a vector closest to the query, the best first: ids and products.

        Args:
            query: (dimensions,).
            most: documents, at most.
        """
        records = self._read()
        if not len(records):
            return []
        num_vectors = int((records["first"] + records["count"]).max())
        vectors = np.memmap(self._vectors, np.int8, "r", shape=(num_vectors, self._dimensions))
        # Vectors between two documents belong to one that came before them and was removed.
        starts = np.append(records["first"], num_vectors).astype(np.int64)
        scores = best_dot(vectors, starts, query)
        scores[records["id"] == _GONE] = LEAST
        most = min(most, len(scores))
        best = np.argpartition(-scores.astype(np.int64), most - 1)[:most]
        best = best[np.argsort(-scores[best].astype(np.int64), kind="stable")]
        return [(records["id"][one].decode(), int(scores[one])) for one in best if scores[one] > LEAST]

    def _compact(self, here: npt.NDArray) -> npt.NDArray:
        """Write the vectors of these documents one behind the other; their new records."""
        old = np.memmap(self._vectors, np.int8, "r").reshape(-1, self._dimensions)
        beside = self._vectors.with_name(f"{self._vectors.name}.new")
        moved, first = here.copy(), 0
        with open(beside, "wb") as file:
            for record in moved:
                start, count = int(record["first"]), int(record["count"])
                file.write(old[start : start + count].tobytes())
                record["first"], first = first, first + count
            file.flush()
            os.fsync(file.fileno())
        # Between the two an old record would name a wrong place: until the new ones are there, there are none.
        self._write(moved[:0])
        os.replace(beside, self._vectors)
        return moved

    def _read(self) -> npt.NDArray:
        """The records, of which a last one that was cut off is none; those beyond the vectors are of no use."""
        try:
            data = self._records.read_bytes()
            num_vectors = self._vectors.stat().st_size // self._dimensions
        except OSError:
            return np.empty(0, _RECORD)
        records = np.frombuffer(data[: len(data) - len(data) % _RECORD.itemsize], _RECORD).copy()
        ends = records["first"] + records["count"]
        return records[(ends <= num_vectors) & (records["first"] == np.append(0, ends[:-1]).astype(np.uint64))]

    def _write(self, records: npt.NDArray) -> None:
        beside = self._records.with_name(f"{self._records.name}.new")
        with open(beside, "wb") as file:
            file.write(records.tobytes())
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self._records)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(self._folder / "lock"):
                yield
        except OSError as error:
            raise LibraryError(
                f"The index of the library cannot be written: {error.strerror or error}",
                where=str(self._folder),
                fix="Check the disk and its permissions.",
            ) from error


def forget(folder: Path, document_id: str) -> None:
    """Remove a document from the indexes of all models, which have a folder each; raises as `remove`."""
    for records in folder.glob("*/*.documents"):
        SignatureIndex(records.parent, int(records.stem)).remove(document_id)
