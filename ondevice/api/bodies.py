"""The body of a request: JSON or a form, and never more of it than is allowed."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.types import Message

from ondevice.api.failures import ApiError

_JSON_BYTES = 1_000_000


async def json_body(request: Request) -> dict[str, Any]:
    """The body of a request: a JSON object, or nothing."""
    body = await limited(request, _JSON_BYTES).body()
    if not body:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "request", "The body is not called JSON", "Send Content-Type: application/json.")
    try:
        data = json.loads(body)
        json.dumps(data, ensure_ascii=False).encode()  # no reply and no file can hold half of a surrogate pair
    except (ValueError, RecursionError):
        raise ApiError(400, "request", "The body is not JSON", "Send UTF-8, without half a surrogate pair.") from None
    if not isinstance(data, dict):
        raise ApiError(400, "request", "The body is not a JSON object")
    return data


def limited(request: Request, num_bytes: int) -> Request:
    """The same request, which fails once more than `num_bytes` have come."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > num_bytes:
        raise _too_large(num_bytes)
    num_seen = 0

    async def receive() -> Message:
        nonlocal num_seen
        message = await request.receive()
        num_seen += len(message.get("body", b""))
        if num_seen > num_bytes:
            raise _too_large(num_bytes)
        return message

    return Request(request.scope, receive)


def _too_large(num_bytes: int) -> ApiError:
    return ApiError(413, "too-large", f"The request is larger than {num_bytes:,} bytes", "Send less.")
