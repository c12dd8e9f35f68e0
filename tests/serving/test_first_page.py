"""The first page: it answers before anything large is imported, asks to be asked again, and gives the port back."""

from __future__ import annotations

import socket
import subprocess
import sys

import httpx
import pytest

from ondevice.errors import ConfigError
from ondevice.serving.first_page import FirstPage


def test_it_answers_until_the_app_takes_the_port() -> None:
    with FirstPage("127.0.0.1", 0) as first, httpx.Client(base_url=f"http://127.0.0.1:{first.port}") as client:
        page = client.get("/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html")
        assert "Starting" in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        for answer in (client.get("/health"), client.post("/v1/documents", content=b"{}"), client.get("/config")):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
            assert answer.json()["error"]["code"] == "starting"
        with pytest.raises(ConfigError, match=f"--port {first.port}"):
            FirstPage("127.0.0.1", first.port)
        first.close()
        with socket.socket() as probe:  # as Gradio looks for a free one
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", first.port))


def test_nothing_large_is_imported_before_it_answers() -> None:
    code = (
        "import sys; import ondevice.cli.app, ondevice.serving.first_page;"
        "print([name for name in ('torch', 'gradio', 'transformers', 'starlette') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
