"""Starts the app: load the model, build the screen, serve it safely, clean up at the end."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from rich.console import Console
from rich.text import Text
from starlette.applications import Starlette
from starlette.routing import Route

from ondevice.config import EngineConfig
from ondevice.documents import Limits
from ondevice.files import data_dir
from ondevice.library.library import Library
from ondevice.machine.memory import free_memory_bytes
from ondevice.serving.address import Auth, check_address, free_port, is_loopback, url_of
from ondevice.serving.loading import Loading
from ondevice.serving.room import FreeMemory
from ondevice.serving.security import LOOPBACK_NAMES, guarded
from ondevice.serving.uploads import UploadGuard, drop_waiting
from ondevice.session.engine import Engine
from ondevice.ui.environment import prepare_gradio, private_folder

_SWEEP_SECONDS, _END_SECONDS = 60.0, 15.0
_WORKERS = ("action", "api", "fetch", "model", "tools", "AnyIO worker thread")  # the last are Gradio's handlers


def launch(
    config: EngineConfig,
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    listen: bool = False,
    auth: Auth | None = None,
    keeps: bool = True,
    **served: Any,
) -> None:
    """Serve the app until it is interrupted.

    Args:
        config: model and settings to begin with.
        listen: agree to be reachable from other machines.
        host, port, auth, keeps, served: as in `serving`.

    Raises:
        ConfigError: the address is reachable from other machines and `listen` or `auth` is missing; the port is
            taken.
        ModelError: at the end, where the model could not be loaded, nor another one was chosen.
    """
    check_address(host, listen=listen, auth=auth)
    console = Console()
    engine = Engine.without_model(config)
    loading = Loading(engine, partial(Engine.load, config))
    with serving(engine, host=host, port=port, auth=auth, keeps=keeps, loading=loading, **served) as url:
        console.print(f"[bold]ondevice[/bold] is ready at [link={url}]{url}[/link]")
        console.print("Press Ctrl+C to stop it.", style="dim")
        _wait_for_the_end(console, loading)
    after = "what was open comes back with the next start" if keeps else "documents and pots are gone"
    console.print(f"Stopped; {after}.", style="dim")
    if loading.error is not None and not engine.has_model:
        raise loading.error


@contextmanager
def serving(
    engine: Engine,
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    auth: Auth | None = None,
    allowed_hosts: tuple[str, ...] = (),
    inbrowser: bool = False,
    api: bool = True,
    reads_at_once: bool = True,
    keeps: bool = True,
    library: Library | None = None,
    free_memory: FreeMemory = free_memory_bytes,
    loading: Loading | None = None,
    handover: Callable[[], object] = lambda: None,
) -> Iterator[str]:
    """Serve the app of an engine while the block runs; gives its address.

    Args:
        engine: the model, or one that has none yet.
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        auth: user name and password that the browser must give.
        allowed_hosts: further names under which browsers may address this server.
        inbrowser: open the page in the default browser.
        api: serve the programming interface, too.
        reads_at_once: documents are read as soon as they are open; else when somebody presses Read.
        keeps: open documents are kept on disk until they are closed.
        library: where documents are saved; default: the user's own.
        free_memory: bytes that are free on a device; None: in the main memory.
        loading: brings the engine's model once the page is served; None: it is there.
        handover: called right before the app takes the port.
    """
    host = host.strip("[]")
    with ExitStack() as stack:
        stack.callback(_let_end, frozenset(threading.enumerate()))
        uploads_folder = prepare_gradio(stack.enter_context(private_folder()))
        received = Path(os.environ["GRADIO_TEMP_DIR"])
        # Imported here: Gradio reads its variables when it is imported.
        from ondevice.api.routes import Api
        from ondevice.serving.forecast import ReadingSpeeds
        from ondevice.serving.jobs import Jobs
        from ondevice.serving.keeping import Keeping
        from ondevice.serving.login import Login
        from ondevice.serving.patience import be_patient
        from ondevice.serving.registry import Registry
        from ondevice.serving.uploads import Uploads
        from ondevice.ui.app import build_app
        from ondevice.ui.map.routes import map_routes
        from ondevice.ui.page_routes import page_routes
        from ondevice.ui.panels import login_script, run_first, worded_page
        from ondevice.ui.recording import recording_route
        from ondevice.ui.theme import MARK, make_theme, mark_routes

        registry, limits = Registry(), Limits()
        stack.callback(registry.close)
        keeping, speeds = Keeping(is_on=keeps), ReadingSpeeds(data_dir() / "speeds.json" if keeps else None)
        jobs = Jobs(engine, registry, library or Library(), free_memory, keeping, speeds, loading)
        uploads = Uploads(uploads_folder, limits)
        routes = [*map_routes(registry), *page_routes(registry), recording_route(), *mark_routes()]
        login = Login(*auth) if auth is not None else None
        if api:
            routes += Api(jobs, uploads, login).routes()
        demo = build_app(jobs, uploads, reads_at_once=reads_at_once)
        stack.callback(demo.close, verbose=False)

        stack.enter_context(_sweeping(registry.sweep, partial(drop_waiting, received)))
        handover()
        port = free_port(host, port)
        be_patient()
        run_first()
        demo.launch(
            server_name=f"[{host}]" if ":" in host else host,  # as it stands in an address
            server_port=port,
            auth=login.check_form if login is not None else None,
            auth_message=login_script(),
            inbrowser=inbrowser,
            prevent_thread_lock=True,
            quiet=True,
            favicon_path=str(MARK),
            theme=make_theme(),
            **worded_page(),
            max_file_size=limits.file_bytes,
            **_closed_settings(host, allowed_hosts, routes, received),
        )
        if loading is not None:
            loading.start()
        yield url_of(host, port)


def _closed_settings(host: str, allowed_hosts: tuple[str, ...], routes: list[Route], received: Path) -> dict[str, Any]:
    """Everything of Gradio that would open the app further than it must be, and our own routes inside the guards."""
    hosts = [*LOOPBACK_NAMES, host, *allowed_hosts]
    if not is_loopback(host):
        hosts += [socket.gethostname(), f"{socket.gethostname()}.local"]
    closed = ("share", "show_error", "run_history", "enable_monitoring", "mcp_server", "ssr_mode", "pwa")
    return {
        **dict.fromkeys(closed, False),
        "allowed_paths": [],
        "footer_links": [],
        "strict_cors": True,
        "state_session_capacity": 32,
        "max_threads": 16,
        "root_path": os.environ.get("GRADIO_ROOT_PATH", ""),
        "app_kwargs": {
            "routes": routes,
            "lifespan": _guarding(hosts, received, allow_addresses=not is_loopback(host)),
            **dict.fromkeys(("docs_url", "redoc_url", "openapi_url")),
        },
    }


def _guarding(
    hosts: list[str], received: Path, *, allow_addresses: bool
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Puts the guards around the finished application when the server starts, before it takes a request."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        assert app.middleware_stack is not None, "the server's start went through it"
        inner = UploadGuard(app.middleware_stack, received)
        app.middleware_stack = guarded(inner, hosts, allow_addresses=allow_addresses)
        yield

    return lifespan


def _let_end(before: Collection[threading.Thread]) -> None:
    """Wait for threads that still do what a page or a program asked for: no one is told any more, and each ends soon.

    They are daemons, as is the server's. One that computes while the interpreter ends is unwound in the middle of
    torch's C++, which aborts the process.
    """
    end = time.monotonic() + _END_SECONDS
    for thread in set(threading.enumerate()) - set(before):
        is_idle = thread in getattr(thread, "idle_workers", ())  # one of another server of this process
        if thread.name.startswith(_WORKERS) and not is_idle:
            thread.join(max(end - time.monotonic(), 0.0))


@contextmanager
def _sweeping(*steps: Callable[[], None]) -> Iterator[None]:
    """Drop old workspaces while the app runs, also when no page uses it."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(_SWEEP_SECONDS):
            for step in steps:
                step()

    thread = threading.Thread(target=run, name="sweep", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _wait_for_the_end(console: Console, loading: Loading) -> None:
    """Show how the model comes; return on Ctrl+C, and on the signal that containers and service managers send."""
    # No event: a second signal while the first one sets it would wait for its lock, which is held below, for ever.
    ended = SimpleQueue[None]()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.put(None))
    with console.status("Loading the model") as status:
        while not loading.is_done.wait(0.2) and ended.empty():
            status.update(loading.stage)
    if loading.error is not None:
        console.print(Text(loading.line))
    while True:
        with suppress(Empty):
            return ended.get(timeout=1.0)  # with a timeout, so that signals get through on every system
