"""Files are replaced as one, or stay as they were."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ondevice.files import PRIVATE, READABLE, escaped, replacing
from ondevice_batch.places import unescaped


@given(st.binary() | st.text("\\x5caf\n").map(str.encode))
@example(rb"caf\xe9.txt")
@example(b"\\\xff\\x5c\\")
def test_every_name_is_shown_as_text_that_gives_its_bytes_back(name: bytes) -> None:
    shown = escaped(os.fsdecode(name))
    assert os.fsencode(unescaped(shown)) == name
    shown.encode()
    assert not any(letter < " " for letter in shown)


def test_an_ordinary_name_is_shown_as_it_is() -> None:
    for name in ("Ünï “x”.txt", r"C:\docs\xy.txt", "a b"):
        assert escaped(name) == name
    assert escaped(os.fsdecode(b"caf\xe9\n")) == r"caf\xe9\x0a"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("mode", [PRIVATE, READABLE])
def test_a_file_takes_the_place_of_the_old_one_when_it_is_written(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "new" / "file.txt"
    for text in ("first", "second"):
        before = path.read_text() if path.exists() else None
        with replacing(path, mode=mode) as temporary:
            temporary.write_text(text)
            assert (path.read_text() if path.exists() else None) == before
            assert temporary.parent == path.parent, "a rename works within one file system"
        assert path.read_text() == text
        assert names(path.parent) == ["file.txt"]
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_file_that_is_half_written_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")

    def stopped() -> None:
        with replacing(path) as temporary:
            temporary.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert names(tmp_path) == ["file.txt"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left"), replacing(path) as temporary:
        temporary.write_text("new")
    assert names(tmp_path) == ["file.txt"]
    assert path.read_text() == "old"


def test_the_disk_has_the_new_file_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    for step in ("fsync", "replace"):
        real = getattr(os, step)
        monkeypatch.setattr(os, step, lambda *args, step=step, real=real: (order.append(step), real(*args)))
    with replacing(tmp_path / "synced"):
        pass
    assert order == ["fsync", "replace"]
    with replacing(tmp_path / "not synced", is_synced=False):
        pass
    assert order == ["fsync", "replace", "replace"]


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "a.pot"
    names = {
        "left": ".a.pot.abcd1234",
        "new": ".a.pot.wxyz1234",
        "other": ".a.pot.backup",
        "another": ".ab.pot.abcd1234",
    }
    for name in names.values():
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (0, 0))
    os.utime(tmp_path / names["new"])
    with replacing(path) as temporary:
        temporary.write_text("whole")
    assert {one.name for one in tmp_path.iterdir()} == {"a.pot", names["new"], names["other"], names["another"]}
