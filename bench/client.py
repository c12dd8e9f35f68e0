"""A client of the app's programming interface, which docs/api.md describes.

    from ondevice_bench.client import Client

    client = Client("http://127.0.0.1:7860")
    document = client.open("report.pdf")
    for event in client.read(document["id"], capacity=2048):
        if event["event"] == "tokens_read":
            print(event["num_read"], "of", event["num_total"])
    print(client.answer(document["id"], "Who wrote it?"))
    client.close(document["id"])

Closing a generator early ends the work that it follows.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import httpx

from ondevice.errors import OndeviceError
from ondevice.regular_file import open_regular

_BLOCK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 600.0  # without a word from the server: a forward pass of a large model takes its time


class RequestFailed(OndeviceError):
    """The app has refused a request, or could not do what was asked.

    Attributes:
        status: of the response; 200 where the work failed after it had begun; 0 where nothing was reached.
    """

    def __init__(self, status: int, error: dict[str, str]) -> None:
        super().__init__(
            error.get("what", "The request failed"), where=error.get("where", ""), fix=error.get("fix", "")
        )
        self.status, self.code = status, error.get("code", "error")


class Client:
    """Talks to an app that runs.

    Args:
        url: its address.
        auth: user name and password, where it was started with `--auth`.
        timeout_seconds: how long to wait for the next word of the server.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:7860",
        auth: tuple[str, str] | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> None:
        # No proxy: nothing of this is for other machines. No kept connections: the app may close one as it is used.
        self._http = httpx.Client(
            auth=auth,
            base_url=url.rstrip("/"),
            headers={"X-Ondevice": "1"},
            limits=httpx.Limits(max_keepalive_connections=0),
            timeout=timeout_seconds,
            trust_env=False,
        )

    def health(self) -> dict[str, Any]:
        """The model and where it runs."""
        return self._json("GET", "/health")

    # -- documents -------------------------------------------------------------------------------

    def open(self, path: str | Path, password: str = "") -> dict[str, Any]:
        """Send a file; returns its card, with its `id` and `num_tokens`; raises DocumentError as `open_regular`."""
        path, boundary = Path(path), secrets.token_hex(16)
        part = f'--{boundary}\r\nContent-Disposition: form-data; name="'
        before = f'{part}password"\r\n\r\n{password}\r\n' if password else ""
        head = f'{before}{part}file"; filename="{_quoted(path.name)}"\r\n\r\n'.encode(errors="replace")
        tail = f"\r\n--{boundary}--\r\n".encode()
        with open_regular(path) as file:
            num_bytes = len(head) + os.fstat(file.fileno()).st_size + len(tail)
            body = chain([head], iter(lambda: file.read(_BLOCK_BYTES), b""), [tail])  # never all of it in memory
            return self._json("POST", "/documents", body, f"multipart/form-data; boundary={boundary}", num_bytes)

    def documents(self) -> list[dict[str, Any]]:
        """The cards of all documents that are open here."""
        return self._json("GET", "/documents")["documents"]

    def document(self, document_id: str) -> dict[str, Any]:
        return self._json("GET", f"/documents/{document_id}")

    def close(self, document_id: str) -> None:
        """Drop a document with its pot."""
        self._json("DELETE", f"/documents/{document_id}")

    def read(self, document_id: str, **settings: Any) -> Iterator[dict[str, Any]]:
        """Read a document from its beginning; yields events. Closing it stops the reading."""
        return self._lines(f"/documents/{document_id}/read", settings)

    def resume(self, document_id: str) -> Iterator[dict[str, Any]]:
        """Read on from where reading was stopped; yields events."""
        return self._lines(f"/documents/{document_id}/resume", {})

    def ask(self, document_id: str, question: str, **settings: Any) -> Iterator[dict[str, Any]]:
        """Ask a question; yields events. Closing it stops the answer."""
        return self._lines(f"/documents/{document_id}/ask", {"question": question, **settings})

    def scan(self, document_id: str, question: str) -> Iterator[dict[str, Any]]:
        """Ask a question on every piece of a document; yields events. Closing it stops the scan."""
        return self._lines(f"/documents/{document_id}/scan", {"question": question})

    def collect(self, documents: Sequence[str] = (), entries: Sequence[str] = ()) -> dict[str, Any]:
        """Put open and saved documents together as one, to be asked as any other."""
        body = json.dumps({"documents": list(documents), "entries": list(entries)}).encode()
        return self._json("POST", "/collections", body, "application/json")

    def answer(self, document_id: str, question: str, **settings: Any) -> str:
        """Ask a question, and wait for the whole answer.

        Raises:
            RequestFailed: it was not answered, or not to its end: it was stopped, or the app has ended.
        """
        finished = None
        for event in self.ask(document_id, question, **settings):
            if event["event"] == "answer_finished":
                finished = event
        if finished is None:
            what = "There is no answer: it was stopped, or the app has ended"
            raise RequestFailed(200, {"code": "stopped", "what": what, "fix": "Ask again."})
        return finished["text"]

    def stop(self, document_id: str) -> dict[str, Any]:
        """End what runs on a document; returns its card."""
        return self._json("POST", f"/documents/{document_id}/stop")

    def ledger(self, document_id: str) -> dict[str, Any]:
        """The ledger: every token of the document is in one of its counts."""
        return self._json("GET", f"/documents/{document_id}/ledger")

    def headings(self, document_id: str) -> dict[str, Any]:
        """The first headings of a document with their levels and pages, and how many there are."""
        return self._json("GET", f"/documents/{document_id}/headings")

    # -- the library -----------------------------------------------------------------------------

    def save(self, document_id: str) -> dict[str, Any]:
        """Keep a read document in the library; returns its entry."""
        return self._json("POST", f"/documents/{document_id}/save")

    def library(self) -> list[dict[str, Any]]:
        """All that is saved, the newest first."""
        return self._json("GET", "/library")["entries"]

    def reopen(self, entry_id: str) -> dict[str, Any]:
        """Open a saved document; returns its card."""
        return self._json("POST", f"/library/{entry_id}/open")

    def rename(self, entry_id: str, title: str) -> dict[str, Any]:
        return self._json("POST", f"/library/{entry_id}/rename", *_as_json({"title": title}))

    def delete(self, entry_id: str) -> None:
        self._json("DELETE", f"/library/{entry_id}")

    # -- HTTP ------------------------------------------------------------------------------------

    def _json(
        self, method: str, path: str, body: bytes | Iterable[bytes] | None = None, kind: str = "", num_bytes: int = 0
    ) -> dict[str, Any]:
        response = self._send(method, path, body, kind, num_bytes)
        with closing(response):
            content = response.read()
        return json.loads(content) if content else {}

    def _lines(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Events as they come. The request is sent now, not when the first event is asked for."""
        response = self._send("POST", path, *_as_json(body))

        def events() -> Iterator[dict[str, Any]]:
            with closing(response):
                for line in response.iter_lines():
                    event = json.loads(line)
                    if event["event"] == "error":
                        raise RequestFailed(response.status_code, event["error"])
                    yield event

        return events()

    def _send(
        self, method: str, path: str, body: bytes | Iterable[bytes] | None = None, kind: str = "", num_bytes: int = 0
    ) -> httpx.Response:
        """The response, to be closed; `num_bytes` is the length of a body that comes in pieces."""
        headers = ({"Content-Type": kind} if kind else {}) | ({"Content-Length": str(num_bytes)} if num_bytes else {})
        request = self._http.build_request(method, f"/v1{path}", content=body, headers=headers)
        try:
            # A refusal may come before the body has been sent; httpx reads it then, too.
            response = self._http.send(request, stream=True)
            if response.is_success:
                return response
            with closing(response):
                raise RequestFailed(response.status_code, _error_in(response.read()))
        except httpx.TransportError as error:
            fix = "Start the app, or check the address."
            where = str(self._http.base_url)
            raise RequestFailed(0, {"what": f"No app answers: {error}", "where": where, "fix": fix}) from None


def _quoted(name: str) -> str:
    """A file name as browsers write it into a form."""
    for letter, code in (('"', "%22"), ("\r", "%0D"), ("\n", "%0A")):
        name = name.replace(letter, code)
    return name


def _as_json(body: dict[str, Any]) -> tuple[bytes, str]:
    return json.dumps(body).encode(), "application/json"


def _error_in(content: bytes) -> dict[str, str]:
    try:
        return dict(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):  # not of this interface: a guard, a proxy, another program
        return {"what": content.decode(errors="replace")[:200].strip().rstrip(".") or "The request failed"}
