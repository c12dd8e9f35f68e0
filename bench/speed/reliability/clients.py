"""Many programs at once at one app: each gets its answer, or is told that it is busy; none waits for ever."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import psutil

from ondevice_bench.client import Client, RequestFailed
from ondevice_bench.results.result import Row, row

_LIMIT_SECONDS = 600.0
_AGAIN_SECONDS = 5.0  # between two tries of a client that the app has no room for


def ask_at_once(text: Path, folder: Path, num_clients: int, options: list[str], seconds: float) -> list[Row]:
    """Clients that open, read, ask and close at the same time, each again and again.

    Args:
        folder: the data folder of the app.
        seconds: after which none begins again.
        options: of `ondevice app`.
    """
    waits: list[str] = []
    with app_running(folder, options) as (url, process):
        began = time.perf_counter()

        def has_time() -> bool:
            return time.perf_counter() - began < seconds

        def one(number: int) -> str:
            client = Client(url, timeout_seconds=_LIMIT_SECONDS)
            try:
                document = _opened(client, text, waits, has_time)
                if document is None:
                    return "no room"
                for _ in client.read(document["id"]):
                    pass
                answer = client.answer(document["id"], f"What is number {number} about?", max_new_tokens=8)
                client.close(document["id"])
                return "answered" if answer.strip() else "empty"
            except RequestFailed as error:
                return f"refused: {error.what}"
            except OSError as error:
                return f"failed: {error!r}"

        def again_and_again(number: int) -> list[str]:
            found = [one(number)]
            while has_time():
                found.append(one(number))
            return found

        memory = psutil.Process(process.pid).memory_info
        with ThreadPoolExecutor(num_clients) as pool:
            running = [pool.submit(again_and_again, number) for number in range(num_clients)]
            wait(running, seconds / 10)
            before = memory().rss
            all_ends = [one.result() for one in running]
            ends = Counter(chain.from_iterable(all_ends))
        took, after = time.perf_counter() - began, memory().rss
    name, case = "clients at once", {"clients": num_clients, "seconds": seconds}
    return [
        row(name, case, "answered", "times", [ends["answered"]]),
        row(name, case, "without an answer", "clients", [sum("answered" not in one for one in all_ends)]),
        row(name, case, "any other end", "times", [ends.total() - ends["answered"] - ends["no room"]]),
        row(name, case, "told to come again", "times", [len(waits)]),
        row(name, case, "all together", "s", [took]),
        row(name, case, "memory grew after a tenth", "%", [100 * (after / before - 1)]),
    ]


def _opened(client: Client, text: Path, waits: list[str], has_time: Callable[[], bool]) -> dict[str, Any] | None:
    """An open document, as soon as the app has room for one more; None where it has none in time."""
    while True:
        try:
            return client.open(text)
        except RequestFailed as error:
            if "are open already" not in error.what:
                raise
            waits.append(error.what)
        if not has_time():
            return None
        time.sleep(_AGAIN_SECONDS)


@contextmanager
def app_running(folder: Path, options: list[str]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """An app of its own that has its model, until the block ends; gives its address."""
    process = started(folder, "app", "--port", "0", *options, stderr=subprocess.STDOUT)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                _await_model(Client(found[0]))
                yield found[0], process
                return
        raise RuntimeError("the app has not started")
    finally:
        process.terminate()
        process.wait(30)


def _await_model(client: Client) -> None:
    end = time.monotonic() + _LIMIT_SECONDS
    while True:
        try:
            if client.health()["status"] == "ok":
                return
        except RequestFailed:
            if time.monotonic() > end:
                raise
        time.sleep(0.2)


def started(folder: Path, *command: str, **streams: Any) -> subprocess.Popen[str]:
    """A process of a command that keeps what it keeps in this folder, and breaks no lines."""
    return subprocess.Popen(
        [sys.executable, "-c", "from ondevice.cli import app; app()", *command],
        env=os.environ | {"ONDEVICE_DATA": str(folder), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        **streams,
    )
