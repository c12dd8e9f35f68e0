"""Workspaces are few and end; uploads are private and do not stay."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from ondevice.documents import Document, Limits, Page
from ondevice.errors import DocumentError
from ondevice.serving import registry as registering
from ondevice.serving.registry import Registry
from ondevice.serving.uploads import Upload, Uploads
from ondevice.serving.workspace import Phase, Workspace
from ondevice.ui.environment import prepare_gradio, private_folder
from tests.builders.models import tokens_of

DOCUMENT = Document("a.txt", "txt", "part", (Page(1, "text"),), 1, 4)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_ids_come_from_the_server_alone() -> None:
    registry = Registry()
    assert registry.find("f" * 32) is None
    assert registry.find(None) is None
    assert registry.find({"a": 1}) is None
    first, second = registry.create(), registry.create()
    assert first.id != second.id
    assert len(first.id) == 32
    assert registry.find(first.id) is first


def test_an_open_document_is_found_by_its_own_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "TTL_SECONDS", 60)
    clock = Clock()
    registry = Registry(clock=clock)
    first, second = registry.create(), registry.create()
    assert registry.workspace(second.current.id) is second.current
    assert registry.workspace(first.id) is None
    clock.now = 50
    registry.workspace(first.current.id)
    clock.now = 100
    assert registry.find(first.id) is first, "it counts as used"


def test_the_time_of_a_visitor_begins_when_its_work_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "TTL_SECONDS", 60)
    clock = Clock()
    registry = Registry(clock=clock)
    visitor = registry.create()
    visitor.current.claim()
    clock.now = 500
    registry.sweep()
    visitor.current.release()
    clock.now = 550
    assert registry.find(visitor.id) is visitor


def test_whoever_comes_while_all_others_work_may_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "MAX_VISITORS", 2)
    registry = Registry()
    for _ in range(2):
        registry.create().current.claim()
    last = registry.create()
    assert registry.find(last.id) is last


def test_nothing_begins_in_a_document_that_was_closed() -> None:
    visitor = Registry().create()
    workspace = visitor.current
    visitor.close(workspace)
    assert not workspace.claim()


def test_the_least_recently_used_workspace_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "MAX_VISITORS", 2)
    clock = Clock()
    registry = Registry(clock=clock)
    old, middle = registry.create(), registry.create()
    for visitor in (old, middle):
        visitor.current.accept(tokens_of(3))
    clock.now = 1
    registry.find(middle.id)
    clock.now = 2
    new = registry.create()
    assert registry.find(old.id) is None
    assert old.current.document is None, "what it held must be freed, not only forgotten"
    assert registry.find(middle.id) is middle
    assert registry.find(new.id) is new


def test_who_has_nothing_gives_way_to_who_has_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "MAX_VISITORS", 2)
    clock = Clock()
    registry = Registry(clock=clock)
    owner = registry.create()
    owner.current.accept(tokens_of(3))
    for _ in range(3):
        clock.now += 1
        last = registry.create()
        assert registry.find(last.id) is last, "who comes may stay"
    assert registry.find(owner.id) is owner
    assert len(registry.others(None)) == 2


def test_a_workspace_is_given_to_one_alone() -> None:
    visitor = Registry().create()
    given: list[Workspace] = []
    threads = [threading.Thread(target=lambda i=i: given.append(visitor.new(f"{i}.txt"))) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({workspace.id for workspace in given}) == 4
    visitor.close(given[0])
    visitor.look_at(given[0])
    assert visitor.current in visitor.workspaces, "what is closed cannot be looked at"


def test_work_in_progress_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "MAX_VISITORS", 1)
    monkeypatch.setattr(registering, "TTL_SECONDS", 10)
    clock = Clock()
    registry = Registry(clock=clock)
    busy = registry.create()
    busy.current.claim()
    clock.now = 100
    registry.create()
    assert registry.find(busy.id) is busy
    busy.current.release()
    clock.now = 200
    registry.sweep()
    assert len(registry.others(None)) == 0


def test_an_idle_workspace_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "TTL_SECONDS", 60)
    clock = Clock()
    registry = Registry(clock=clock)
    workspace = registry.create()
    clock.now = 59
    assert registry.find(workspace.id) is workspace
    clock.now = 118
    assert registry.find(workspace.id) is workspace, "every use counts"
    clock.now = 179
    assert registry.find(workspace.id) is None


def test_closing_stops_and_frees(tmp_path: Path) -> None:
    registry = Registry()
    workspace = registry.create().current
    file = tmp_path / "id" / "a.pdf"
    file.parent.mkdir()
    file.write_bytes(b"x")
    workspace.locked = Upload(file)
    registry.close()
    assert workspace.stop.is_set()
    assert not file.parent.exists()
    assert len(registry.others(None)) == 0


def test_an_activity_ends_in_rest_whatever_happens() -> None:
    workspace = Workspace("id")

    def fail() -> None:
        with workspace.working(Phase.READING):
            assert workspace.phase is Phase.READING
            assert not workspace.halt(timeout=0)
            raise ZeroDivisionError

    workspace.claim()
    with pytest.raises(ZeroDivisionError):
        fail()
    assert workspace.phase is Phase.EMPTY
    assert not workspace.claim(), "it belongs to who has claimed it until that one lets go"
    workspace.release()
    assert workspace.halt(timeout=0)


def received(folder: Path, content: bytes = b"hello") -> Path:
    path = folder / "hash" / "report.pdf"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_an_upload_leaves_the_folder_that_is_served(tmp_path: Path) -> None:
    path = received(tmp_path / "received")
    (tmp_path / "private").mkdir()
    upload = Uploads(tmp_path / "private").take(path)
    assert not path.exists()
    assert not path.parent.exists()
    assert upload.path.read_bytes() == b"hello"
    assert upload.path.name == "report.pdf"
    assert stat.S_IMODE(upload.path.parent.stat().st_mode) == 0o700
    upload.discard()
    assert list((tmp_path / "private").iterdir()) == []


def test_a_refused_upload_is_deleted_too(tmp_path: Path) -> None:
    path = received(tmp_path / "received", b"123456")
    (tmp_path / "private").mkdir()
    with pytest.raises(DocumentError, match="limit is 5 bytes"):
        Uploads(tmp_path / "private", Limits(file_bytes=5)).take(path)
    assert not path.parent.exists()
    assert list((tmp_path / "private").iterdir()) == []


def test_the_private_folder_is_ours_alone_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_SHARE", "True")
    monkeypatch.setenv("GRADIO_VIBE_MODE", "1")
    monkeypatch.setenv("GRADIO_ROOT_PATH", "/proxy")
    for name in ("GRADIO_TEMP_DIR", "GRADIO_ANALYTICS_ENABLED", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "")
    with private_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        documents = prepare_gradio(folder)
        assert stat.S_IMODE(documents.stat().st_mode) == 0o700
        assert Path(os.environ["GRADIO_TEMP_DIR"]).parent == folder
        assert documents != Path(os.environ["GRADIO_TEMP_DIR"])
        assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
        assert "GRADIO_SHARE" not in os.environ
        assert "GRADIO_VIBE_MODE" not in os.environ
        assert os.environ["GRADIO_ROOT_PATH"] == "/proxy"
    assert not folder.exists()


def test_what_a_killed_app_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead, alive, other = (tmp_path / f"ondevice-app-{name}" for name in ("4999999-x", f"{os.getpid()}-x", "notes"))
    for folder in (dead, alive, other):
        folder.mkdir()
    with private_folder():
        assert not dead.exists()
        assert alive.exists()
        assert other.exists()
