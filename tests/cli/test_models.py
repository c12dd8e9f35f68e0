"""`ondevice models`: the catalogue on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.model.loading import model_file
from ondevice.model.loading.catalogue import CATALOGUE


def run(*arguments: str) -> tuple[int, dict]:
    done = CliRunner().invoke(app, ["models", *arguments, "--json"])
    return done.exit_code, json.loads(done.stdout.splitlines()[-1])


def test_the_list_says_what_is_here_and_what_suits_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path))
    code, listed = run("list")
    assert code == 0
    rows = {row["name"]: row for row in listed["models"]}
    assert list(rows) == list(CATALOGUE)
    assert sum(row["is_best_here"] for row in rows.values()) == 1
    assert rows["qwen2.5-coder-0.5b"]["path"] is None
    assert rows["qwen2.5-coder-0.5b"]["bytes"] == 491_400_064
    assert [name for name, row in rows.items() if row["was_run"]] == [
        "smollm2-135m",
        "qwen2.5-coder-0.5b",
        "qwen2.5-coder-1.5b",
    ]
    shown = CliRunner().invoke(app, ["models", "list"], env={"COLUMNS": "120"})
    lines = {line.split()[0]: line for line in shown.stdout.splitlines() if line}
    assert "not run by us" in lines["qwen3.5-2b"]
    assert "not run by us" not in lines["qwen2.5-coder-1.5b"]
    assert "Not run by us: its family is tested" in shown.stderr


def test_unknown_names_are_refused_with_those_there_are() -> None:
    for command in ("fetch", "remove"):
        code, printed = run(command, "gpt-9")
        assert code == 2
        assert "qwen2.5-coder-0.5b" in printed["error"]["fix"]


def test_fetch_and_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path))
    row, path = CATALOGUE["qwen2.5-coder-0.5b"], tmp_path / "qwen2.5-coder-0.5b" / "file"

    def ensure(model: object, report: object, *, verify: bool) -> Path:
        assert (model, verify) == (row, True)
        path.parent.mkdir()
        path.write_bytes(b"12345")
        return path

    monkeypatch.setattr(model_file, "ensure_file", ensure)
    assert run("fetch", row.name) == (0, {"name": row.name, "path": str(path)})
    assert run("remove", row.name) == (0, {"name": row.name, "bytes_freed": 5})
    assert run("remove", row.name) == (0, {"name": row.name, "bytes_freed": 0})


def test_what_came_with_an_image_is_named_and_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ONDEVICE_MODELS", str(tmp_path / "models"))
    row = CATALOGUE["qwen2.5-coder-0.5b"]
    path = tmp_path / "models" / row.name / row.file
    monkeypatch.setattr(model_file, "cached_file", lambda model: path if model is row else None)
    listed = {one["name"]: one["path"] for one in run("list")[1]["models"]}
    assert listed[row.name] == str(path)
    code, printed = run("remove", row.name)
    assert code == 2
    assert "ONDEVICE_MODELS" in printed["error"]["fix"]
    done = CliRunner().invoke(app, ["doctor", "--json"])
    findings = {one["topic"]: one for one in json.loads(done.stdout.splitlines()[-1])["findings"]}
    assert findings["models"]["text"] == f"{row.title} in {tmp_path / 'models'}, which is only read"
