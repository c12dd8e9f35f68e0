"""Work that goes on without a page: a page that is reloaded must not end the reading it had begun."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

_T = TypeVar("_T")


def detached(steps: Iterator[_T]) -> Iterator[_T]:
    """The same values, from a thread of their own, which runs to the end also where this generator is closed.

    What `steps` raises is raised here, as long as a page watches.
    """
    made: queue.SimpleQueue[tuple[str, _T | BaseException | None]] = queue.SimpleQueue()
    is_watched = threading.Event()
    is_watched.set()

    def work() -> None:
        try:
            for value in steps:
                if is_watched.is_set():
                    made.put(("value", value))
        except BaseException as error:
            made.put(("error", error))
        else:
            made.put(("end", None))

    threading.Thread(target=work, name="action", daemon=True).start()
    try:
        while True:
            kind, value = made.get()
            if kind == "end":
                return
            if isinstance(value, BaseException):
                raise value
            yield value  # type: ignore[misc]
    finally:
        is_watched.clear()
