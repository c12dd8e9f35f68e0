"""Readings that are kept while they go on: private, apart by text, model and settings, within a limit."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ondevice.config import PotConfig, TierConfig
from ondevice.documents.types import Document, Page
from ondevice.errors import PotError
from ondevice.session.checkpoints import Checkpoints
from ondevice.session.engine import Engine, Session
from ondevice.session.saving import load_reading
from tests.builders.models import plain_config, plain_generation, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

LOADED = tiny_loaded()
CONFIG = plain_config(
    pot=PotConfig(capacity=224, num_kept=64, reserve=96, step_size=60), tier=TierConfig(budget_bytes=0)
)
ENGINE = Engine(LOADED, CONFIG)
TEXT = "The lamp was lit at dusk, and burned until the morning. " * 9


def document(text: str = TEXT, name: str = "lamp.txt") -> Document:
    return Document(name, "txt", "part", (Page(1, text),), 1, len(text))


def reading(text: str = TEXT) -> Session:
    session = ENGINE.session()
    for _ in session.open(document(text)):
        pass
    for _ in session.resume():
        session.stop()
    return session


def test_a_reading_is_private_and_comes_back(tmp_path: Path) -> None:
    checkpoints, session = Checkpoints(tmp_path / "kept"), reading()
    place = checkpoints.place(ENGINE, document())
    assert not place.exists()
    checkpoints.write(session, place)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (place, place.parent)] == [0o600, 0o700]
    again = load_reading(ENGINE, place)
    assert 0 < again.context.num_read == session.context.num_read < session.context.tokens.num_tokens
    checkpoints.remove(place)
    assert list(place.parent.iterdir()) == []


def test_the_place_depends_on_text_model_and_what_is_read_but_not_on_answers(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    place = checkpoints.place(ENGINE, document())
    answers = Engine(LOADED, replace(CONFIG, generation=plain_generation(max_new_tokens=7)))
    assert checkpoints.place(answers, document(name="other.txt")) == place
    assert checkpoints.place(ENGINE, document(TEXT + ".")) != place
    assert checkpoints.place(Engine(LOADED, replace(CONFIG, pot=replace(CONFIG.pot, num_kept=60))), document()) != place
    assert checkpoints.place(Engine(tiny_loaded(seed=3), CONFIG), document()) != place


def test_the_oldest_go_first_and_what_a_killed_process_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as limited:
        limited.setattr("ondevice.session.checkpoints.MOST_BYTES", 100)
        with pytest.raises(PotError, match="may be kept"):
            Checkpoints(tmp_path).write(reading(), tmp_path / "a.reading")
    # What they may come to take is more than they take now.
    monkeypatch.setattr("ondevice.session.checkpoints.most_saved_bytes", lambda session: 0)
    checkpoints, places = Checkpoints(tmp_path), []
    for number in range(3):
        places.append(checkpoints.place(ENGINE, document(f"{number} {TEXT}")))
        checkpoints.write(reading(f"{number} {TEXT}"), places[-1])
        os.utime(places[-1], (number, number))
    stale = tmp_path / f".{places[0].name}.abcd"
    stale.write_bytes(b"half")
    os.utime(stale, (time.time() - 10_000,) * 2)
    size = places[0].stat().st_size
    # Room for two and a half: the one that is written anew, and the youngest of the others.
    monkeypatch.setattr("ondevice.session.checkpoints.MOST_BYTES", size * 5 // 2)
    checkpoints.write(reading(f"0 {TEXT}"), places[0])
    assert sorted(tmp_path.iterdir()) == sorted((places[0], places[2]))


@pytest.mark.parametrize("seconds", [-(10.0**9), 10.0**9], ids=["back", "ahead"])
def test_a_clock_that_jumps_loses_nothing(seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path)
    places = [checkpoints.place(ENGINE, document(f"{number} {TEXT}")) for number in range(2)]
    checkpoints.write(reading(f"0 {TEXT}"), places[0])
    now = time.time() + seconds
    os.utime(places[0], (now, now))  # the clock was set right since
    checkpoints.write(reading(f"1 {TEXT}"), places[1])
    monkeypatch.setattr("time.time", lambda: now)
    checkpoints.write(reading(f"1 {TEXT}"), places[1])
    assert sorted(tmp_path.iterdir()) == sorted(places)
    for place in places:
        assert load_reading(ENGINE, place).context.num_read > 0


def test_a_full_disk_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(PotError, match="are free"):
        Checkpoints(tmp_path).write(reading(), tmp_path / "a.reading")
    assert list(tmp_path.iterdir()) == []


def test_a_reading_goes_on_without_a_copy_where_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ondevice.session.checkpoints.free_memory_bytes", lambda: 1000)
    with pytest.raises(PotError, match="of memory"):
        Checkpoints(tmp_path).write(reading(), tmp_path / "a.reading")
    assert list(tmp_path.iterdir()) == []
