"""Signals at random moments, for each program that works on documents: it ends, soon and without a traceback, and
nothing is lost that it has said to be kept."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from ondevice_bench.client import Client, RequestFailed
from tests.builders.models import save_checkpoint, tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGTERM, signal.SIGKILL]
NUM_SIGNALS = 5  # of each test: 20 of `ask`, 10 of the app, 8 of MCP and 2 of batches make 200
END_SECONDS = 60.0
TEXT = "The keeper lit the lamp at dusk. It burned until the morning, and the boats came home. "
# The command, with little time between two copies of what is read.
_CHILD = """
from ondevice.cli import app
from ondevice.session import checkpoints
checkpoints.EVERY_SECONDS, checkpoints._MOST_SHARE = 0.2, 1.0
app()
"""


class Made:
    """A model, a text, and how long a command takes that nothing stops.

    Attributes:
        answer: of `ask` to that text.
    """

    def __init__(self, folder: Path) -> None:
        self.model, self.text, self.questions = folder / "tiny", folder / "lamp.txt", folder / "q.jsonl"
        save_checkpoint(tiny_model("llama"), self.model)
        self.text.write_text("".join(f"{number}. {TEXT}" for number in range(60)))
        self.questions.write_text('{"question": "When?"}\n')
        began = time.monotonic()
        whole = self.start(folder / "whole", "ask", str(self.text), "When?", "--json")
        self.answer = json.loads(whole.communicate()[0].splitlines()[-1])["answer"]
        self.seconds = time.monotonic() - began

    def start(self, data: Path, command: str, *arguments: str) -> subprocess.Popen[str]:
        """The process of a command, with its own folder for data."""
        options = ["--model", str(self.model), "--device", "cpu", "--capacity", "512", "--max-new-tokens", "8"]
        return subprocess.Popen(
            [sys.executable, "-c", _CHILD, command, *arguments, *options],
            env=os.environ | {"ONDEVICE_DATA": str(data), "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            # A shell lets what it starts in the background ignore Ctrl-C, and that is handed down.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("signals"))


def ended(process: subprocess.Popen[str], number: signal.Signals) -> tuple[str, str]:
    """What a process has said that was sent this signal; it ends in time, and with a sentence or in silence."""
    process.send_signal(number)
    out, err = process.communicate(timeout=END_SECONDS)
    # Where nobody handles it yet: while Python starts, modules are imported, and the commands are put together.
    is_early = number is signal.SIGINT and re.search('init_import_site|File "<string>", line [23]|in get_command', err)
    assert is_early or "Traceback" not in err, err
    assert "***" not in err, err
    return out, err


def count(text: str, pattern: str) -> int:
    """The last number that a pattern finds; 0 where it finds none."""
    found = re.findall(pattern, text)
    return int(found[-1].replace(",", "")) if found else 0


@pytest.mark.parametrize("seed", range(20))
def test_ask_goes_on_where_it_said_that_it_would(seed: int, made: Made, tmp_path: Path) -> None:
    rng, kept = Random(seed), 0
    command = ["ask", str(made.text), "When?", "--json"]
    for _ in range(NUM_SIGNALS):
        process = made.start(tmp_path, *command)
        time.sleep(rng.uniform(0, made.seconds))
        out, err = ended(process, rng.choice(SIGNALS))
        if "Going on where" in err:
            assert count(err, r"Going on where reading was broken off: ([\d,]+) of") >= kept
        kept = 0 if "ledger" in out else max(kept, count(err, r"Stopped: ([\d,]+) of .* They are kept"))
    out, err = made.start(tmp_path, *command).communicate(timeout=5 * END_SECONDS)
    assert count(err, r"Going on where reading was broken off: ([\d,]+) of") >= kept
    assert json.loads(out.splitlines()[-1])["answer"] == made.answer
    assert not list((tmp_path / "readings").glob("*.reading")), "it is done"


@pytest.mark.parametrize("seed", range(10))
def test_the_app_has_its_documents_again(seed: int, made: Made, tmp_path: Path) -> None:
    rng, read, saved = Random(seed), set[str](), set[str]()
    for index in range(NUM_SIGNALS + 1):
        process = made.start(tmp_path, "app", "--port", "0")
        if index and rng.random() < 0.2:  # while it starts
            time.sleep(rng.uniform(0, made.seconds))
            ended(process, rng.choice(SIGNALS))
            continue
        assert process.stdout is not None
        [url] = next(found for line in process.stdout if (found := re.findall(r"http://127\.0\.0\.1:\d+", line)))
        client = Client(url, timeout_seconds=END_SECONDS)
        assert read <= {document["id"] for document in once_started(client)}
        assert saved <= {entry["id"] for entry in client.library()}
        number, killer = rng.choice(SIGNALS), None
        try:
            for document in sorted(read):
                assert client.answer(document, "When?", max_new_tokens=4)
            delay = rng.uniform(0, made.seconds)
            killer = subprocess.Popen(["sh", "-c", f"sleep {delay}; kill -{int(number)} {process.pid}"])
            while True:
                document = client.open(made.text)["id"]
                for _ in client.read(document):
                    pass
                read.add(document)
                saved.add(client.save(document)["id"])
                if rng.random() < 0.5 or len(read) > 3:
                    client.close(read.pop())
        except (OSError, httpx.HTTPError, RequestFailed):  # the connection has ended
            if killer is None:
                raise
        killer.wait()
        ended(process, number)


def once_started(client: Client) -> list[dict[str, Any]]:
    """The documents of an app, which says so while its model is still to come."""
    end = time.monotonic() + 5 * END_SECONDS
    while True:
        try:
            return client.documents()
        except RequestFailed:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


@pytest.mark.parametrize("seed", range(8))
def test_a_server_of_an_assistant_ends(seed: int, made: Made, tmp_path: Path) -> None:
    rng = Random(seed)
    for _ in range(NUM_SIGNALS):
        process = made.start(tmp_path, "mcp", "--root", str(made.text.parent))
        assert process.stdin is not None
        for line in messages(made.text):
            process.stdin.write(json.dumps({"jsonrpc": "2.0"} | line) + "\n")
        process.stdin.flush()
        time.sleep(rng.uniform(0, made.seconds))
        number = rng.choice(SIGNALS)
        process.send_signal(number)
        process.wait(END_SECONDS)  # while its standard input is open
        ended(process, number)


def messages(path: Path) -> list[dict[str, Any]]:
    """Messages that open a file and ask for how it goes."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    calls = [{"name": "open", "arguments": {"path": str(path)}}, *[{"name": "status", "arguments": {}}] * 20]
    return [
        {"id": 0, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        *({"id": id, "method": "tools/call", "params": call} for id, call in enumerate(calls, 1)),
    ]


@pytest.mark.parametrize("seed", range(2))
def test_a_batch_goes_on_and_does_nothing_twice(seed: int, made: Made, tmp_path: Path) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed here")
    parquet = pytest.importorskip("pyarrow.parquet")
    rng, pots = Random(seed), dict[Path, int]()
    (corpus := tmp_path / "corpus").mkdir()
    for number in range(12):
        (corpus / f"{number}.txt").write_text(f"Document {number}. {TEXT * 40}")
    command = ["batch", str(corpus), "--out", str(tmp_path / "out"), "--questions", str(made.questions), "--json"]
    for _ in range(NUM_SIGNALS):
        process = made.start(tmp_path, *command)
        time.sleep(rng.uniform(0, 8 * made.seconds))
        number = rng.choice(SIGNALS[:3])  # Ray's own processes would outlive a kill by some seconds
        _, err = ended(process, number)
        assert process.returncode in (0, 130) or "Starting Ray" not in err or "Listing" not in err, err
        now = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "pots").glob("*.pot")}
        assert pots.items() <= now.items(), "what was read is read once"
        pots = now
    out, err = made.start(tmp_path, *command).communicate(timeout=10 * END_SECONDS)
    told = json.loads(out.splitlines()[-1])
    assert (told["documents"], told["documents_failed"], told["answers"], told["answers_failed"]) == (12, 0, 12, 0), err
    rows = parquet.read_table(tmp_path / "out" / "documents.parquet").to_pylist()
    assert len({row["id"] for row in rows}) == len(rows) == 12
