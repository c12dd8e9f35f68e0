"""The index of the library: the documents that a question is about, by the words of both (BM25), in SQLite's FTS5.

It holds the words of every document that was saved, in one file that only this user may read. It is made from what is
in the library: where another version left something else in its place, or where it is damaged, it begins again.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from ondevice.errors import LibraryError
from ondevice.files import PRIVATE
from ondevice.search.bm25 import terms

CLOSEST = 5  # documents that are opened for a question; which of them lie side by side, their words say
_WAIT_SECONDS = 60.0  # for another process that writes
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class LibraryIndex:
    """The words of documents by their ids, in a file `path`; each method raises LibraryError where it is of no use."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def ids(self) -> set[str]:
        """All documents that are in it."""
        return {one for (one,) in self._found("SELECT id FROM documents")}

    def add(self, documents: Mapping[str, Sequence[str]]) -> None:
        """Add the texts of documents, page by page."""
        rows = [(one, " ".join(term for text in texts for term in terms(text))) for one, texts in documents.items()]
        with self._opened() as database:
            database.executemany("INSERT INTO documents VALUES (?, ?)", rows)

    def remove(self, document_id: str) -> None:
        """Remove a document, if it is there, and overwrite its words in the file."""
        # A file without a byte is what a Python without FTS5 leaves: documents can be deleted there, too.
        if self._path.exists() and self._path.stat().st_size and document_id in self.ids():
            with self._opened() as database:
                database.execute("DELETE FROM documents WHERE id = ?", (document_id,))
                # Until its parts are merged, the index of words has those of the document still.
                database.execute("INSERT INTO documents (documents) VALUES ('optimize')")

    def closest(self, question: str) -> list[str]:
        """Ids of the documents that have a word of a question, the best first."""
        words = " OR ".join(f'"{term}"' for term in dict.fromkeys(terms(question)))
        found = self._found("SELECT id FROM documents WHERE documents MATCH ? ORDER BY bm25(documents)", words)
        return list(dict.fromkeys(one for (one,) in found))

    def _found(self, query: str, *values: str) -> list[tuple[str]]:
        if not self._path.exists() or "" in values:
            return []
        with self._opened() as database:
            return database.execute(query, values).fetchall()

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._path.is_dir():
                shutil.rmtree(self._path)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, PRIVATE))
            with closing(sqlite3.connect(self._path, timeout=_WAIT_SECONDS)) as database, database:
                database.execute("PRAGMA secure_delete = ON")
                database.execute(
                    "CREATE VIRTUAL TABLE IF NOT EXISTS documents "
                    "USING fts5(id UNINDEXED, text, tokenize = 'porter unicode61')"
                )
                yield database
        except (OSError, sqlite3.Error) as error:
            fix = "Check the disk and its permissions; the sqlite3 of Python needs FTS5."
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _BROKEN:
                self._path.unlink(missing_ok=True)
                fix = "It begins again: each document comes into it when it is opened."
            what = f"The index of the library cannot be used: {error}"
            raise LibraryError(what, where=str(self._path), fix=fix) from error
