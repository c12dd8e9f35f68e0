"""The programming interface: the screen's jobs over HTTP, on this machine; see docs/api.md.

Other pages cannot use it: every request must carry the header `X-Ondevice`, which a browser sends to another origin
only after asking this server, and it never agrees. Where the app has a password, so has the interface.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message

from ondevice.errors import ConfigError, LibraryError, NotInLibrary, OndeviceError, PotError
from ondevice.library import Entry, clean_title
from ondevice.ui.api_jobs import Jobs, error_json
from ondevice.ui.api_settings import answering_config, reading_config
from ondevice.ui.api_stream import stream, unless_gone
from ondevice.ui.uploads import Uploads
from ondevice.ui.workspace import Phase, Workspace

PREFIX = "/v1"
HEADER = "x-ondevice"
_JSON_BYTES = 1_000_000
_BESIDE_FILE_BYTES = 100_000  # of an upload: the form around the file
_WRONG_PASSWORD_SECONDS = 0.5  # so that guessing takes its time

Endpoint = Callable[[Request], Awaitable[Response]]


class ApiError(OndeviceError):
    """A request that cannot be answered, with its status."""

    def __init__(self, status: int, code: str, what: str, fix: str = "") -> None:
        super().__init__(what, fix=fix)
        self.status, self.code = status, code


class Api:
    """The routes of the programming interface.

    Args:
        jobs: what it does.
        uploads: where received files go.
        auth: user name and password that every request must give; None: none.
    """

    def __init__(self, jobs: Jobs, uploads: Uploads, auth: tuple[str, str] | None) -> None:
        self._jobs, self._uploads, self._auth = jobs, uploads, auth

    def routes(self) -> list[Route]:
        """All routes, each behind the header and the password."""
        document, entry = "/documents/{id}", "/library/{id}"
        table: list[tuple[str, str, Endpoint]] = [
            ("GET", "/health", self._health),
            ("GET", "/documents", self._documents),
            ("POST", "/documents", self._open),
            ("GET", document, self._document),
            ("DELETE", document, self._close),
            ("GET", f"{document}/ledger", self._ledger),
            ("POST", f"{document}/read", self._read),
            ("POST", f"{document}/resume", self._resume),
            ("POST", f"{document}/ask", self._ask),
            ("POST", f"{document}/stop", self._stop),
            ("POST", f"{document}/save", self._save),
            ("GET", "/library", self._library),
            ("POST", f"{entry}/open", self._reopen),
            ("POST", f"{entry}/rename", self._rename),
            ("DELETE", entry, self._delete),
        ]
        return [Route(PREFIX + path, self._guarded(call), methods=[method]) for method, path, call in table]

    def _guarded(self, call: Endpoint) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            try:
                if HEADER not in request.headers:
                    raise ApiError(403, "header-missing", "The header X-Ondevice is missing", "Send X-Ondevice: 1.")
                await self._require_password(request)
                return await call(request)
            except HTTPException as error:  # of the form parser
                return _failed(400, ApiError(400, "request", str(error.detail)))
            except Exception as error:
                return _failed(_status(error), error)

        return endpoint

    async def _require_password(self, request: Request) -> None:
        if self._auth is None:
            return
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        try:
            pair = base64.b64decode(given, validate=True) if kind.lower() == "basic" else b""
        except ValueError:  # not base64, or not even ASCII
            pair = b""
        if not secrets.compare_digest(pair, ":".join(self._auth).encode()):
            await asyncio.sleep(_WRONG_PASSWORD_SECONDS)
            raise ApiError(401, "password", "The user name or the password is wrong", "Send those of --auth as Basic.")

    # -- documents -------------------------------------------------------------------------------

    async def _health(self, request: Request) -> Response:
        loaded = self._jobs.engine.loaded
        return JSONResponse(
            {
                "status": "ok",
                "model": loaded.name,
                "device": loaded.device.type,
                "dtype": str(loaded.dtype).removeprefix("torch."),
                "max_file_bytes": self._uploads.max_bytes,
            }
        )

    async def _documents(self, request: Request) -> Response:
        return JSONResponse({"documents": [_card(workspace) for workspace in self._jobs.documents]})

    async def _open(self, request: Request) -> Response:
        limit = self._uploads.max_bytes + _BESIDE_FILE_BYTES
        async with _limited(request, limit).form(max_files=1, max_fields=2) as form:
            file, password = form.get("file"), form.get("password") or ""
            if not isinstance(file, UploadFile) or not isinstance(password, str):
                raise ApiError(400, "request", "There is no file", "Send multipart/form-data with a field `file`.")
            upload = await run_in_threadpool(self._uploads.receive, file.file, file.filename or "")
        try:
            workspace = self._new_workspace(upload.path.name)
        except OndeviceError:
            upload.discard()
            raise
        await unless_gone(request, lambda: self._jobs.open(workspace, upload, password), workspace.request_stop)
        _require_open(workspace)
        return JSONResponse(_card(workspace), 201)

    def _new_workspace(self, name: str) -> Workspace:
        try:
            return self._jobs.new(name)
        except OndeviceError as error:  # nothing is wrong with the file
            raise ApiError(409, "busy", error.what, error.fix) from error

    async def _document(self, request: Request) -> Response:
        return JSONResponse(_card(self._find(request)))

    async def _close(self, request: Request) -> Response:
        workspace = self._find(request)
        await run_in_threadpool(self._jobs.close, workspace)
        return Response(status_code=204)

    async def _ledger(self, request: Request) -> Response:
        session = self._find(request).session
        if session is None:
            raise PotError("There is no document in the pot yet", fix="Read the document first.")
        return JSONResponse(await run_in_threadpool(lambda: session.ledger.to_dict()))

    # -- reading and asking ----------------------------------------------------------------------

    async def _read(self, request: Request) -> Response:
        config = reading_config(self._jobs.engine.config, await _json(request))
        workspace = self._claimed(request)
        return stream(self._jobs.read(workspace, config), workspace.request_stop)

    async def _resume(self, request: Request) -> Response:
        if self._find(request).phase is not Phase.STOPPED:
            raise ApiError(409, "state", "Nothing was stopped in the middle of its reading", "Read the document.")
        workspace = self._claimed(request)
        return stream(self._jobs.resume(workspace), workspace.request_stop)

    async def _ask(self, request: Request) -> Response:
        body = await _json(request)
        question = body.pop("question", None)
        if not isinstance(question, str) or not question.strip():
            raise ConfigError("There is no question", fix="Send it as a text, in `question`.")
        generation = answering_config(self._jobs.engine.config.generation, body)
        workspace = self._find(request)
        if workspace.session is None or workspace.session.tokens is None:
            raise PotError("There is no document in the pot yet", fix="Read the document first.")
        self._claimed(request)
        return stream(self._jobs.ask(workspace, question, generation), workspace.request_stop)

    async def _stop(self, request: Request) -> Response:
        workspace = self._find(request)
        await run_in_threadpool(workspace.halt)
        return JSONResponse(_card(workspace))

    # -- the library -----------------------------------------------------------------------------

    async def _save(self, request: Request) -> Response:
        workspace = self._claimed(request)
        entry = await unless_gone(request, lambda: self._jobs.save(workspace), workspace.request_stop)
        return JSONResponse(self._entry(entry), 201)

    async def _library(self, request: Request) -> Response:
        entries = await run_in_threadpool(self._jobs.library.entries)
        return JSONResponse({"entries": [self._entry(entry) for entry in entries]})

    async def _reopen(self, request: Request) -> Response:
        entry = await run_in_threadpool(self._jobs.library.find, request.path_params["id"])
        workspace = self._new_workspace(entry.title)
        await unless_gone(request, lambda: self._jobs.reopen(workspace, entry), workspace.request_stop)
        _require_open(workspace)
        return JSONResponse(_card(workspace), 201)

    async def _rename(self, request: Request) -> Response:
        title = (await _json(request)).get("title")
        if not isinstance(title, str) or not clean_title(title):
            raise ConfigError("The new name is empty", fix="Send it as a text, in `title`.")
        entry = await run_in_threadpool(self._jobs.library.rename, request.path_params["id"], title)
        return JSONResponse(self._entry(entry))

    async def _delete(self, request: Request) -> Response:
        await run_in_threadpool(self._jobs.library.delete, request.path_params["id"])
        return Response(status_code=204)

    def _entry(self, entry: Entry) -> dict[str, Any]:
        names = ("id", "title", "saved", "document", "kind", "unit", "num_pages", "num_tokens", "model")
        shown = {name: getattr(entry, name) for name in (*names, "pot_bytes", "size_bytes")}
        config = entry.config.to_dict() if entry.config is not None else None
        return {**shown, "config": config, "problem": entry.misfit(self._jobs.engine.loaded)}

    def _find(self, request: Request) -> Workspace:
        workspace = self._jobs.find(request.path_params["id"])
        if workspace is None:
            raise ApiError(404, "not-found", "There is no such document", "It may have been closed, or idle too long.")
        return workspace

    def _claimed(self, request: Request) -> Workspace:
        workspace = self._find(request)
        if not workspace.claim():
            raise ApiError(409, "busy", "The document is busy", "Wait for what is running, or stop it.")
        return workspace


def _require_open(workspace: Workspace) -> None:
    if workspace.document is None:
        raise ApiError(499, "stopped", "Opening was stopped")


def _card(workspace: Workspace) -> dict[str, Any]:
    """What is known of an open document."""
    document, layout, session = workspace.document, workspace.layout, workspace.session
    card: dict[str, Any] = {"id": workspace.id, "name": workspace.name, "phase": workspace.phase.value}
    if document is None or layout is None:
        return card
    return card | {
        "kind": document.kind,
        "unit": document.unit,
        "num_pages": document.num_pages,
        "size_bytes": document.size_bytes,
        "num_tokens": layout.num_tokens,
        "num_read": session.num_read if session is not None else 0,
        "pot_bytes": workspace.pot_bytes,
        "pages_without_text": [
            {"page": page.number, "code": page.problem_code, "message": page.problem}
            for page in document.pages
            if page.problem_code
        ],
        "entry_id": workspace.entry_id,
    }


async def _json(request: Request) -> dict[str, Any]:
    """The body of a request: a JSON object, or nothing."""
    body = await _limited(request, _JSON_BYTES).body()
    if not body:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "request", "The body is not called JSON", "Send Content-Type: application/json.")
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise ApiError(400, "request", "The body is not JSON") from None
    if not isinstance(data, dict):
        raise ApiError(400, "request", "The body is not a JSON object")
    return data


def _limited(request: Request, num_bytes: int) -> Request:
    """The same request, which fails once more than `num_bytes` have come."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > num_bytes:
        raise _too_large(num_bytes)
    num_seen = 0

    async def receive() -> Message:
        nonlocal num_seen
        message = await request.receive()
        num_seen += len(message.get("body", b""))
        if num_seen > num_bytes:
            raise _too_large(num_bytes)
        return message

    return Request(request.scope, receive)


def _too_large(num_bytes: int) -> ApiError:
    return ApiError(413, "too-large", f"The request is larger than {num_bytes:,} bytes", "Send less.")


def _status(error: Exception) -> int:
    match error:
        case ApiError():
            return error.status
        case NotInLibrary():
            return 404
        case LibraryError():
            return 409
        case ConfigError():
            return 400
        case PotError():
            return 409
        case OndeviceError():
            return 422
    return 500


def _failed(status: int, error: Exception) -> Response:
    headers = {"WWW-Authenticate": 'Basic realm="ondevice"'} if status == 401 else {}
    return JSONResponse({"error": error_json(error)}, status, headers=headers)
