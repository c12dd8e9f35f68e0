"""A question to the whole library: the documents that it is about, and what is left of one that was deleted."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from ondevice.config import PotConfig
from ondevice.documents.types import Document, Page
from ondevice.errors import LibraryError
from ondevice.library.index import LibraryIndex
from ondevice.library.library import Library
from ondevice.session.engine import Engine, Session
from tests.builders.models import plain_config, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

LOADED = tiny_loaded()
ENGINE = Engine(LOADED, plain_config(pot=PotConfig(capacity=1200, num_kept=200, reserve=96)))
TEXTS = ("The lamp was lit at dusk, and bright. " * 9, "A boat went out. " * 8, "Rain fell on the hill all night. " * 9)


def read(which: int) -> Session:
    session, text = ENGINE.session(), TEXTS[which]
    for _ in session.read(Document(f"{which}.txt", "txt", "part", (Page(1, text),), 1, len(text))):
        pass
    return session


@pytest.fixture
def index(tmp_path: Path) -> LibraryIndex:
    return LibraryIndex(tmp_path / "index")


def test_a_question_in_the_words_of_a_document_points_to_it(tmp_path: Path) -> None:
    library = Library(tmp_path / "library")
    assert library.closest("Where is the boat?", 3, LOADED) == []
    assert library.indexed(LOADED) == ([], 0)
    entries = [library.save(read(which), {}) for which in range(len(TEXTS))]
    assert [one.id for one in library.closest("Where are the BOATS?", 1, LOADED)] == [entries[1].id]
    assert {one.id for one in library.closest("Was it lit or did it rain?", 9, LOADED)} == {
        entries[0].id,
        entries[2].id,
    }
    newest = [one.id for one in library.entries()[:2]]
    for question in ("Nothing?", "?!"):
        assert [one.id for one in library.closest(question, 2, LOADED)] == newest, "no document has a word of it"
    other = tiny_loaded(seed=1)
    assert library.closest("boat", 3, other) == [], "another model has read nothing of it"
    assert library.indexed(other) == ([], 0)
    library.delete(entries[1].id)
    assert {one.id for one in library.indexed(LOADED)[0]} == {entries[0].id, entries[2].id}
    assert entries[1].id not in [one.id for one in library.closest("boat", 3, LOADED)]
    assert stat.S_IMODE((library.folder / "index").stat().st_mode) == 0o600


def test_a_document_that_the_index_has_not_comes_into_it_when_it_is_opened(tmp_path: Path) -> None:
    library = Library(tmp_path / "library")
    entry = library.save(read(1), {})
    (library.folder / "index").unlink()
    (library.folder / "index" / "ab").mkdir(parents=True)  # as earlier versions had it
    (library.folder / "index" / "ab" / "192.i8").write_bytes(b"vectors")
    assert library.indexed(LOADED) == ([], 1)
    library.open(ENGINE, entry.id)
    assert library.indexed(LOADED) == ([entry], 0)
    assert library.closest("boat", 3, LOADED) == [entry]
    library.open(ENGINE, entry.id)
    assert library.indexed(LOADED) == ([entry], 0)


def test_one_that_was_deleted_by_hand_is_not_named(tmp_path: Path) -> None:
    library = Library(tmp_path / "library")
    entry = library.save(read(1), {})
    (library.folder / entry.id).rename(tmp_path / "elsewhere")
    assert library.closest("boat", 3, LOADED) == []


def test_rare_words_count_most_and_scripts_without_blanks_are_found(index: LibraryIndex) -> None:
    index.add(
        {"a": ["the lamp and the boat"], "b": ["the lamp and the hill"], "c": ["the lamp", "灯台守は灯りをともした"]}
    )
    assert index.ids() == {"a", "b", "c"}
    assert index.closest("the lamp on the hill")[0] == "b"
    assert index.closest("灯台守は誰?") == ["c"]
    assert set(index.closest('"lamp" NOT hill:a* NEAR(x')) == {"a", "b", "c"}, "no operators"
    assert index.closest(" ".join(f"word{number}" for number in range(5000)) + " hill") == ["b"]


def test_the_words_of_a_deleted_document_are_not_on_the_disk(index: LibraryIndex, tmp_path: Path) -> None:
    others = {f"{number}": [" ".join(f"w{number}x{other}" for other in range(2000))] for number in range(9)}
    index.add(others)
    index.add({"secret": ["zyxwvut " * 50 + "qqqqjjjj"]})
    assert b"zyxwvut" in (tmp_path / "index").read_bytes()
    index.remove("secret")
    index.remove("never there")
    assert index.ids() == others.keys()
    assert [path.name for path in tmp_path.iterdir()] == ["index"], "no journal, and nothing beside it"
    left = (tmp_path / "index").read_bytes()
    assert not any(part in left for part in (b"zyxwvut", b"yxwvut", b"secret", b"qqqjjjj"))
    assert index.closest("w3x7") == ["3"]


def test_a_damaged_one_says_so_once_and_begins_again(index: LibraryIndex, tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"damaged" * 999)
    with pytest.raises(LibraryError, match="cannot be used: file is not a database"):
        index.closest("lamp")
    assert index.ids() == set()
    index.add({"a": ["a lamp"]})
    assert index.closest("lamp") == ["a"]


def test_one_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LibraryError, match="cannot be used"):
        LibraryIndex(tmp_path / "file" / "index").add({"a": ["a lamp"]})
    assert LibraryIndex(tmp_path / "none" / "index").closest("lamp") == []


def test_a_python_without_fts5_saves_and_deletes_and_says_why_it_cannot_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WithoutFTS5(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if "fts5" in sql:
                raise sqlite3.OperationalError("no such module: fts5")
            return super().execute(sql, *values)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, **options, factory=WithoutFTS5))
    library = Library(tmp_path / "library")
    entry = library.save(read(1), {})
    assert library.entries() == [entry]
    with pytest.raises(LibraryError, match=r"cannot be used: no such module: fts5.*needs FTS5"):
        library.closest("boat", 3, LOADED)
    library.delete(entry.id)
    assert library.entries() == []


def test_an_index_that_cannot_be_written_keeps_nothing_from_being_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(tmp_path / "library")
    first, second, third = (library.save(read(which), {}) for which in range(3))

    class Full(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if "DELETE" in sql:
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(sql, *values)

    connect = sqlite3.connect
    with monkeypatch.context() as full:
        full.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, **options, factory=Full))
        assert "its words are in the index" in library.delete(first.id)
    assert {one.id for one in library.entries()} == {second.id, third.id}
    index = LibraryIndex(library.folder / "index")
    assert index.ids() == {first.id, second.id, third.id}
    library.open(ENGINE, second.id)
    assert index.ids() == {second.id, third.id}, "it is cleaned the next time"
    (library.folder / "index").write_bytes(b"damaged" * 999)
    assert library.delete(second.id) == ""
    assert library.entries() == [third]


def test_an_app_that_opens_what_another_deletes_leaves_no_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(tmp_path / "library")
    entry = library.save(read(1), {})
    add = LibraryIndex.add

    def late(self: LibraryIndex, documents: dict[str, list[str]]) -> None:
        library.delete(entry.id)
        add(self, documents)

    (library.folder / "index").unlink()
    monkeypatch.setattr(LibraryIndex, "add", late)
    library.open(ENGINE, entry.id)
    assert LibraryIndex(library.folder / "index").ids() == set()
