"""Several open documents: queued, listed, switched between, closed; and work that nobody watches."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ondevice.serving.visitor import MAX_DOCUMENTS
from ondevice.serving.workspace import Phase
from ondevice.ui.documents_list import TOGETHER
from ondevice.ui.wiring import detached
from tests.builders.screens import Desk, screen_after, tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, ENGINE)


def files(folder: Path, **contents: bytes) -> list[str]:
    paths = []
    for name, content in contents.items():
        path = folder / f"received-{name}" / f"{name}.txt"
        path.parent.mkdir()
        path.write_bytes(content)
        paths.append(str(path))
    return paths


def choices(screen: dict[str, Any]) -> list[str]:
    """The documents themselves, without all of them together."""
    return [label for label, value in screen["documents"]["choices"] if value != TOGETHER]


def test_several_files_are_opened_and_a_bad_one_is_named(desk: Desk, tmp_path: Path) -> None:
    paths = files(tmp_path, first=b"one two", bad=b"\x89PNG\r\n\x1a\n" * 9, last=b"three")
    screen = screen_after(desk.actions.open_received(desk.id, paths))
    assert [label.split("\n")[0] for label in choices(screen)] == ["lamp.txt", "first.txt", "last.txt"]
    assert "bad.txt" in screen["problem"]["text"]
    assert "bad.txt" in screen["toast"]
    assert dict(screen["card"]["rows"])["File"] == "last.txt"
    assert list(desk.uploads_folder.iterdir()) == []


def test_the_same_file_twice_and_a_failure_in_between_leave_nothing_waiting(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [path] = files(tmp_path, twice=b"one two")
    screen = screen_after(desk.actions.open_received(desk.id, [path, path]))
    assert [label.split("\n")[0] for label in choices(screen)] == ["lamp.txt", "twice.txt"]
    assert "twice.txt" in screen["problem"]["text"]
    monkeypatch.setattr(desk.actions, "_open", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(desk.actions.open_received(desk.id, files(tmp_path, one=b"one", two=b"two")))
    assert [workspace.name for workspace in desk.visitor.documents] == ["lamp.txt", "twice.txt"]
    assert list(desk.uploads_folder.iterdir()) == []


def test_what_is_closed_before_its_turn_is_not_opened(desk: Desk, tmp_path: Path) -> None:
    steps = desk.actions.open_received(desk.id, files(tmp_path, first=b"one two", next=b"three"))
    for patch in steps:
        if "documents" in patch and len(choices(patch)) == 3:
            desk.visitor.close(desk.visitor.documents[-1])
            break
    screen = screen_after(steps)
    assert [label.split("\n")[0] for label in choices(screen)] == ["lamp.txt", "first.txt"]
    assert "toast" not in screen
    assert list(desk.uploads_folder.iterdir()) == []


def test_each_document_has_its_own_pot_and_conversation(desk: Desk, tmp_path: Path) -> None:
    desk.read()
    desk.ask("When?")
    screen_after(desk.actions.open_received(desk.id, files(tmp_path, other=b"Nothing but this. " * 40)))
    other = desk.visitor.current
    assert other is not desk.workspace
    screen = desk.read()
    assert screen["chat"]["value"] == []
    assert "2 pots in memory" in screen["memory"]["text"]
    screen = desk.actions.look_at(desk.id, desk.workspace.id)
    assert screen["ask"]["visible"], "what was read can be asked again"
    assert screen["question"]["value"] == ""
    assert screen["chat"][0]["content"] == "When?"
    assert dict(screen["card"]["rows"])["File"] == "lamp.txt"
    assert desk.ask("And then?")["chat"][-1]["role"] == "assistant"
    assert other.exchanges == []


def test_closing_one_frees_its_pot_and_shows_the_next(desk: Desk, tmp_path: Path) -> None:
    screen_after(desk.actions.open_received(desk.id, files(tmp_path, other=b"Nothing but this.")))
    other = desk.visitor.current
    desk.read()
    assert other.pot_bytes > 0
    screen = desk.actions.forget(desk.id)
    assert other.session is None
    assert dict(screen["card"]["rows"])["File"] == "lamp.txt"
    assert not screen["documents"]["visible"], "one document needs no list"


def test_reading_one_document_does_not_disturb_the_sight_of_another(desk: Desk, tmp_path: Path) -> None:
    screen_after(desk.actions.open_received(desk.id, files(tmp_path, other=b"Nothing but this.")))
    other = desk.visitor.current
    desk.actions.look_at(desk.id, desk.workspace.id)
    steps = desk.actions.read(desk.id, desk.form)
    next(steps)
    desk.actions.look_at(desk.id, other.id)
    patches = list(steps)
    assert len(patches) == 1, "only the end of it, which shows the list"
    assert patches[0]["status"]["phase"] == "ready"
    assert any("lamp.txt\nread" in label for label in choices(patches[0]))
    assert desk.workspace.phase is Phase.READ


def test_there_is_a_limit_and_it_is_told(desk: Desk, tmp_path: Path) -> None:
    paths = files(tmp_path, **{f"n{i}": b"text" for i in range(MAX_DOCUMENTS)})
    screen = screen_after(desk.actions.open_received(desk.id, paths))
    assert len(desk.visitor.documents) == MAX_DOCUMENTS
    assert f"n{MAX_DOCUMENTS - 1}.txt" in screen["problem"]["text"]
    assert list(desk.uploads_folder.iterdir()) == []


def test_memory_that_other_pots_were_promised_is_not_given_twice(desk: Desk, tmp_path: Path) -> None:
    desk.read()
    untouched = desk.workspace.untouched_bytes
    assert 0 < untouched < desk.workspace.pot_bytes
    screen_after(desk.actions.open_received(desk.id, files(tmp_path, other=b"Nothing but this.")))
    needed = desk.workspace.pot_bytes
    desk.free_memory = lambda device: int(needed / 0.9) + untouched // 2
    assert "The pot would take" in desk.read()["problem"]["text"]
    desk.free_memory = lambda device: int(needed / 0.9) + untouched + 2
    assert desk.read()["status"]["phase"] == "read"


def test_work_goes_on_when_the_page_has_gone() -> None:
    made, go_on = [], threading.Event()

    def steps() -> Iterator[int]:
        for i in range(3):
            yield i
            go_on.wait(5)
            made.append(i)

    watched = detached(steps(), lambda: -1)
    assert next(watched) == 0
    watched.close()  # type: ignore[attr-defined]
    go_on.set()
    end = time.monotonic() + 5
    while len(made) < 3 and time.monotonic() < end:
        time.sleep(0.005)
    assert made == [0, 1, 2]


def test_detached_work_tells_its_values_and_its_failure() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("later")

    watched = detached(failing(), lambda: -1)
    assert next(watched) == 1
    with pytest.raises(ValueError, match="later"):
        next(watched)
    assert list(detached(iter([1, 2]), lambda: -1)) == [1, 2]
