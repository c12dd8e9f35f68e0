"""`ondevice mcp`: the documents of this machine as tools for an assistant, over standard input and output."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ondevice.cli.options import AnswerOptions, PotOptions
from ondevice.cli.progress import ProgressDisplay
from ondevice.cli.running import load_engine
from ondevice.cli.terminal import EXIT_INTERRUPTED, err, errors_shown, say
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
    with errors_shown(as_json=False):
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
        registry = Registry()
        with private_folder() as folder:

            def end(*_: object) -> None:  # at once: the thread that reads standard input waits for its next line
                registry.close()
                rmtree(folder, ignore_errors=True)
                say("Stopped.", "yellow")
                os._exit(EXIT_INTERRUPTED)

            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, end)
            try:
                jobs, uploads, check = Jobs(engine, registry, Library()), Uploads(folder), from_thread.check_cancelled
                tools = Tools(jobs, uploads, folders, require_wanted=check)
                instructions = _INSTRUCTIONS + ", ".join(escaped(str(one)) for one in folders)
                anyio.run(serve, server_of(tools, MCPServer("ondevice", instructions=instructions)))
            finally:
                registry.close()


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
    """A server with the tools; what they refuse is told in a sentence that says what to do."""

    async def open(path: str = "", text: str = "", entry: str = "", password: str = "") -> dict[str, Any]:
        """Open a document and begin to read it: a `path` on this machine (PDF, Word, EPUB, web page, Markdown, text),
        a `text`, or the `entry` id of one saved earlier, which needs no reading. Returns its id at once."""
        return await _told(lambda: tools.open(path, text, entry, password))

    async def status(document: str = "") -> dict[str, Any]:
        """Progress of a document, by its id; without one, of all that are open."""
        return await _told(lambda: tools.status(document))

    async def ask(document: str, question: str) -> dict[str, Any]:
        """Ask a question about a document that is open. The answer comes with the passages it looked at, and with the
        numbers, names and quotations of it that stand nowhere in the document."""
        return await _told(lambda: tools.ask(document, question))

    async def passages(document: str) -> dict[str, Any]:
        """The passages of a document, with their pages, that the last answer looked at more than any text would."""
        return await _told(lambda: tools.passages(document))

    async def read_pages(document: str, first: int, last: int, cursor: int = 0) -> dict[str, Any]:
        """The text of a document from one page to another, word for word, at most 4,000 tokens; `next_cursor`, where
        there is one, gets the rest. No model is asked, and the document need not be read yet."""
        return await _told(lambda: tools.read_pages(document, first, last, cursor))

    async def find(document: str, words: str, cursor: int = 0) -> dict[str, Any]:
        """All places of a word or a phrase in a document, with their pages and what is around them, and how many there
        are. No model is asked, and the document need not be read yet."""
        return await _told(lambda: tools.find(document, words, cursor))

    async def library() -> dict[str, Any]:
        """The documents that were read and saved on this machine."""
        return await _told(tools.library)

    async def ask_several(documents: list[str], question: str, each: bool = False) -> dict[str, Any]:
        """Ask one question of several documents that are open and read, by their ids: those that it points to are laid
        side by side and answer together, or with `each` every one by itself. Passages name document and page."""
        return await _told(lambda: tools.ask_several(documents, question, each))

    async def scan(document: str, question: str) -> dict[str, Any]:
        """Find everything of a kind in a document ("list all ...", "how many ..."): the question is asked on every
        piece of it. Takes longer than reading; each finding comes with its pages and sentence."""
        return await _told(lambda: tools.scan(document, question))

    for tool in (open, status, ask, passages, read_pages, find, ask_several, scan, library):
        server.add_tool(tool)
    return server


async def _told(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of a tool, from a thread: the protocol is spoken meanwhile."""
    from mcp.server.mcpserver.exceptions import ToolError
    from starlette.concurrency import run_in_threadpool

    try:
        return await run_in_threadpool(call)
    except OndeviceError as error:
        raise ToolError(str(error)) from error
