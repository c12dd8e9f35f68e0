"""The served app: who can do what over HTTP, what runs in which lane, and that nothing is left."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ondevice.config import SETTINGS
from ondevice.errors import ConfigError
from ondevice.library.library import Library
from ondevice.serving.uploads import drop_waiting
from ondevice.ui import launch as launching
from ondevice.ui.conversation_actions import ConversationActions
from ondevice.ui.launch import serving
from ondevice.ui.panels import TEMPLATES
from tests.builders.models import plain_config
from tests.builders.screens import Desk, tiny_engine, variables_kept

ENGINE = tiny_engine()
HTTP = httpx.Client(trust_env=False)  # one for all: making a client takes longer than a request


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    library = Library(tmp_path_factory.mktemp("library"))
    with variables_kept(), serving(ENGINE, port=0, library=library) as address:
        yield address


@pytest.fixture(scope="module")
def config(url: str) -> dict:
    return HTTP.get(f"{url}/config").json()


def test_the_page_is_served_with_its_guards(url: str) -> None:
    response = HTTP.get(url)
    assert response.status_code == 200
    assert response.headers["content-security-policy"].startswith("default-src 'self'")
    assert "access-control-allow-origin" not in response.headers
    assert "window.ondevice" in response.text, "the drawing code is in the page itself"


def test_it_can_be_installed_as_an_app_of_its_own(url: str) -> None:
    page = HTTP.get(url).text
    assert 'rel="manifest" href="/manifest.json"' in page
    response = HTTP.get(f"{url}/manifest.json")
    assert response.headers["content-type"] == "application/manifest+json"
    manifest = response.json()
    assert (manifest["name"], manifest["display"], manifest["start_url"]) == ("ondevice", "standalone", "/")
    (icon,) = manifest["icons"]
    for path in (icon["src"], "/favicon.ico"):
        drawn = HTTP.get(url + path)
        assert drawn.headers["content-type"].startswith("image/svg+xml")
        assert drawn.text.startswith("<svg")
    assert set(re.findall(r"https?://[\w./]+", drawn.text)) == {"http://www.w3.org/2000/svg"}


def test_a_rebound_name_reaches_nothing(url: str) -> None:
    for path in ("/", "/config", "/health", "/gradio_api/queue/data"):
        assert HTTP.get(url + path, headers={"host": "evil.example"}).status_code == 400


def test_a_page_elsewhere_cannot_upload(url: str) -> None:
    files = {"files": ("a.txt", b"planted")}
    before = stored_files()
    response = HTTP.post(f"{url}/gradio_api/upload", files=files, headers={"origin": "https://evil.example"})
    assert response.status_code == 403
    assert stored_files() == before


def test_an_upload_is_never_served_back(url: str) -> None:
    response = HTTP.post(f"{url}/gradio_api/upload", files={"files": ("a.txt", b"mine")})
    assert response.status_code == 200
    [path] = response.json()
    assert Path(path).read_bytes() == b"mine"
    assert HTTP.get(f"{url}/gradio_api/file={path}").status_code == 403
    Path(path).unlink()


def test_uploads_that_nobody_opens_have_a_quota_and_go(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(os.environ["GRADIO_TEMP_DIR"])
    waiting = folder / "waiting" / "large.txt"
    waiting.parent.mkdir()
    with waiting.open("wb") as file:
        file.truncate(1_999_999_000)  # takes no room
    refused = HTTP.post(f"{url}/gradio_api/upload", files={"files": ("a.txt", b"mine" * 500)})
    assert refused.status_code == 507
    assert "wait to be opened" in refused.text
    drop_waiting(folder)
    assert waiting.is_file(), "it has just come"
    os.utime(waiting, (0, 0))
    drop_waiting(folder)
    assert not waiting.exists()
    full = shutil.disk_usage(folder)._replace(free=1000)
    with monkeypatch.context() as patch:
        patch.setattr("ondevice.serving.uploads.shutil.disk_usage", lambda path: full)
        refused = HTTP.post(f"{url}/gradio_api/upload", files={"files": ("a.txt", b"mine")})
        assert (refused.status_code, refused.text) == (507, "The disk is nearly full.")
    [path] = HTTP.post(f"{url}/gradio_api/upload", files={"files": ("a.txt", b"mine")}).json()
    Path(path).unlink()


def test_a_folder_that_is_taken_meanwhile_ends_no_look_at_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "old.txt").touch()
    os.utime(tmp_path / "old.txt", (0, 0))
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: scandir(tmp_path / "no" if Path(path).name == "gone" else path))
    drop_waiting(tmp_path)
    assert not (tmp_path / "old.txt").exists()


def stored_files() -> list[Path]:
    return [path for path in Path(os.environ["GRADIO_TEMP_DIR"]).rglob("*") if path.is_file()]


def test_the_queue_cannot_be_walked_around(url: str, config: dict) -> None:
    for name in {dependency["api_name"] for dependency in config["dependencies"]}:
        for route in ("run", "call", "api"):
            assert HTTP.post(f"{url}/gradio_api/{route}/{name}", json={"data": []}).status_code == 403


def test_every_handler_has_a_lane_of_ours() -> None:
    from ondevice.serving.jobs import Jobs
    from ondevice.serving.registry import Registry
    from ondevice.serving.uploads import Uploads
    from ondevice.ui.app import build_app

    demo = build_app(Jobs(ENGINE, Registry(), Library(Path())), Uploads(Path()))
    lanes: dict[str, set] = {}
    for function in demo.fns.values():
        if function.fn is not None:
            lanes.setdefault(function.concurrency_id, set()).add(function.concurrency_limit)
            assert function.api_visibility == "private"
            assert function.queue
    assert set(lanes) == {"engine", "documents", "quick"}
    assert sum(max(limits) for limits in lanes.values()) <= 16, "each has a thread of Gradio's"
    demo.close(verbose=False)


def test_the_form_offers_every_policy_and_every_prompt() -> None:
    from ondevice.ui.form import choices_of

    for path in ("pot.policy", "pot.catalyst"):
        one = SETTINGS[path]
        assert {value for _, value in choices_of(one, one.default)} == set(one.offered)


def test_every_patch_names_a_part_of_the_screen(tmp_path: Path) -> None:
    import gradio as gr

    from ondevice.ui.layout import build_screen

    with gr.Blocks(analytics_enabled=False):
        parts = build_screen(ENGINE).parts
    desk = Desk(tmp_path, ENGINE)
    seen: set[str] = set()
    for patches in (
        [desk.actions.restore(None)],
        desk.actions.open_sample(desk.id),
        desk.actions.unlock(desk.id, ""),
        [desk.actions.look_at(desk.id, desk.workspace.id)],
        desk.actions.ask(desk.id, "When?", desk.form),
        [ConversationActions(desk.runner).begin(desk.id)],
        [desk.actions.forget(desk.id)],
    ):
        for patch in patches:
            seen |= set(patch)
    assert seen - {"toast", "news"} <= set(parts)
    assert {"card", "map", "fill", "latency", "progress", "status", "problem", "chat"} <= seen


def test_no_template_takes_a_value(config: dict) -> None:
    templates = [c["props"]["html_template"] for c in config["components"] if c["type"] == "html"]
    assert len(templates) == len(TEMPLATES) + 2, "the heads of two drawers are constants, too"
    for template in templates:
        assert not re.search(r"\$\{|\{\{|@children", template), "a value in a template would run as code"
        assert "<script" not in template


def test_the_drawing_code_builds_no_html() -> None:
    from ondevice.ui.panels import scripts

    code = scripts()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|XMLHttp|sendBeacon|WebSocket", code
    )
    assert re.findall(r"fetch\(.*", code) == ["fetch(`${root}ondevice/${path}`, options);"], "only our own server"
    assert "const root = location.pathname" in code
    assert not re.search(r"https?://", code)


def test_the_page_names_no_other_machine(url: str) -> None:
    from ondevice.ui.panels import stylesheet

    assert "url(" not in stylesheet()
    assert "@import" not in stylesheet()
    theme = HTTP.get(f"{url}/theme.css").text
    assert not re.search(r"@import|url\((?!['\"]?(data:|static/))", theme)


def test_the_chat_shows_no_markup_of_the_model(config: dict) -> None:
    [chat] = [c["props"] for c in config["components"] if c["type"] == "chatbot"]
    assert chat["sanitize_html"] is True
    assert chat["allow_tags"] is False
    assert chat["latex_delimiters"] == []


def test_nothing_of_gradio_is_advertised(config: dict) -> None:
    assert config["analytics_enabled"] is False
    assert config["footer_links"] == []
    assert json.dumps(config).find("localhost:") == -1


def test_the_model_and_its_notice_are_shown(config: dict) -> None:
    [header] = [c["props"]["value"] for c in config["components"] if c["props"].get("elem_id") == "od-header"]
    assert header == {"model": "tiny-llama on CPU, float32", "notice": "A notice with a `command`."}


def test_a_password_guards_all_but_health() -> None:
    with serving(ENGINE, port=0, auth=("reader", "secret")) as address:
        assert HTTP.get(f"{address}/config").status_code == 401
        assert HTTP.post(f"{address}/gradio_api/upload", files={"files": ("a.txt", b"x")}).status_code == 401
        assert HTTP.get(f"{address}/health").json() == {"status": "ok"}
        folder = Path(os.environ["GRADIO_TEMP_DIR"]).parent
        assert folder.exists()
    assert not folder.exists(), "nothing stays"
    with pytest.raises(httpx.ConnectError):
        HTTP.get(f"{address}/health")


def test_a_taken_port_is_told(url: str) -> None:
    port = int(url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"--port {port}"), serving(ENGINE, port=port):
        pass


def test_launch_refuses_before_it_loads_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "serving", lambda *args, **more: pytest.fail("it was served"))
    with pytest.raises(ConfigError):
        launching.launch(plain_config(), host="0.0.0.0")


def test_no_thread_computes_on_when_the_app_has_ended(tmp_path: Path) -> None:
    """Else the interpreter ends in the middle of torch's C++, which aborts the process."""
    begun, has_ended = threading.Event(), threading.Event()

    def outline(*_: object) -> list[object]:
        begun.set()
        time.sleep(1.5)
        has_ended.set()
        return []

    threads = [threading.Thread(target=outline, name=name, daemon=True) for name in ("action", "AnyIO worker thread")]
    with variables_kept(), serving(ENGINE, port=0, library=Library(tmp_path), keeps=False):
        for thread in threads:
            thread.start()
        assert begun.wait(10)
    assert has_ended.is_set()
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("host", ["::1", "127.9.9.9"])
def test_it_is_served_under_the_address_that_it_listens_on(host: str, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            pytest.skip("this machine has no such address")
    with variables_kept(), serving(ENGINE, host=host, port=0, library=Library(tmp_path), keeps=False) as address:
        assert HTTP.get(f"{address}/health").status_code == 200
        assert HTTP.get(f"{address}/config").status_code == 200


def test_a_page_is_told_that_an_action_was_not_begun(tmp_path: Path) -> None:
    import gradio as gr

    from ondevice.ui.layout import build_screen
    from ondevice.ui.wiring import _Wires

    def connect(handler: Callable[..., Any], *_: object, **options: object) -> Callable[..., Any]:
        return handler

    with gr.Blocks(analytics_enabled=False):
        screen = build_screen(ENGINE)
    desk, event = Desk(tmp_path, ENGINE), gr.EventData(None, {})
    wires = _Wires(screen, desk.actions.pulse)
    for told in (
        wires.show(connect, desk.actions.forget)(event, desk.id, "0" * 32),
        *wires.run(connect, desk.actions.resume)(event, desk.id, "0" * 32),
    ):
        assert "Nothing was done" in told[screen.parts["problem"]]["text"]


_ENDED = """
import os, signal, threading
from types import SimpleNamespace
from rich.console import Console
from ondevice.ui.launch import _wait_for_the_end

given = signal.signal

def also_of_an_alarm(number, handler):
    given(number, handler)
    given(signal.SIGALRM, handler)

signal.signal = also_of_an_alarm
signal.setitimer(signal.ITIMER_REAL, 0.5, 2e-5)
loading = SimpleNamespace(is_done=threading.Event(), stage="", error=None, line="")
loading.is_done.set()
_wait_for_the_end(Console(quiet=True), loading)
os._exit(0)
"""


def test_many_signals_at_once_end_the_app() -> None:
    """A terminal, `make` and a service manager may send one each at the same moment."""
    for _ in range(3):
        assert subprocess.run([sys.executable, "-c", _ENDED], timeout=20).returncode == 0
