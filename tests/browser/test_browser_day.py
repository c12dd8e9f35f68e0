"""One day with the app, seen by strace: nothing of it, and nothing that it starts, goes to another machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice_bench.client import Client
from tests.browser.driver import new_context, visiting
from tests.builders.models import save_checkpoint, tiny_model
from tests.test_signals import once_started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TEXT = "The keeper lit the lamp at dusk. It burned until the morning, and the boats came home. "
# Addresses of calls that reach out; where a name is looked up a packet goes to its server by one of these, too.
_CALLS = "connect,sendto,sendmsg,sendmmsg"
_ADDRESS = re.compile(r'sin_addr=inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)"')


def outside(trace: str) -> list[str]:
    """Addresses in a trace that are not of this machine."""
    found = (one or other for one, other in _ADDRESS.findall(trace))
    return [address for address in found if not address.startswith("127.") and address != "::1"]


def test_an_address_of_another_machine_is_seen() -> None:
    there = 'connect(3, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("192.0.2.1")}, 16) = 0\n'
    there += 'sendto(3, "x", 1, 0, {sa_family=AF_INET6, inet_pton(AF_INET6, "2001:db8::1", &sin6_addr)}, 28) = 1\n'
    assert outside(there + there.replace("192.0.2.1", "127.0.0.1").replace("2001:db8::1", "::1")) == [
        "192.0.2.1",
        "2001:db8::1",
    ]


@contextmanager
def app(data: Path, model: Path, trace: Path) -> Iterator[tuple[str, Client]]:
    """The app under strace, until it has ended: its address, and a client of it."""
    program = [sys.executable, "-c", "from ondevice.cli import app; app()", "app", "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(
        ["strace", "-f", "-qq", "-e", f"trace={_CALLS}", "-o", str(trace), *program, "--model", str(model)],
        env=os.environ | {"ONDEVICE_DATA": str(data), "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        [url] = next(found for line in process.stdout if (found := re.findall(r"http://127\.0\.0\.1:\d+", line)))
        client = Client(url, timeout_seconds=300)
        once_started(client)
        yield url, client
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=120)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed here")
def test_a_whole_day_stays_on_this_machine(program: Any, tmp_path: Path) -> None:
    save_checkpoint(tiny_model("llama"), model := tmp_path / "tiny")
    (path := tmp_path / "lamp.txt").write_text(TEXT * 30)
    traces = [tmp_path / "morning", tmp_path / "evening"]
    with app(tmp_path / "data", model, traces[0]) as (_, client):
        document = client.open(path)["id"]
        for _ in client.read(document, capacity=512):
            pass
        assert client.answer(document, "When?", max_new_tokens=4)
        entry = client.save(document)["id"]
    with app(tmp_path / "data", model, traces[1]) as (url, client):
        assert [one["id"] for one in client.documents()] == [document]
        assert client.answer(document, "When?", max_new_tokens=4)
        client.close(document)
        client.delete(entry)
        assert (client.documents(), client.library()) == ([], [])
        with visiting(new_context(program), url) as visit:
            visit.page.click("#od-sample")
            visit.state("read")
            visit.ask("Who is the keeper?")
            visit.until(lambda: visit.page.locator("#od-chat .thought-group").count() == 1, "it is answered")
            kept = partial((tmp_path / "data" / "open").glob, "*.json")
            visit.until(lambda: len(list(kept())) == 1, "it is kept")
            visit.page.locator(".od-library > summary").click()
            visit.page.get_by_role("button", name="Forget everything").click()
            visit.page.get_by_role("button", name="Forget for good").click()
            visit.state("empty")
            assert not list(kept()), "it is forgotten"
            assert visit.foreign == []
    for trace in map(Path.read_text, traces):
        assert trace, "strace has seen nothing"
        assert outside(trace) == []
