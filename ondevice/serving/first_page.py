"""The first answers of the app, while Gradio and torch are still being imported: a page that waits for the real one.

It stands on the standard library alone, reads nothing of a request but its path, and holds no data.
"""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer

from ondevice.serving.address import free_port

_SECONDS = 2  # that a program may wait before it asks again
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>ondevice</title>
<meta name="viewport" content="width=device-width"><noscript><meta http-equiv="refresh" content="2"></noscript>
<style>:root{color-scheme:light dark}body{font:16px system-ui;margin:20vh auto;max-width:34em;padding:0 1em}</style>
<h1>ondevice</h1><p role="status">Starting: the page comes in a few seconds<span></span>.</p><script>
const began = Date.now(), shown = document.querySelector("span");
setInterval(async () => {
  shown.textContent = `, ${Math.round((Date.now() - began) / 1000)} s so far`;
  if (await fetch("health").then((answer) => answer.ok, () => false)) location.reload();
}, 500);</script></html>"""
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
_ERROR = {"code": "starting", "what": "The app is starting", "where": "", "fix": "Try again in some seconds."}


class _Handler(BaseHTTPRequestHandler):
    timeout = 5  # for a client that sends nothing

    def do_GET(self) -> None:
        """The page under `/`; all else is there later, and says so."""
        is_page = self.path.partition("?")[0] == "/"
        body = (_PAGE if is_page else json.dumps({"error": _ERROR})).encode()
        self.send_response(200 if is_page else 503)
        headers = {"Content-Type": "text/html" if is_page else "application/json", "Retry-After": str(_SECONDS)}
        headers |= {"Content-Security-Policy": _POLICY, "X-Frame-Options": "DENY", "Cache-Control": "no-store"}
        for name, value in (headers | {"Content-Length": str(len(body)), "Connection": "close"}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_POST = do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing: the terminal is the app's."""


class FirstPage(ThreadingTCPServer):
    """Answers on an address until the app takes it over: `close`, or the end of the block.

    Args:
        host: address to listen on.
        port: 0 takes a free one; it is said in `port`.

    Raises:
        ConfigError: the port is taken.
    """

    allow_reuse_address = daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        host = host.strip("[]")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.port = free_port(host, port)
        super().__init__((host, self.port), _Handler)
        threading.Thread(target=self.serve_forever, args=(0.02,), name="first page", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the port; once more does no harm."""
        self.shutdown()
        self.server_close()
