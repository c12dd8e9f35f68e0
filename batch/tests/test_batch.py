"""`ondevice batch` on a Ray of its own: tables, answers, a second run that reads nothing again, and what it refuses."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.errors import ConfigError
from ondevice_batch.cluster import Share, running
from tests.builders.models import save_checkpoint, tiny_model

parquet = pytest.importorskip("pyarrow.parquet")
if importlib.util.find_spec("ray") is None:  # not imported: it reads its environment then
    pytest.skip("Ray is not installed here", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
OPTIONS = ["--capacity", "512", "--max-new-tokens", "6", "--no-chat", "--device", "cpu", "--json"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a corpus with a broken file, a copy, a pipe and a name that is no UTF-8 in it, and questions."""
    folder = tmp_path_factory.mktemp("batch")
    save_checkpoint(tiny_model("llama"), folder / "tiny")
    corpus = folder / "corpus"
    corpus.mkdir()
    for number in range(4):
        (corpus / f"{number}.txt").write_text(f"Document {number}. The lamp is lit at dusk. " * (20 + 10 * number))
    (corpus / "copy.txt").write_text((corpus / "1.txt").read_text())
    (corpus / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    os.mkfifo(corpus / "pipe.txt")
    Path(os.fsdecode(os.path.join(os.fsencode(corpus), b"caf\xe9.txt"))).write_text("The lamp is out. " * 30)
    (folder / "q.jsonl").write_text('{"question": "Who?"}\n{"id": "when", "question": "When?"}\n')
    return folder


def command(made: Path, out: str = "out") -> list[str]:
    batch = ["batch", str(made / "corpus"), "--out", str(made / out), "--model", str(made / "tiny"), *OPTIONS]
    return [sys.executable, "-c", "from ondevice.cli import app; app()", *batch]


def batch(made: Path, *more: str) -> Any:
    done = subprocess.run([*command(made), *more], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_corpus_is_read_asked_and_gone_on_with(made: Path) -> None:
    report = batch(made)
    assert (report["documents"], report["documents_failed"], report["answers"]) == (7, 2, 0)
    pots = {path: path.stat().st_mtime_ns for path in (made / "out" / "pots").glob("*.pot")}
    assert len(pots) == 5
    (made / "corpus" / "new.txt").write_text("A boat went out at noon. " * 30)
    report = batch(made, "--questions", str(made / "q.jsonl"))
    assert (report["documents"], report["answers"], report["answers_failed"]) == (8, 16, 4)
    assert all(path.stat().st_mtime_ns == when for path, when in pots.items()), "none is read again"
    rows = parquet.read_table(made / "out" / "documents.parquet").to_pylist()
    assert len({row["id"] for row in rows}) == len(rows) == 8
    assert str(made / "corpus" / r"caf\xe9.txt") in {row["uri"] for row in rows}
    assert sum(bool(json.loads(row["also"])) for row in rows) == 1
    lines = [json.loads(line) for line in (made / "out" / "answers.jsonl").read_text().splitlines()]
    assert {(line["id"], line["question_id"]) for line in lines} == {
        (row["id"], q) for row in rows for q in ("1", "when")
    }
    assert {line["error"]["code"] for line in lines if line["error"]} == {"document"}
    refused = CliRunner().invoke(
        app,
        ["batch", str(made / "corpus"), "--out", str(made / "out"), "--model", str(made / "tiny"), "--capacity", "600"],
    )
    assert refused.exit_code == 2
    assert "made with other settings" in refused.output
    assert "--capacity" in refused.output
    assert "--policy" not in refused.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_batch_that_is_stopped_ends_with_a_sentence(number: signal.Signals, made: Path) -> None:
    with subprocess.Popen(
        command(made, f"stopped-{int(number)}"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        before = list[str]()
        while not before or not before[-1].startswith("Reading"):
            before.append(process.stderr.readline())
            assert before[-1], before
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "Stopped. What is done is kept; the same command goes on from there."
    assert "***" not in err
    assert "Traceback" not in err
    assert json.loads(out.splitlines()[-1])["error"]["code"] == "interrupted"


_FAMILY = """
import json, psutil
from ondevice_batch.cluster import Share, running
with running("", Share(engines=1, cpus=1)) as share:
    import ray
    from ray._common.usage import usage_lib
    family = [child for child in psutil.Process().children(recursive=True) if child.is_running()]
    listening = [
        (child.name(), one.laddr.ip)
        for child in family
        for one in child.net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    ]
    cpus, reports = ray.cluster_resources()["CPU"], usage_lib.usage_stats_enabled()
    print(json.dumps([share.engines, share.cpus, reports, listening, cpus]))
"""


def test_a_ray_of_our_own_listens_on_this_machine_alone_and_reports_nothing() -> None:
    """In a process of its own: what Ray takes from the environment it takes when it is imported."""
    told = subprocess.run([sys.executable, "-c", _FAMILY], capture_output=True, text=True, check=True, timeout=200)
    engines, cpus, reports, listening, all_cpus = json.loads(told.stdout.splitlines()[-1])
    assert (engines, cpus, reports, all_cpus) == (1, 1, False, 3)
    assert "raylet" in [name for name, _ in listening]
    assert {ip for _, ip in listening} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


def test_a_cluster_that_is_not_there_is_said_to_be_so() -> None:
    with pytest.raises(ConfigError, match="no Ray to work on"), running("127.0.0.1:9", Share()):
        pass


def test_without_the_extra_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = CliRunner().invoke(app, ["batch", str(tmp_path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    told = " ".join(done.output.split())
    assert "python -m pip install 'ray[data]>=" in told
    assert "fsspec>=" in told
