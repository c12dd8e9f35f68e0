"""Files that are opened for anybody: no pipe is waited for, no device read, nothing outside of the folders."""

from __future__ import annotations

import io
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ondevice.errors import DocumentError, EmptyDocument
from ondevice.regular_file import copy_file, open_regular

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes"),
    pytest.mark.timeout(10),  # what waits for a pipe waits for ever
]


def test_a_file_is_opened_by_every_name_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "link").symlink_to("a.txt")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in (tmp_path / "a.txt", "link", "~/a.txt"):
        with open_regular(name) as file:
            assert file.read() == b"text"
            assert not os.get_inheritable(file.fileno())


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_pipe_is_not_waited_for_and_its_writer_not_let_in(tmp_path: Path, is_linked: bool) -> None:
    os.mkfifo(pipe := tmp_path / "pipe.txt")
    (tmp_path / "link.txt").symlink_to(pipe)
    with pytest.raises(DocumentError, match=r"a pipe or a device.*ondevice ask -"):
        open_regular(tmp_path / "link.txt" if is_linked else pipe)
    with pytest.raises(OSError, match="No such device"):  # said where nobody reads
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)


def test_what_becomes_a_pipe_while_it_is_opened_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "a.txt", os.open
    path.write_text("text")

    def replaced_first(*args: object, **more: object) -> int:
        path.unlink()
        os.mkfifo(path)
        return real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", replaced_first)
    with pytest.raises(DocumentError, match="a pipe or a device"):
        open_regular(path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("/dev/zero", "a pipe or a device"),
        ("/proc/self/status", "0 bytes"),
        ("{folder}", "a folder"),
        ("{folder}/missing.txt", "no such file"),
        ("{folder}/a.txt/b.txt", "no such file"),
        ("{folder}/round", "symbolic links"),
        ("{folder}/" + "x" * 300, "name too long"),
        ("{folder}/a\0.txt", "no file name can have"),
        ("{folder}/\ud800.txt", "no file name can have"),
        ("~nobody-of-that-name/a.txt", "home directory"),
    ],
)
def test_what_is_no_document_says_why_and_what_to_do(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(DocumentError, match=f"(?i){says}") as caught:
        open_regular(name.format(folder=tmp_path))
    assert caught.value.fix
    assert caught.value.where
    str(caught.value).encode()


def test_a_file_has_a_size_within_the_limit(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(EmptyDocument, match="0 bytes"):
        open_regular(tmp_path / "empty")
    (tmp_path / "large").write_bytes(b"x" * 1001)
    with pytest.raises(DocumentError, match="1,001 bytes; the limit is 1,000"):
        open_regular(tmp_path / "large", 1000)
    open_regular(tmp_path / "large", 1001).close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with documents, hidden ones and links out of it."""
    home = tmp_path.resolve() / "home"
    for name in ("a.txt", ".ssh/key", "deep/.git/config", "deep/b.txt", "../outside.txt", "../home2/c.txt"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("text")
    for link, target in {"out": "../outside.txt", "key": ".ssh/key", "in": "deep", "system": "/etc/passwd"}.items():
        (home / link).symlink_to(target)
    return home


@pytest.mark.parametrize("name", ["a.txt", "deep/b.txt", "in/b.txt", "deep/../a.txt", "../home/a.txt"])
def test_what_lies_in_a_folder_is_opened(name: str, home: Path) -> None:
    open_regular(home / name, folders=[home / "nothing here", home]).close()


@pytest.mark.parametrize(
    "name",
    [
        ".ssh/key", "deep/.git/config", "key", "out", "system", "../outside.txt", "../home2/c.txt", "../missing.txt",
        ".missing", "/etc/passwd", "/dev/zero", "/proc/self/environ", "/proc/self/root/etc/passwd", "/dev/stdin",
    ],
)  # fmt: skip
def test_what_lies_elsewhere_is_refused_whether_it_is_there_or_not(name: str, home: Path) -> None:
    with pytest.raises(DocumentError, match=r"only files in these folders.*as a root") as caught:
        open_regular(home / name, folders=[home])
    assert str(home) in caught.value.what, "the assistant is told where it may look"
    with pytest.raises(DocumentError, match="only files in these folders"):
        open_regular(home / name, folders=[])


def test_a_hidden_folder_that_is_named_is_opened_from(home: Path) -> None:
    open_regular(home / "key", folders=[home / ".ssh"]).close()


def test_folders_of_the_system_are_closed_where_all_others_are_open(home: Path) -> None:
    open_regular(home / "out", folders=[Path("/")]).close()
    for name in ("/proc/self/status", "/sys/kernel/mm/transparent_hugepage/enabled", "/dev/null"):
        with pytest.raises(DocumentError, match="only files in these folders"):
            open_regular(name, folders=[Path("/")])


@pytest.mark.skipif(sys.platform != "linux", reason="it says which file is open")
def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def moved_first(*args: object, **more: object) -> int:
        (home / "deep" / "b.txt").unlink()
        (home / "deep" / "b.txt").symlink_to("../.ssh/key")
        return real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", moved_first)
    with pytest.raises(DocumentError, match="only files in these folders"):
        open_regular(home / "deep" / "b.txt", folders=[home])


def test_a_copy_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_file(io.BytesIO(b"text"), tmp_path / "a", 4, "a.txt")
    assert (tmp_path / "a").read_bytes() == b"text"

    class Growing(io.BytesIO):
        """Longer than it said: somebody writes to it, or nothing ends it."""

        def read(self, size: int | None = -1) -> bytes:
            return b"x" * 1000

    with pytest.raises(DocumentError, match="more than 5,000 bytes; the limit is 5,000"):
        copy_file(Growing(b"text"), tmp_path / "b", 5000, "a.txt")
    assert (tmp_path / "b").stat().st_size <= 5000
    full = shutil.disk_usage(tmp_path)._replace(free=500_000_003)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(DocumentError, match="disk is nearly full"):
        copy_file(io.BytesIO(b"text"), tmp_path / "c", 4, "a.txt")
    copy_file(io.BytesIO(b"tex"), tmp_path / "c", 4, "a.txt")


@pytest.mark.skipif(sys.platform != "linux", reason="it lists what is open")
def test_what_is_refused_is_closed(home: Path) -> None:
    os.mkfifo(home / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("pipe", "out", "deep", "missing.txt"):
        for folders in (None, [home]):
            for _ in range(20):
                with suppress(DocumentError):
                    open_regular(home / name, 1, folders)
    assert len(os.listdir("/proc/self/fd")) == before
