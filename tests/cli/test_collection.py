"""`ondevice collection` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.cli.terminal import printable

pytestmark = pytest.mark.usefixtures("one_thread")

ANSWERS = ["--max-new-tokens", "6", "--no-chat"]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    texts = {"lamp.txt": "The lamp is lit at dusk by the keeper. " * 8, "boat.txt": "A boat went out at noon. " * 7}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return [tmp_path / name for name in texts]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_one_question_over_files_and_saved_pots(checkpoint: Path, files: list[Path], tmp_path: Path) -> None:
    pot, model = tmp_path / "lamp.pot", ["--model", checkpoint]
    assert run("ask", files[0], "--save", pot, *model, *ANSWERS).exit_code == 0
    result = run("collection", pot, files[1], "--ask", "Zzxj?", "--json", *model, *ANSWERS)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["documents"] == ["lamp.txt", "boat.txt"]
    assert report["turns"][0]["documents"] == report["documents"]
    assert printable(report["turns"][0]["text"]).strip()[:3] in result.stdout
    places = {passage["place"].partition(",")[0] for passage in report["turns"][0]["sources"]}
    assert places
    assert places <= {"lamp.txt", "boat.txt"}
    assert "Searched: 2 documents. Read for this question: lamp.txt, boat.txt." in " ".join(result.stderr.split())


def test_only_documents_that_have_its_words_are_read_for_it(checkpoint: Path, files: list[Path]) -> None:
    result = run("collection", *files, "--ask", "Boat, noon?", "--json", "--model", checkpoint, *ANSWERS)
    assert result.exit_code == 0, result.output
    (turn,) = json.loads(result.stdout.splitlines()[-1])["turns"]
    assert turn["documents"] == ["boat.txt"]
    assert {passage["place"] for passage in turn["sources"]} <= {"boat.txt, part 1"}


@pytest.mark.parametrize(
    ("arguments", "words"), [(["x.txt"], "no question"), (["-", "--ask", "Who?"], "no place for a stream")]
)
def test_what_cannot_be_asked_is_said(checkpoint: Path, arguments: list[str], words: str) -> None:
    result = run("collection", *arguments, "--model", checkpoint)
    assert result.exit_code == 2
    assert words in result.stderr


def test_what_cannot_be_read_is_left_out_of_a_folder_and_refused_by_name(checkpoint: Path, files: list[Path]) -> None:
    empty = files[0].with_name("empty.txt")
    empty.write_text("")
    asked = ["--ask", "Boat, noon?", "--model", checkpoint, *ANSWERS]
    found = run("collection", files[0].parent, *asked)
    assert found.exit_code == 0, found.output
    assert "Left out: " in found.stderr
    assert "empty.txt" in found.stderr
    assert run("collection", empty, files[1], *asked).exit_code == 2
