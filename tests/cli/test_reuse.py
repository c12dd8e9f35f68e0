"""A document that the library holds, read with the same model and settings, is opened instead of read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.cli.options import PotOptions
from ondevice.config import GenerationConfig
from ondevice.documents import read
from ondevice.library.library import Entry, Library
from ondevice.session.content_address import content_address
from ondevice.session.engine import Engine

pytestmark = pytest.mark.usefixtures("one_thread")

POT = {"capacity": "400", "keep": 96, "reserve": 160, "step": 64}
FOUND, OPENED = "The library holds this document, read with these settings", "none read again"


@pytest.fixture
def saved(checkpoint: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """What the app saves when the document was read with these settings."""
    monkeypatch.setenv("ONDEVICE_DATA", str(tmp_path / "data"))
    config = PotOptions(model=str(checkpoint), **POT).config(GenerationConfig(chat=False))
    engine = Engine.load(config)
    session = engine.session()
    for _ in session.read(read(text)):
        pass
    address = content_address(engine.loaded, session.context.tokens.document, config)
    return Library().save(session, {}, address=address)


def run(command: str, checkpoint: Path, *arguments: object, **changes: Any) -> Result:
    pot = [f"--{name}={value}" for name, value in (POT | changes).items()]
    line = [command, *arguments, "--model", checkpoint, *pot, "--no-chat", "--max-new-tokens", "6", "--json"]
    return CliRunner().invoke(app, [str(argument) for argument in line])


def report(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def test_it_is_opened_and_answers_as_if_it_had_been_read(checkpoint: Path, text: Path, saved: Entry) -> None:
    opened = run("ask", checkpoint, text, "When?", "Who?")
    read_anew = run("ask", checkpoint, text, "When?", "Who?", "--read-again")
    told = " ".join(opened.stderr.split())
    assert f"{FOUND} (“lamp.txt”, saved {saved.saved[:10]}): opened, {saved.num_tokens:,} tokens, {OPENED}" in told
    assert FOUND not in read_anew.stderr
    assert "\nRead " in read_anew.stderr
    assert "\nRead " not in opened.stderr
    first, second = report(opened), report(read_anew)
    assert first["answers"] == second["answers"]
    assert first["ledger"] == second["ledger"]
    assert len(Library().entries()) == 1, "asking changes nothing there"


def test_one_question_is_answered_by_a_reading_for_any(
    checkpoint: Path, text: Path, saved: Entry, tmp_path: Path
) -> None:
    assert OPENED in run("ask", checkpoint, text, "When?").stderr
    pot = tmp_path / "lamp.pot"
    result = run("ask", checkpoint, text, "--save", pot)
    assert OPENED in result.stderr
    assert pot.is_file()
    assert not list(tmp_path.glob("*.tensor")), "what is saved elsewhere is one file"
    assert report(run("ask", checkpoint, pot, "When?"))["ledger"]["tokens_read"] == saved.num_tokens


def test_other_settings_or_another_text_are_read(checkpoint: Path, text: Path, saved: Entry) -> None:
    assert FOUND not in run("ask", checkpoint, text, "When?", keep=64).stderr
    text.write_text(text.read_text() + "!")
    assert FOUND not in run("ask", checkpoint, text, "When?").stderr


def test_what_cannot_be_opened_is_read(checkpoint: Path, text: Path, saved: Entry) -> None:
    (Library().folder / saved.id / "pot.safetensors").write_bytes(b"no pot")
    result = run("ask", checkpoint, text, "When?")
    assert "cannot be opened, and is read again" in " ".join(result.stderr.split())
    assert report(result)["ledger"]["tokens_read"] == saved.num_tokens
