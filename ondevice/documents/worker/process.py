"""The parent's handle on one worker: start it, hear it, kill it. Knows nothing of documents."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, cast

from ondevice.documents.formats.reader import Request
from ondevice.documents.worker.limits import Limits
from ondevice.documents.worker.wire import WireError, read_message, write_message
from ondevice.errors import OndeviceError

# -P: no module is taken from the folder that the user happens to stand in. Appended and not in front, so that
# nothing beside this package can hide the standard library.
_BOOTSTRAP = "import sys; sys.path.append(sys.argv[1]); from ondevice.documents.worker.worker import main; main()"
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[3])
# The worker gets no more of the environment than Python needs: no tokens, no proxies.
_ENVIRONMENT = frozenset(
    {"PATH", "HOME", "USERPROFILE", "APPDATA", "SYSTEMROOT", "LANG", "LC_ALL", "LC_CTYPE"}
    | {"TMPDIR", "TEMP", "TMP", "LD_LIBRARY_PATH", "VIRTUAL_ENV"}
)
_END = object()


class Worker(contextlib.AbstractContextManager["Worker"]):
    """A running worker. Use it as a context manager: leaving the block kills and reaps it.

    Args:
        watch: sees every message when it arrives, in another thread; the worker is killed at once if it raises.
    """

    def __init__(
        self, request: Request, limits: Limits, watch: Callable[[dict[str, Any]], None] = lambda message: None
    ) -> None:
        self._watch = watch
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOTSTRAP, _PACKAGE_ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={key: value for key, value in os.environ.items() if key in _ENVIRONMENT or key.startswith("PYTHON")},
            close_fds=True,
        )
        self.last_message_time = time.monotonic()
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # A thread, because waiting for a pipe with a timeout needs one on some systems, and because the worker
        # must never wait for a slow reader of our events: its time on a page would then not be its own.
        self._pump = threading.Thread(target=self._receive_all, name="document-worker", daemon=True)
        self._pump.start()
        # The password goes through the pipe: arguments and environment can be seen by others.
        with contextlib.suppress(BrokenPipeError), cast(IO[bytes], self._process.stdin) as stdin:
            message = {"request": asdict(request), "limits": asdict(limits), "parent": os.getpid()}
            write_message(cast(Any, stdin), message, is_ascii=True)

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._pump.join()
        cast(IO[bytes], self._process.stdout).close()

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """The next message; None after `timeout` seconds without one.

        Raises:
            EOFError: the worker has ended; its text says how, for the user.
            OndeviceError: `watch` has raised it.
        """
        try:
            message = self._messages.get(timeout=timeout)
        except queue.Empty:
            return None
        if message is _END:
            is_out_of_time = -self._process.wait() == getattr(signal, "SIGXCPU", None)
            raise EOFError("the limit of processor time was reached" if is_out_of_time else "the parser broke down")
        if isinstance(message, OndeviceError):
            raise message
        return cast("dict[str, Any]", message)

    def _receive_all(self) -> None:
        stdout = cast(Any, self._process.stdout)
        # What is left after a broken message cannot be trusted: it counts as the end.
        with contextlib.suppress(WireError, OSError, ValueError):
            try:
                while (message := read_message(stdout)) is not None:
                    self.last_message_time = time.monotonic()
                    self._watch(message)
                    self._messages.put(message)
            except OndeviceError as error:
                self._messages.put(error)
        self._process.kill()
        self._messages.put(_END)
