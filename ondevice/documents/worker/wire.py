"""The one way in which worker and parent talk: JSON objects, each after its length in 4 bytes.

JSON and never pickle: what a parser that has been taken over sends can then only be data.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

_LENGTH = struct.Struct(">I")
MAX_FRAME_BYTES = 64 * 1024 * 1024


class WireError(Exception):
    """The bytes received are no message: cut off, too long, or not a JSON object."""


def write_message(stream: BinaryIO, message: dict[str, Any], *, is_ascii: bool = False) -> None:
    """Send a message; in ASCII, which is longer, it may hold what is no Unicode: names of files are any bytes."""
    data = json.dumps(message, ensure_ascii=is_ascii, separators=(",", ":")).encode("utf-8")
    if len(data) > MAX_FRAME_BYTES:
        raise WireError(f"a message of {len(data)} bytes is too long")
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def read_message(stream: BinaryIO) -> dict[str, Any] | None:
    """The next message, None at the end."""
    head = stream.read(_LENGTH.size)
    if not head:
        return None
    if len(head) < _LENGTH.size:
        raise WireError("cut off inside a length")
    (length,) = _LENGTH.unpack(head)
    if length > MAX_FRAME_BYTES:
        raise WireError(f"a message of {length} bytes is announced")
    data = stream.read(length)
    if len(data) < length:
        raise WireError("cut off inside a message")
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WireError("not JSON") from error
    if not isinstance(message, dict):
        raise WireError("not an object")
    return message
