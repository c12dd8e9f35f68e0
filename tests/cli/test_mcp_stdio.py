"""The protocol's lines: each gets a reply, and none ends the server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

_SERVER = """
import time, anyio
from anyio import from_thread
from mcp.server.mcpserver import MCPServer
from ondevice.cli.mcp import _told
from ondevice.cli.mcp_stdio import serve

ended = []

def wait():
    try:
        while True:
            from_thread.check_cancelled()
            time.sleep(0.02)
    finally:
        ended.append(True)

async def endless() -> dict:
    return await _told(wait)()

async def number_ended() -> dict:
    return {"ended": len(ended)}

server = MCPServer("lines")
server.add_tool(endless)
server.add_tool(number_ended)
anyio.run(serve, server)
"""
_HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        assert reply(process, request(0, "initialize", _HELLO))["id"] == 0
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0, "it ends with its input"


def request(id: Any, method: str, params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def reply(server: subprocess.Popen[str], line: str) -> dict[str, Any]:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(line + "\n")
    server.stdin.flush()
    found: dict[str, Any] = json.loads(server.stdout.readline())
    return found


def nested(depth: int) -> Any:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("line", "id", "code", "says"),
    [
        (request(5, "tools/call", {"name": "ask", "arguments": {"question": "\ud800?"}}), 5, -32700, "surrogate pair"),
        (request("a", "tools/call", {"name": "ask", "arguments": nested(300)}), "a", -32700, "200 deep"),
        ('{"jsonrpc":"2.0","id":5,"method":"x","params":' + "[" * 100_000, None, -32700, "recursion limit"),
        (request(6, "tools/call", [1]), 6, -32600, "cannot be read"),
        (request("\ud800", "ping", {}), None, -32700, "cannot be read"),
        ("no JSON", None, -32700, "cannot be read"),
        ("[]", None, -32600, "cannot be read"),
    ],
)
def test_a_line_that_is_no_message_is_answered(
    server: subprocess.Popen[str], line: str, id: int | str | None, code: int, says: str
) -> None:
    told = reply(server, line)
    assert (told["id"], told["error"]["code"]) == (id, code)
    assert says in told["error"]["message"]
    assert reply(server, request(7, "ping", {})) == {"jsonrpc": "2.0", "id": 7, "result": {}}, "and it goes on"


@pytest.mark.timeout(30)
def test_a_call_that_is_cancelled_ends_in_its_thread_too(server: subprocess.Popen[str]) -> None:
    assert server.stdin is not None
    server.stdin.write(request(20, "tools/call", {"name": "endless", "arguments": {}}) + "\n")
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 20}}
    server.stdin.write(json.dumps(cancelled) + "\n")
    for id in range(21, 400):
        told = reply(server, request(id, "tools/call", {"name": "number_ended", "arguments": {}}))
        if told["id"] == id and json.loads(told["result"]["content"][0]["text"])["ended"] == 1:
            return
        time.sleep(0.05)
    pytest.fail("it goes on")
