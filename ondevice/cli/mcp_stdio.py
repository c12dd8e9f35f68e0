"""MCP over standard input and output, where also a line that is no message gets its reply.

The protocol's own package only logs such a line, and a client would wait for its answer.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

_FIX = "Send JSON-RPC 2.0 as UTF-8, nested less than 200 deep, with no half of a surrogate pair in it."


async def serve(server: MCPServer) -> None:
    """Serve until standard input ends."""
    messages, received = anyio.create_memory_object_stream[SessionMessage | Exception]()
    async with stdio_server() as (read, write), anyio.create_task_group() as tasks:

        async def sort() -> None:
            async with messages:
                async for item in read:
                    if isinstance(item, Exception):
                        await write.send(SessionMessage(reply_to(item)))
                    else:
                        await messages.send(item)

        tasks.start_soon(sort)
        inner = server._lowlevel_server  # as its own `run_stdio_async`
        await inner.run(received, write, inner.create_initialization_options())


def reply_to(error: Exception) -> JSONRPCError:
    """The reply to a line that could not be read, under the id of the line if that can be told."""
    details = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    # The line, where it is no JSON; else what was made of it, which always lacks something for one kind of message.
    found: Any = next((one["input"] for one in details if one["type"] in ("json_invalid", "missing")), None)
    code, why = INVALID_REQUEST, details[0]["msg"] if details else type(error).__name__
    if isinstance(found, str):
        code = PARSE_ERROR
        with suppress(ValueError, RecursionError):  # Python's reader takes more than that of the protocol
            found = json.loads(found)
    id = found.get("id") if isinstance(found, dict) else None
    is_usable = type(id) is int or (isinstance(id, str) and id.isprintable())
    data = ErrorData(code=code, message=f"The message cannot be read: {why}. {_FIX}")
    return JSONRPCError(jsonrpc="2.0", id=id if is_usable else None, error=data)
