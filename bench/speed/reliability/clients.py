"""Many programs at once at one app: each gets its answer, or is told that it is busy; none waits for ever."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from ondevice_bench.client import Client, RequestFailed
from ondevice_bench.results.result import Row, row

_LIMIT_SECONDS = 600.0


def ask_at_once(text: Path, folder: Path, num_clients: int, options: list[str]) -> list[Row]:
    """Clients that open, read, ask and close at the same time.

    Args:
        folder: the data folder of the app.
        options: of `ondevice app`.
    """
    waits: list[str] = []
    with _app(folder, options) as (url, process):

        def one(number: int) -> str:
            client = Client(url, timeout_seconds=_LIMIT_SECONDS)
            try:
                document = _opened(client, text, waits)
                for _ in client.read(document["id"]):
                    pass
                answer = client.answer(document["id"], f"What is number {number} about?", max_new_tokens=8)
                client.close(document["id"])
                return "answered" if answer.strip() else "empty"
            except RequestFailed as error:
                return f"refused: {error.what}"
            except OSError as error:
                return f"failed: {error!r}"

        one(-1)
        before, began = psutil.Process(process.pid).memory_info().rss, time.perf_counter()
        with ThreadPoolExecutor(num_clients) as pool:
            ends = Counter(pool.map(one, range(num_clients)))
        seconds = time.perf_counter() - began
        after = psutil.Process(process.pid).memory_info().rss
    name, case = "clients at once", {"clients": num_clients}
    return [
        row(name, case, "answered", "clients", [ends["answered"]]),
        row(name, case, "any other end", "clients", [num_clients - ends["answered"]]),
        row(name, case, "told to come again", "times", [len(waits)]),
        row(name, case, "all together", "s", [seconds]),
        row(name, case, "memory grew", "%", [100 * (after / before - 1)]),
    ]


def _opened(client: Client, text: Path, waits: list[str]) -> dict[str, Any]:
    """An open document, as soon as the app has room for one more."""
    end = time.monotonic() + _LIMIT_SECONDS
    while True:
        try:
            return client.open(text)
        except RequestFailed as error:
            if "are open already" not in error.what or time.monotonic() > end:
                raise
            waits.append(error.what)
            time.sleep(0.5)


@contextmanager
def _app(folder: Path, options: list[str]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """An app of its own, until the block ends; gives its address."""
    command = [sys.executable, "-c", "from ondevice.cli import app; app()", "app", "--port", "0", *options]
    environment = os.environ | {"ONDEVICE_DATA": str(folder), "COLUMNS": "200"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield found[0], process
                return
        raise RuntimeError("the app has not started")
    finally:
        process.terminate()
        process.wait(30)
