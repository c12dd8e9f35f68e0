"""Streams of the programming interface for work that takes time: one JSON object a line, and an end to it all
when no client listens any more."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse

from ondevice.api.failures import error_json
from ondevice.config import key_name
from ondevice.errors import OndeviceError
from ondevice.events import AnswerFinished, HeadCounts
from ondevice.serving.job_events import Failed, JobEvent, QuestionFailed, ScanFinished, Working

_T = TypeVar("_T")
_POLL_SECONDS = 0.25


def event_json(event: JobEvent) -> dict[str, Any]:
    """An event: its name in `event`, and its fields but for the large arrays."""
    match event:
        case Failed():  # the status of the response has long been sent
            return {"event": "error", "error": error_json(event.error, event.text)}
        case QuestionFailed():
            error = event.error
            told: dict[str, Any] = {"text": error.text(key_name) if isinstance(error, OndeviceError) else event.text}
        case ScanFinished():
            told = event.report
        case AnswerFinished():
            told = event.to_json() | {"ledger": event.ledger.to_dict()}
        case _:
            told = {
                name: value
                for name, value in asdict(event).items()
                if not isinstance(getattr(event, name), np.ndarray | HeadCounts)
            }
    return {"event": event_name(type(event))} | told


def event_name(kind: type) -> str:
    """TokensRead -> tokens_read."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def _line(event: JobEvent) -> bytes:
    if isinstance(event, Working):
        return b""
    text = json.dumps(event_json(event), default=np.generic.item)  # ASCII: many clients end a line at U+2028, too
    return text.encode() + b"\n"


def stream(
    job: Iterator[JobEvent],
    stop: Callable[[], None],
    encode: Callable[[JobEvent], bytes] = _line,
    media_type: str = "application/x-ndjson",
) -> StreamingResponse:
    """A response of one line for each event but `Working`, or of what `encode` makes of them. The job runs in a thread
    of its own from now on.

    Args:
        job: it ends soon after `stop` was called.
        stop: called when the client has gone before they ended.
    """
    loop, made, has_ended = asyncio.get_running_loop(), asyncio.Queue[bytes | None](), threading.Event()

    def tell(line: bytes | None) -> None:
        try:
            loop.call_soon_threadsafe(made.put_nowait, line)
        except RuntimeError:  # the server has been shut down meanwhile
            stop()

    def work() -> None:
        try:
            with closing(job):  # type: ignore[type-var]
                for event in job:
                    if part := encode(event):
                        tell(part)
        finally:
            has_ended.set()
            tell(None)

    async def lines() -> AsyncIterator[bytes]:
        try:
            while (line := await made.get()) is not None:
                yield line
        finally:
            if not has_ended.is_set():  # else it might be the next job that is stopped
                stop()

    threading.Thread(target=work, name="api", daemon=True).start()
    return StreamingResponse(lines(), media_type=media_type, headers={"Cache-Control": "no-store"})


async def unless_gone(request: Request, work: Callable[[], _T], stop: Callable[[], None]) -> _T:
    """Do something in a thread, and call `stop` when the client goes before it is done."""
    task = asyncio.ensure_future(run_in_threadpool(work))
    while not task.done():
        await asyncio.wait({task}, timeout=_POLL_SECONDS)
        if not task.done() and await request.is_disconnected():
            stop()
            break
    return await task
