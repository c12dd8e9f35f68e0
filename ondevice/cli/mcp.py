"""`ondevice mcp`: the documents of this machine as tools for an assistant, over standard input and output."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ondevice.cli.options import AnswerOptions, PotOptions
from ondevice.cli.progress import ProgressDisplay, load_engine
from ondevice.cli.terminal import ended_at_once, err, errors_shown
from ondevice.errors import ConfigError, OndeviceError
from ondevice.extras import install_extra
from ondevice.files import escaped
from ondevice.regular_file import SYSTEM_FOLDERS

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from ondevice.api.tools import Tools

_INSTRUCTIONS = (
    "Reads documents of any length on this machine, in a fixed amount of memory, and answers questions about them. "
    "Open one, follow its reading with `status`, then `ask`. Every call returns within 20 seconds; one that says it is "
    "not done goes on by itself, and the same call again gives the rest. Files are opened from these folders: "
)

_NAME_ONE = "Name a folder that has documents in it: --root DIR."


def mcp(
    options: PotOptions,
    answers: AnswerOptions,
    root: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            show_default="the home folder",
            help="A folder from which files are opened, and no hidden ones in it; several may be given.",
        ),
    ] = None,
) -> None:
    """Offer documents as tools to an assistant that speaks MCP, over standard input and output."""
    at_end = ExitStack()
    # At once, also once it serves: the thread that reads standard input waits for its next line.
    with errors_shown(as_json=False), ended_at_once(at_end.close), at_end:
        folders = folders_of(root)
        try:
            from mcp.server.mcpserver import MCPServer
        except ModuleNotFoundError:
            raise ConfigError("The package `mcp` is not installed", fix=install_extra("mcp")) from None
        import anyio
        from anyio import from_thread

        from ondevice.api.tools import Tools
        from ondevice.cli.mcp_stdio import serve
        from ondevice.library.library import Library
        from ondevice.serving.jobs import Jobs
        from ondevice.serving.registry import Registry
        from ondevice.serving.uploads import Uploads
        from ondevice.ui.environment import private_folder

        config = options.config(answers.config())
        with ProgressDisplay(err()) as display:
            engine = load_engine(config, display)
        registry = Registry(rest_seconds=math.inf)  # one client, which may come back to what it has read after hours
        folder = at_end.enter_context(private_folder())
        at_end.callback(registry.close)
        jobs, uploads, check = Jobs(engine, registry, Library()), Uploads(folder), from_thread.check_cancelled
        tools = Tools(jobs, uploads, folders, require_wanted=check)
        instructions = _INSTRUCTIONS + ", ".join(escaped(str(one)) for one in folders)
        anyio.run(serve, server_of(tools, MCPServer("ondevice", instructions=instructions)))


def folders_of(roots: Sequence[Path] | None) -> list[Path]:
    """The folders that were named, or the home folder, without links in them.

    Raises:
        ConfigError: one is no folder, or would let an assistant open what no document is.
    """
    try:  # an assistant's configuration knows no shell that would put the home folder in
        folders = [folder.expanduser().resolve() for folder in roots or [Path("~")]]
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"A folder cannot be found: {error}", fix=_NAME_ONE) from None
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError("--root is no folder", where=escaped(str(folder)), fix=_NAME_ONE)
        if any(folder.is_relative_to(system) for system in SYSTEM_FOLDERS):
            raise ConfigError("--root is a folder of the system", where=str(folder), fix=_NAME_ONE)
        if not roots and folder == Path(folder.anchor):
            raise ConfigError("The home folder is the whole disk", fix=_NAME_ONE)
    return folders


def server_of(tools: Tools, server: MCPServer) -> MCPServer:
    """A server with the tools, whose descriptions are the first paragraphs of their own."""
    about = tools.passages, tools.read_pages, tools.headings, tools.find  # what a document holds
    for tool in (tools.open, tools.status, tools.ask, *about, tools.collect, tools.scan, tools.close, tools.library):
        server.add_tool(_told(tool), description=(inspect.getdoc(tool) or "").partition("\n\n")[0])
    return server


def _told(tool: Callable[..., dict[str, Any]]) -> Callable[..., Awaitable[dict[str, Any]]]:
    """The tool in a thread, for the protocol is spoken meanwhile; what it refuses is told in a sentence."""
    from mcp.server.mcpserver.exceptions import ToolError
    from starlette.concurrency import run_in_threadpool

    @functools.wraps(tool)
    async def told(**given: Any) -> dict[str, Any]:
        try:
            return await run_in_threadpool(tool, **given)
        except OndeviceError as error:
            raise ToolError(str(error)) from error

    return told
