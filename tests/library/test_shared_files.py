"""Text and tokens of a document lie in the library once beside any number of its pots, whoever is killed when."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ondevice.config import PotConfig
from ondevice.documents import Document, Page
from ondevice.errors import DamagedPot
from ondevice.library import library as library_module
from ondevice.library.library import Library
from ondevice.pot.saving import BESIDE, read_tensors, write_pot
from ondevice.session.engine import Engine, Session
from tests.builders.models import plain_config, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

POT = PotConfig(capacity=128, num_kept=48, reserve=64, step_size=64)
ENGINE = Engine(tiny_loaded(), plain_config(pot=POT))
LONG = "The lamp was lit at dusk by the keeper. " * 200
STEPS = ("os.replace", "os.link", "tempfile.mkstemp", "ondevice.pot.saving.save_file", "pathlib.Path.mkdir")
ACTIONS = ("save", "delete", "replace")
CLEANING = ("shutil.rmtree", "pathlib.Path.unlink")


def session_of(text: str, num_kept: int = 48) -> Session:
    session = ENGINE.session(plain_config(pot=replace(POT, num_kept=num_kept)))
    for _ in session.read(Document("lamp.txt", "txt", "part", (Page(1, text),), 1, len(text))):
        pass
    return session


SESSIONS: dict[str, tuple[str, int]] = {
    "few": (LONG, 48),
    "many": (LONG, 32),
    "other": ("A boat went out at noon. " * 20, 48),
}


@functools.cache
def held(name: str) -> Session:
    """The session of this name, read when it is first asked for: a worker that runs no test of this file reads none."""
    text, num_kept = SESSIONS[name]
    return session_of(text, num_kept)


def parts(library: Library) -> dict[tuple[int, int], list[str]]:
    """Names of files of text and tokens by what lies on the disk."""
    found: dict[tuple[int, int], list[str]] = {}
    for path in library.folder.glob(f"*/*{BESIDE}"):
        about = path.stat()
        found.setdefault((about.st_dev, about.st_ino), []).append(path.name)
    return found


def all_open(library: Library) -> list[str]:
    """The texts of all entries, each opened and asked for what it holds."""
    texts = []
    for entry in library.entries():
        assert not entry.problem
        session, _ = library.open(ENGINE, entry.id)
        texts.append(session.context.tokens.texts[0])
    return texts


def test_two_pots_of_one_document_have_its_text_and_tokens_once(tmp_path: Path) -> None:
    library = Library(tmp_path)
    first = library.save(held("few"), {})
    alone = library.size_bytes()
    assert alone == first.size_bytes
    second = library.save(held("many"), {})
    shared = sum(path.stat().st_size for path in (tmp_path / first.id).glob(f"*{BESIDE}"))
    assert shared > 3 * len(LONG), "its text, its ids and their places"
    assert [len(names) for names in parts(library).values()] == [2, 2, 2]
    assert library.size_bytes() == first.size_bytes + second.size_bytes - shared
    assert LONG.encode() not in (tmp_path / first.id / "pot.safetensors").read_bytes()
    library.save(held("other"), {})
    assert sorted(len(names) for names in parts(library).values()) == [1, 1, 1, 2, 2, 2]
    assert sorted(set(all_open(library))) == sorted({LONG, held("other").context.tokens.texts[0]})
    library.delete(first.id)
    assert all_open(library).count(LONG) == 1, "what the other one needs is still there"
    for entry in library.entries():
        library.delete(entry.id)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_a_damaged_part_is_told_and_never_handed_on(tmp_path: Path) -> None:
    library = Library(tmp_path)
    bad = library.save(held("few"), {})
    for path in (tmp_path / bad.id).glob(f"*{BESIDE}"):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    with pytest.raises(DamagedPot, match="not what was written"):
        library.open(ENGINE, bad.id)
    good = library.save(held("many"), {})
    assert library.open(ENGINE, good.id)[0].context.tokens.texts == [LONG]
    next((tmp_path / good.id).glob(f"*{BESIDE}")).unlink()
    with pytest.raises(DamagedPot):
        library.open(ENGINE, good.id)


def test_a_disk_without_hard_links_has_it_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr("os.link", refuse)
    library = Library(tmp_path)
    for session in (held("few"), held("many")):
        library.save(session, {})
    assert [len(names) for names in parts(library).values()] == [1] * 6
    assert all_open(library) == [LONG, LONG]


def test_names_of_tensors_that_are_not_there_never_become_paths(tmp_path: Path) -> None:
    import torch

    write_pot(tmp_path / "a.pot", {"x": torch.ones(1)}, {})
    (tmp_path / f"secret{BESIDE}").write_bytes((tmp_path / "a.pot").read_bytes())
    for checksum in ("secret", "../a", "", "/", "\0"):
        with pytest.raises(DamagedPot, match="not what was written"):
            read_tensors(tmp_path / "a.pot", {"y": checksum})


# -- kills ---------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing is done from here on: not even what a process does when it ends by itself."""


@contextmanager
def killed_at(step: int) -> Iterator[Callable[[], bool]]:
    """Let the process be killed before its `step`-th change of the disk, as far as the disk can tell."""
    count, is_dead = [0], [False]

    def dying(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            if is_dead[0] or count[0] == step:
                is_dead[0] = True
                raise Killed
            count[0] += 1
            return original(*args, **options)

        return run

    def idle(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            if is_dead[0]:
                return None
            return dying(original)(*args, **options)

        return run

    originals = {
        "os.replace": os.replace,
        "os.link": os.link,
        "tempfile.mkstemp": tempfile.mkstemp,
        "ondevice.pot.saving.save_file": library_module.save_session.__globals__["write_pot"].__globals__["save_file"],
        "pathlib.Path.mkdir": Path.mkdir,
        "shutil.rmtree": shutil.rmtree,
        "pathlib.Path.unlink": Path.unlink,
    }
    with ExitStack() as stack:
        for name in STEPS:
            stack.enter_context(patch(name, dying(originals[name])))
        for name in CLEANING:
            stack.enter_context(patch(name, idle(originals[name])))
        yield lambda: is_dead[0]


def act(library: Library, action: str, name: str) -> None:
    """One action of an app."""
    if action == "save":
        library.save(held(name), {})
    elif entries := library.entries():
        if action == "delete":
            library.delete(entries[0].id)
        else:
            library.save(held(name), {}, replaces=entries[-1].id)


def dies(library: Library, action: str, name: str, step: int) -> bool:
    """Do it and be killed at that step; whether it came to that. Then another process looks at the library."""
    held(name)  # read before anything can be killed
    is_dead = False
    try:
        with killed_at(step) as dead:
            try:
                act(library, action, name)
            finally:
                is_dead = dead()
    except Killed:
        is_dead = True
    with patch.object(library_module, "_process", lambda pid: ""):  # ours is no longer running
        library.entries()
    return is_dead


def check(library: Library) -> None:
    """Every entry has all that is its own, nothing else is there, and what is the same is there once."""
    texts = all_open(library)
    others = {path.name for path in library.folder.iterdir()} - {"index"} if library.folder.exists() else set()
    assert len(others) == len(texts)
    names = [names[0] for names in parts(library).values()]
    assert len(names) == len(set(names)) == 3 * len(set(texts))


@pytest.mark.parametrize(
    "action", ["delete", *(pytest.param(action, marks=pytest.mark.slow) for action in ("save", "replace"))]
)
def test_a_kill_at_any_step_leaves_no_entry_without_its_text(action: str, tmp_path: Path) -> None:
    library, step, going = Library(tmp_path), 0, True
    while going:
        for entry in library.entries():
            library.delete(entry.id)
        for session in (held("few"), held("other")):
            library.save(session, {})
        going = dies(library, action, "many", step)
        check(library)
        step += 1
    assert step > (2 if action == "delete" else 12), "it was killed between all changes of the disk"


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from(ACTIONS), st.sampled_from(sorted(SESSIONS)), st.integers(0, 60)),
        max_size=6,
    )
)
def test_any_actions_with_kills_among_them_keep_the_library_whole(steps: list[tuple[str, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as made:
        library = Library(Path(made) / "library")
        for action, name, step in steps:
            dies(library, action, name, step)
            check(library)


WORK = """
import sys
sys.path.insert(0, {root!r})
from tests.library.test_shared_files import Library, held
from pathlib import Path
library = Library(Path({folder!r}))
held("few"), held("many")  # read before the time runs
print("ready", flush=True)
while True:
    one = library.save(held("few"), {{}})
    other = library.save(held("many"), {{}}, replaces=one.id)
    library.save(held("few"), {{}})
    library.delete(other.id)
    for entry in library.entries()[4:]:
        library.delete(entry.id)
"""


@pytest.mark.slow
def test_two_processes_that_are_killed_leave_a_whole_library(tmp_path: Path) -> None:
    work = WORK.format(root=str(Path(__file__).resolve().parents[2]), folder=str(tmp_path / "library"))
    for number in range(3):
        apps = [subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE) for _ in range(2)]
        for app in apps:
            assert app.stdout is not None
            assert app.stdout.readline() == b"ready\n"
        time.sleep(0.4 + 0.37 * number)
        for app in apps:
            app.send_signal(signal.SIGKILL)
            app.wait()
        library = Library(tmp_path / "library")
        assert set(all_open(library)) == {LONG}
        assert not [path for path in library.folder.iterdir() if path.name.startswith(".")]
        for entry in library.entries():
            library.delete(entry.id)
