"""The one way in which worker and parent talk: JSON objects, each on a line.

JSON and never pickle: what a parser that has been taken over sends can then only be data.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

MAX_LINE_BYTES = 64 * 1024 * 1024


class WireError(Exception):
    """The bytes received are no message: cut off, too long, or not a JSON object."""


def write_message(stream: BinaryIO, message: dict[str, Any], *, is_ascii: bool = False) -> None:
    """Send a message; in ASCII, which is longer, it may hold what is no Unicode: names of files are any bytes."""
    data = json.dumps(message, ensure_ascii=is_ascii, separators=(",", ":")).encode("utf-8") + b"\n"
    if len(data) > MAX_LINE_BYTES:
        raise WireError(f"a message of {len(data)} bytes is too long")
    stream.write(data)
    stream.flush()


def read_message(stream: BinaryIO) -> dict[str, Any] | None:
    """The next message, None at the end."""
    line = stream.readline(MAX_LINE_BYTES)
    if not line:
        return None
    try:
        message = json.loads(line) if line.endswith(b"\n") else None  # cut off, or too long
    except (ValueError, RecursionError) as error:
        raise WireError("not JSON") from error
    if not isinstance(message, dict):
        raise WireError("not an object")
    return message
