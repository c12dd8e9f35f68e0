"""Whatever a process was started with: closed streams, a full disk, ASCII, and bytes that are no text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ondevice.cli import conversation
from ondevice.errors import ConfigError
from tests.builders.models import save_checkpoint, tiny_model

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="shells there close no streams")

COMMAND = "import os, sys; sys.argv[0] = 'ondevice'; from ondevice.cli import app; app()"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    save_checkpoint(tiny_model("llama"), folder / "tiny")
    for name in (b"a.txt", b"caf\xe9.txt"):
        (Path(os.fsdecode(os.path.join(os.fsencode(folder), name)))).write_text("The lamp was lit at dusk.\n" * 20)
    return folder


def run(place: Path, arguments: bytes, redirected: bytes = b"", **variables: str) -> tuple[int, str, str]:
    """The command in a shell, in that folder: exit status, output and errors."""
    line = b'exec "$PYTHON" -c "$COMMAND" ' + arguments + b" --model tiny --max-new-tokens 3 " + redirected
    environment = os.environ | {
        "PYTHON": sys.executable, "COMMAND": COMMAND, "ONDEVICE_DATA": str(place / "data"),
        "ONDEVICE_CACHE": str(place / "cache"), "OMP_NUM_THREADS": "1", **variables,
    }  # fmt: skip
    done = subprocess.run([b"/bin/sh", b"-c", line], cwd=place, env=environment, capture_output=True, timeout=300)
    assert b"Traceback" not in done.stderr, done.stderr.decode(errors="replace")
    assert b"Exception ignored" not in done.stderr
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


@pytest.mark.slow
def test_a_name_and_a_question_that_are_no_utf8(place: Path) -> None:
    status, out, _ = run(place, b"ask caf\xe9.txt 'caf\xe9?' --json")
    assert status == 0
    assert "\udce9" not in out


@pytest.mark.slow
def test_a_typed_question_that_is_no_utf8(place: Path) -> None:
    (place / "typed").write_bytes(b"caf\xe9?\n")
    status, out, _ = run(place, b"ask a.txt -i --json", b"<typed", PYTHONUTF8="1", PYTHONIOENCODING="utf-8:strict")
    assert status == 0
    assert '"caf' in out


def test_who_cannot_be_asked_is_told_so_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "_TERMINAL", "/nowhere/tty")
    with pytest.raises(ConfigError, match="Nobody can be asked"):
        conversation.typed_questions(document_is_stdin=True)


@pytest.mark.slow
def test_a_closed_standard_input_holds_nothing(place: Path) -> None:
    status, _, err = run(place, b"ask - 'When?'", b"<&-")
    assert status == 2
    assert "no text" in err.lower() or "0 bytes" in err


@pytest.mark.slow
def test_standard_output_may_be_closed_full_or_left(place: Path) -> None:
    assert run(place, b"ask a.txt 'When?'", b">&-")[0] == 0
    if os.path.exists("/dev/full"):
        status, _, err = run(place, b"ask a.txt 'When?' --json", b">/dev/full")
        assert status == 2
        assert "No space left" in err


@pytest.mark.slow
def test_an_ascii_terminal_is_enough(place: Path) -> None:
    status, _, _ = run(place, "ask a.txt 'Wann läuft es → ?'".encode(), PYTHONIOENCODING="ascii", LC_ALL="C")
    assert status == 0
