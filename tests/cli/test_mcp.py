"""`ondevice mcp`, as an assistant sees it: the protocol's own client over standard input and output."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.cli.mcp import folders_of
from ondevice.errors import ConfigError
from tests.builders.models import save_checkpoint, tiny_model

TEXT = "The lamp was lit at dusk and burned until the morning. " * 12


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_checkpoint(tiny_model("llama"), folder)
    return folder


@pytest.mark.slow
def test_a_client_opens_a_file_follows_its_reading_and_asks(checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "lamp.txt"
    file.write_text(TEXT)
    arguments = ["-c", "from ondevice.cli import app; app()", "mcp", "--model", str(checkpoint), "--device", "cpu"]
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "ONDEVICE_CACHE")}
    server = StdioServerParameters(
        command=sys.executable,
        args=[*arguments, "--capacity", "512", "--root", str(tmp_path)],
        env={**kept, "OMP_NUM_THREADS": "1"},
    )

    async def walk() -> dict[str, Any]:
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            listed = await session.list_tools()
            assert {tool.name for tool in listed.tools} == {
                "open",
                "status",
                "ask",
                "passages",
                "read_pages",
                "headings",
                "find",
                "collect",
                "scan",
                "close",
                "library",
            }
            assert all(tool.description for tool in listed.tools)

            async def call(name: str, **given: Any) -> dict[str, Any]:
                result = await session.call_tool(name, given)
                assert not result.is_error, result.content
                return json.loads(result.content[0].text)

            card = await call("open", path=str(file))
            while (await call("status", document=card["id"]))["state"] != "read":
                await anyio.sleep(0.1)
            answered = await call("ask", document=card["id"], question="When was the lamp lit?")
            assert (await call("passages", document=card["id"]))["passages"] == answered["passages"]
            assert (await call("find", document=card["id"], words="lamp"))["count"] > 0
            assert (await call("read_pages", document=card["id"], first=1, last=1))["pages"]
            for path, says in (("nowhere.txt", "Check the name"), ("../a.txt", "as a root")):
                refused = await session.call_tool("open", {"path": str(tmp_path / path)})
                assert refused.is_error
                assert says in refused.content[0].text
            return answered

    async def in_time() -> dict[str, Any]:
        with anyio.fail_after(60):
            return await walk()

    assert anyio.run(in_time)["state"] == "answered"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_it_waits_for_the_next_line(
    number: signal.Signals, checkpoint: Path, tmp_path: Path
) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    command = ["-c", "from ondevice.cli import app; app()", "mcp", "--model", str(checkpoint), "--device", "cpu"]
    with subprocess.Popen(
        [sys.executable, *command],
        env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 0
        assert list(tmp_path.glob("ondevice-app-*"))
        process.send_signal(number)
        assert process.wait(60) == 130
        assert process.communicate()[1].splitlines()[-1] == "Stopped."
    assert not list(tmp_path.glob("ondevice-app-*"))


def test_what_it_has_read_is_dropped_after_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = dict[str, float]()

    def registry(**options: float) -> None:
        given.update(options)
        raise ConfigError("That is enough")

    monkeypatch.setattr(sys.modules[folders_of.__module__], "load_engine", lambda *_: None)  # the command has its name
    monkeypatch.setattr("ondevice.serving.registry.Registry", registry)
    assert "That is enough" in CliRunner().invoke(app, ["mcp", "--root", str(tmp_path)]).output
    assert given == {"rest_seconds": math.inf}


def test_the_home_folder_is_what_files_are_opened_from_unless_others_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home := tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("HOME", str(tmp_path / "link"))
    assert folders_of(None) == [home.resolve()]
    (home / ".notes").mkdir()
    assert folders_of([tmp_path, Path("~/.notes")]) == [tmp_path.resolve(), (home / ".notes").resolve()]


@pytest.mark.parametrize("root", ["/proc/self", "/sys", "/dev/shm", "/nowhere/at/all", "~nobody-of-that-name", None])
def test_a_root_that_leads_to_no_documents_is_refused(root: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/")  # as of some containers
    result = CliRunner().invoke(app, ["mcp", *(["--root", root] if root else [])])
    assert result.exit_code == 2
    assert "--root DIR" in " ".join(result.output.split())


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    result = CliRunner().invoke(app, ["mcp"])
    assert result.exit_code == 2
    assert "python -m pip install 'mcp>=" in result.output
