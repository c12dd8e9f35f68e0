"""The library on disk: what goes in comes out, names never become paths, and nothing half written is ever seen."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.config import SpecConfig
from ondevice.documents import Document, Page
from ondevice.errors import LibraryError, PotError, PotMismatch
from ondevice.files import data_dir
from ondevice.library.index import LibraryIndex
from ondevice.library.library import FORMAT, Entry, Library, _process, clean_title
from ondevice.session.engine import Engine, Session
from tests.builders.models import tiny_loaded
from tests.builders.screens import CONFIG, TEXT, tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()
RECORD = {"messages": [{"role": "user", "content": "When?"}]}
DOCUMENT = Document(
    "../lamp\n\u202e.txt", "txt", "part", (Page(1, TEXT), Page(2, "", "scan", "A picture.")), 2, len(TEXT)
)


def read_session(engine: Engine = ENGINE) -> Session:
    session = engine.session()
    for _ in session.read(DOCUMENT):
        pass
    return session


SESSION = read_session()


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "library")


@pytest.fixture
def saved(library: Library) -> Entry:
    return library.save(SESSION, RECORD)


def test_what_goes_in_comes_out(library: Library, saved: Entry) -> None:
    again = Library(library.folder)  # after a restart
    assert again.entries() == [saved]
    session, record = again.open(ENGINE, saved.id)
    assert record == RECORD
    assert session.context.ledger == SESSION.context.ledger
    assert session.context.pot.state().keys() == SESSION.context.pot.state().keys()
    for name, tensor in session.context.pot.state().items():
        assert torch.equal(tensor, SESSION.context.pot.state()[name]), name
    document = session.context.tokens.document
    assert tuple(document.pages) == DOCUMENT.pages, "text and pages are there for the reading view"
    first, second = (list(s.ask("When?"))[-1].text for s in (SESSION, session))  # type: ignore[union-attr]
    assert first == second


def test_it_is_asked_as_was_chosen_for_it(library: Library) -> None:
    """Not as the app's own settings say, which another document may be read with."""
    spec = SpecConfig(keep=0.5, layers=1)
    entry = library.save(read_session(tiny_engine(replace(CONFIG, spec=spec))), RECORD)
    session, _ = library.open(ENGINE, entry.id)
    assert session.context.config.spec == spec
    assert session.context.pot.nbytes + session.context.speculator_bytes == entry.pot_bytes


def test_the_list_says_what_it_is(saved: Entry) -> None:
    assert (saved.num_tokens, saved.num_pages, saved.unit) == (len(TEXT), 2, "part")
    assert saved.model == "tiny-llama"
    assert saved.config == CONFIG
    assert saved.pot_bytes == SESSION.context.pot.nbytes
    assert saved.size_bytes > 50_000
    assert saved.title == "../lamp .txt"


def test_an_entry_of_an_earlier_build_is_refused_with_a_sentence(library: Library, saved: Entry) -> None:
    path = library.folder / saved.id / "entry.json"
    for before in range(1, FORMAT):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"format": before}))
        [entry] = library.entries()
        assert (entry.title, entry.problem) == (saved.title, "It was saved by another version of this program")
        with pytest.raises(PotMismatch, match="another version") as caught:
            library.open(ENGINE, entry.id)
        assert "read the document again" in caught.value.fix


def test_only_this_user_may_look_into_it(library: Library, saved: Entry) -> None:
    folder = library.folder / saved.id
    assert stat.S_IMODE(library.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_names_never_become_paths(library: Library, saved: Entry, tmp_path: Path) -> None:
    library.rename(saved.id, "../../../etc/passwd\x00\n" + "x" * 500)
    assert library.find(saved.id).title.startswith("../../../etc/passwd x")
    assert len(library.find(saved.id).title) == 200
    assert {path.name for path in library.folder.iterdir()} == {saved.id, "index"}
    for name in ("..", "../library", f"../{saved.id}", f"./{saved.id}", "", None, 5, saved.id.upper() + "/"):
        with pytest.raises(LibraryError):
            library.delete(name)
    (library.folder / ("a" * 32)).symlink_to(tmp_path)
    with pytest.raises(LibraryError):
        library.find("a" * 32)
    assert [entry.id for entry in library.entries()] == [saved.id]


def test_renaming_needs_a_name(library: Library, saved: Entry) -> None:
    with pytest.raises(LibraryError, match="empty"):
        library.rename(saved.id, " \n\x07")
    assert library.rename(saved.id, "  The  lamp ").title == "The lamp"
    assert clean_title("a\u202eb") == "a b", "nothing turns the direction of the list"


def test_saving_again_takes_the_place_of_the_one_before(library: Library, saved: Entry) -> None:
    library.rename(saved.id, "Mine")
    again = library.save(SESSION, {"messages": []}, replaces=saved.id)
    assert [entry.id for entry in library.entries()] == [again.id]
    assert again.title == "Mine"
    assert library.open(ENGINE, again.id)[1] == {"messages": []}
    assert library.save(SESSION, {}, replaces="f" * 32).title == "../lamp .txt", "what was deleted meanwhile is saved"


@pytest.mark.parametrize(
    "changes",
    [
        {"saved": None}, {"title": 5}, {"num_tokens": "many"}, {"num_pages": -1}, {"pot_bytes": True},
        {"unit": ["page"]}, {"fingerprints": [1, 2, 3]}, {"fingerprints": ["a"]}, {"fingerprints": 5},
        {"format": 5, "title": None}, {"config": 5}, {"config": {"pot": 3}}, {"config": {"pot": {"capacity": "x"}}},
    ],
)  # fmt: skip
def test_one_damaged_entry_does_not_take_the_others_with_it(
    library: Library, saved: Entry, changes: dict[str, Any]
) -> None:
    bad = library.save(SESSION, {})
    path = library.folder / bad.id / "entry.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    listed = {entry.id: entry for entry in library.entries()}
    assert set(listed) == {saved.id, bad.id}
    assert listed[bad.id].problem
    assert listed[saved.id] == saved
    again = library.save(SESSION, {}, replaces=bad.id)
    assert again.title == "../lamp .txt", "saving goes on, under the document's name"
    assert {entry.id for entry in library.entries()} == {saved.id, again.id}


def test_deleting_leaves_nothing(library: Library, saved: Entry) -> None:
    library.delete(saved.id)
    assert [path.name for path in library.folder.iterdir()] == ["index"]
    with pytest.raises(LibraryError, match="no such document"):
        library.delete(saved.id)


def test_a_pot_of_another_model_is_listed_with_the_reason(library: Library, saved: Entry) -> None:
    other = Engine(tiny_loaded("llama", seed=1), CONFIG)
    [entry] = library.entries()
    assert entry.misfit(ENGINE.loaded) == ""
    assert "tiny-llama" in entry.misfit(other.loaded)
    with pytest.raises(PotMismatch, match="read with the model"):
        library.open(other, entry.id)
    other_type = replace(entry, fingerprints=(entry.fingerprints[0], "x", "float16"))
    assert "tokenizer or data type" in other_type.misfit(ENGINE.loaded)
    library.delete(entry.id)


def spoil(name: str, content: bytes | None) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_bytes(content)

    return run


def other_version(folder: Path) -> None:
    data = json.loads((folder / "entry.json").read_text())
    data["config"]["pot"]["knob"] = 1
    (folder / "entry.json").write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (spoil("entry.json", None), "damaged"),
        (spoil("entry.json", b"[1]"), "damaged"),
        (spoil("entry.json", b'{"format": 99, "title": "Later"}'), "another version"),
        (spoil("entry.json", b"\xff" * 40), "damaged"),
        (spoil("pot.safetensors", None), "missing"),
        (other_version, "another version"),
    ],
)
def test_a_damaged_entry_is_listed_and_can_be_deleted(
    library: Library, saved: Entry, damage: Callable[[Path], None], problem: str
) -> None:
    damage(library.folder / saved.id)
    [entry] = library.entries()
    assert problem in entry.problem
    with pytest.raises(PotMismatch):
        library.open(ENGINE, entry.id)
    library.delete(entry.id)
    assert library.entries() == []


def test_a_damaged_pot_is_told_when_it_is_opened(library: Library, saved: Entry) -> None:
    spoil("pot.safetensors", b"\x00" * 200)(library.folder / saved.id)
    with pytest.raises(PotError, match="damaged"):
        library.open(ENGINE, saved.id)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT], ids=os.strerror)
def test_a_disk_that_refuses_leaves_no_trace(
    number: int, library: Library, saved: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(LibraryError, match="disk is nearly full"):
        library.save(SESSION, {}, replaces=saved.id)
    monkeypatch.undo()

    def full(*args: Any, **options: Any) -> None:
        raise OSError(number, os.strerror(number))

    for place in ("ondevice.pot.saving.save_file", "ondevice.library.library.Path.write_text"):
        with monkeypatch.context() as patch:
            patch.setattr(place, full)
            with pytest.raises(LibraryError, match=os.strerror(number)):
                library.save(SESSION, {}, replaces=saved.id)
        assert {path.name for path in library.folder.iterdir()} == {saved.id, "index"}, "the one before is still there"


def test_what_a_killed_process_left_half_done_goes(library: Library, saved: Entry) -> None:
    ours, dead, other = f".{'a' * 32}-{_process(os.getpid())}", f".{'b' * 32}-{os.getpid()}-12345", "notes"
    for name in (ours, dead, other):
        (library.folder / name).mkdir()
    assert len(library.entries()) == 1
    assert {path.name for path in library.folder.iterdir()} == {saved.id, ours, other, "index"}


def test_two_apps_may_have_one_library(tmp_path: Path) -> None:
    def work(session: Session) -> int:
        """Save, list and delete, as an app does; returns how many entries of the other one were seen on the way."""
        library, seen = Library(tmp_path), 0
        for number in range(12):
            mine = library.save(session, RECORD)
            if not number:
                both_saved.wait(60)
            listed = library.entries()
            assert mine.id in {entry.id for entry in listed}
            assert not any(entry.problem for entry in listed), "none is ever seen in part"
            library.delete(mine.id)
            seen += len(listed) - 1
        return seen

    both_saved = Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        seen = sum(pool.map(work, (read_session(), read_session())))
    assert seen > 0, "they were at it at the same time"
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
    assert LibraryIndex(tmp_path / "index").ids() == set()


def test_a_document_read_in_part_is_not_saved(library: Library) -> None:
    session = ENGINE.session()
    for event in session.read(DOCUMENT):
        if type(event).__name__ == "TokensRead":
            session.stop()
    with pytest.raises(PotError, match="not read to its end"):
        library.save(session, {})
    assert library.entries() == []


def test_the_folder_is_the_users_own_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONDEVICE_DATA", str(tmp_path))
    assert Library().folder == tmp_path / "library"
    assert not Library().folder.exists(), "nothing is written before somebody saves"
    assert Library().entries() == []
    monkeypatch.delenv("ONDEVICE_DATA")
    assert data_dir().is_absolute()


@pytest.mark.parametrize("command", [["list"], ["delete", "ab"]])
def test_a_file_in_the_place_of_the_folder_is_said(
    command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("")
    monkeypatch.setenv("ONDEVICE_DATA", str(tmp_path / "data"))
    done = CliRunner().invoke(app, ["library", *command])
    assert done.exit_code == 2
    assert "The library cannot be read: Not a directory" in done.stderr
    assert "ONDEVICE_DATA" in done.stderr


def test_the_command_line_lists_and_deletes(
    library: Library, saved: Entry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONDEVICE_DATA", str(tmp_path))
    run = partial(CliRunner().invoke, app)
    listed = run(["library", "list", "--json"])
    [entry] = json.loads(listed.stdout.splitlines()[-1])["entries"]
    assert (entry["id"], entry["num_tokens"], entry["problem"]) == (saved.id, len(TEXT), "")
    assert saved.id[:8] in listed.stdout
    assert "1 document, " in listed.stderr
    assert run(["library", "delete", "zz"]).exit_code == 2
    assert run(["library", "delete", saved.id[:6]], input="n\n").exit_code == 0
    assert len(library.entries()) == 1, "it asks first"
    assert run(["library", "delete", saved.id[:6], "--yes"]).exit_code == 0
    assert library.entries() == []
    assert "Nothing is saved" in run(["library", "list"]).stderr
