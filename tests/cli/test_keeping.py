"""`ondevice ask` that is broken off: the same command goes on, and gives what it would have given undisturbed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.cli.progress import ProgressDisplay
from ondevice.errors import PotError
from ondevice.events import TokensRead
from ondevice.session import checkpoints, saving

pytestmark = pytest.mark.usefixtures("one_thread")

POT = ["--capacity", "400", "--keep", "96", "--reserve", "160", "--step", "64", "--no-chat", "--max-new-tokens", "6"]


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the readings."""
    monkeypatch.setenv("ONDEVICE_DATA", str(tmp_path / "data"))
    return tmp_path / "data" / "readings"


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Ctrl-C as a terminal has it: a shell's background jobs, as which tests may run, ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ask(checkpoint: Path, *arguments: object, command: str = "ask") -> Result:
    line = [command, *arguments, "--model", checkpoint, *POT, "--json"]
    return CliRunner().invoke(app, [str(argument) for argument in line])


def last_json(result: Result) -> dict[str, Any]:
    return json.loads(result.stdout.splitlines()[-1])


def stop_after(num_read: int, monkeypatch: pytest.MonkeyPatch, number: int = signal.SIGINT) -> None:
    """Let a signal come once so many tokens are read."""
    apply = ProgressDisplay.apply

    def interrupted(self: ProgressDisplay, event: object) -> None:
        apply(self, event)
        if isinstance(event, TokensRead) and event.num_read > num_read:
            monkeypatch.setattr(ProgressDisplay, "apply", apply)
            signal.raise_signal(number)  # at once; os.kill may reach another thread first

    monkeypatch.setattr(ProgressDisplay, "apply", interrupted)


def same(report: dict[str, Any]) -> dict[str, Any]:
    """What of a report has to be alike: all but seconds and bytes."""
    turns = [
        {name: turn[name] for name in ("question", "text", "stop_reason", "num_tokens")} for turn in report["turns"]
    ]
    return {"turns": turns, "ledger": report["ledger"]}


@pytest.mark.parametrize(("number", "extra"), [(signal.SIGINT, ()), (signal.SIGTERM, ("--host-tier", "0"))])
def test_a_stopped_reading_goes_on(
    checkpoint: Path, text: Path, kept: Path, monkeypatch: pytest.MonkeyPatch, number: int, extra: tuple[str, ...]
) -> None:
    whole = ask(checkpoint, text, "When?", "Who?", *extra)
    assert not list(kept.glob("*"))
    stop_after(300, monkeypatch, number)
    stopped = ask(checkpoint, text, "When?", "Who?", *extra)
    assert stopped.exit_code == 130
    assert "the same command goes on from there" in last_json(stopped)["error"]["what"]
    assert len(list(kept.iterdir())) == 1
    again = ask(checkpoint, text, "When?", "Who?", *extra)
    assert again.exit_code == 0, again.output
    assert again.stderr.count("Going on where reading was broken off") == 1
    assert "of them before" in again.stderr
    assert same(last_json(again)) == same(last_json(whole))
    assert not list(kept.iterdir())


def test_no_resume_keeps_nothing_and_forgets(
    checkpoint: Path, text: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(300, monkeypatch)
    ask(checkpoint, text, "When?")
    assert len(list(kept.iterdir())) == 1
    stop_after(300, monkeypatch)
    stopped = ask(checkpoint, text, "When?", "--no-resume")
    assert stopped.exit_code == 130
    assert "Going on" not in stopped.stderr
    assert not list(kept.iterdir())


def test_a_reading_that_has_no_room_just_now_stays(
    checkpoint: Path, text: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(300, monkeypatch)
    ask(checkpoint, text, "When?")

    def refuses(*_: object) -> None:
        raise PotError("There is no room for the pot")

    with monkeypatch.context() as patch:
        patch.setattr(saving, "load_reading", refuses)
        refused = ask(checkpoint, text, "When?")
    assert refused.exit_code == 2
    assert "no room" in refused.stderr
    assert "Going on" in ask(checkpoint, text, "When?").stderr


def test_a_damaged_reading_is_read_anew(
    checkpoint: Path, text: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(300, monkeypatch)
    ask(checkpoint, text, "When?")
    [place] = kept.iterdir()
    data = bytearray(place.read_bytes())
    data[-40] ^= 1
    place.write_bytes(data)
    again = ask(checkpoint, text, "When?")
    assert again.exit_code == 0, again.output
    assert "begins again" in again.stderr
    assert "of them before" not in again.stderr


def test_a_reading_is_kept_now_and_then_and_a_disk_that_refuses_does_not_end_it(
    checkpoint: Path, text: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    save = saving.save_reading

    def save_reading(session: Any, path: Path) -> Any:
        written.append(session.context.num_read)
        if len(written) > 2:
            raise PotError("The pot cannot be saved: No space left on device")
        return save(session, path)

    monkeypatch.setattr("ondevice.session.checkpoints.save_reading", save_reading)
    assert ask(checkpoint, text, "When?").exit_code == 0
    assert not written, "it was read in less time"
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "_MOST_SHARE", 1e9)
    done = ask(checkpoint, text, "When?")
    assert done.exit_code == 0, done.output
    assert len(written) == 3
    assert "Reading goes on, and is not kept while it does" in done.stderr


# -- saving ------------------------------------------------------------------------------------------


def test_a_place_that_cannot_be_written_is_refused_before_reading(checkpoint: Path, text: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "folder.pot").mkdir()
    for place in (tmp_path / "file" / "a.pot", tmp_path / "folder.pot"):
        refused = ask(checkpoint, text, "When?", "--save", place)
        assert refused.exit_code == 2
        assert last_json(refused)["error"]["code"] == "pot"
        assert "Reading" not in refused.stderr
        assert "Loading" not in refused.stderr


def test_a_full_disk_is_said_before_reading(checkpoint: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    refused = ask(checkpoint, text, "When?", "--save", text.with_suffix(".pot"))
    assert refused.exit_code == 2
    assert "are free" in last_json(refused)["error"]["what"]
    assert "Reading:" not in refused.stderr


def test_a_save_that_fails_loses_no_answers_and_no_reading(
    checkpoint: Path, text: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PotError("The pot cannot be saved: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(saving, "save_session", fail)
        failed = ask(checkpoint, text, "When?", "--save", text.with_suffix(".pot"))
    assert failed.exit_code == 2
    report = last_json(failed)
    assert "No space left" in report["error"]["what"]
    assert report["turns"][0]["num_tokens"] > 0
    again = ask(checkpoint, text, "When?", "--save", text.with_suffix(".pot"))
    assert again.exit_code == 0, again.output
    assert "Going on" in again.stderr
    assert same(last_json(again)) == same(report)
    assert not list(kept.iterdir())


# -- kill -9 -----------------------------------------------------------------------------------------

SLOWLY = """
import sys, time, torch
torch.set_num_threads(1)
from ondevice.cli import app
from ondevice.session import checkpoints
from ondevice.cli.progress import ProgressDisplay
from ondevice.events import TokensRead
checkpoints.EVERY_SECONDS = 0.0
checkpoints._MOST_SHARE = 1e9
apply = ProgressDisplay.apply
def slowly(self, event):
    apply(self, event)
    if isinstance(event, TokensRead):
        print(f"read {event.num_read}", file=sys.stderr, flush=True)
        time.sleep(0.03)
ProgressDisplay.apply = slowly
app()
"""


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_as_if_nothing_had_been(checkpoint: Path, text: Path, kept: Path) -> None:
    expected = same(last_json(ask(checkpoint, text, "When?", "Who?")))
    command = [
        sys.executable,
        "-c",
        SLOWLY,
        "ask",
        str(text),
        "When?",
        "Who?",
        "--model",
        str(checkpoint),
        *POT,
        "--json",
    ]
    moments, resumed = random.Random(7), 0
    for _ in range(6):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if line.startswith("read "):
                break
        time.sleep(moments.uniform(0, 0.25))
        process.kill()
        process.communicate()
        resumed += "Going on" in said
    assert resumed >= 3
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Going on" in done.stderr
    assert same(json.loads(done.stdout.splitlines()[-1])) == expected
    assert not [path for path in kept.iterdir() if not path.name.startswith(".")]
