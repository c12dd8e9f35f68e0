"""The programming interface: the screen's jobs over HTTP, on this machine; see docs/api.md.

Other pages cannot use it: every request must carry the header `X-Ondevice`, or `Authorization: Bearer`, which a browser
sends to another origin only after asking this server, and it never agrees. Where the app has a password, so has the
interface.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ondevice.api.bodies import json_body, limited
from ondevice.api.chat import Completion, asked_of, model_of, openai_error
from ondevice.api.documents import Documents, claim, end_of
from ondevice.api.failures import ApiError, ErrorAs, error_json, failed_response
from ondevice.api.parts import headings
from ondevice.api.stream import stream, unless_gone
from ondevice.config import ANSWERING, READING, by_key, with_choices, with_values
from ondevice.errors import ConfigError, NotInLibrary, OndeviceError, PotError
from ondevice.events import MAX_NOTES, AnswerFinished
from ondevice.library.library import Entry, clean_title
from ondevice.serving.job_events import Opened, Saved
from ondevice.serving.jobs import Job, Jobs, session_of
from ondevice.serving.login import Login
from ondevice.serving.question_queue import Asked
from ondevice.serving.uploads import Uploads
from ondevice.serving.workspace import Phase, Workspace

PREFIX = "/v1"
HEADER = "x-ondevice"
_BESIDE_FILE_BYTES = 100_000  # of an upload: the form around the file
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_SHOWN = 80  # characters of a path that nobody knows
_MOST_DIGITS = 18  # of a number
_KEPT = "kept"  # the phase of what waits on disk since it was open before a restart

Endpoint = Callable[[Request], Awaitable[Response]]


class Api:
    """The routes of the programming interface.

    Args:
        jobs: what can be done with a document.
        uploads: where received files go.
        login: checks the user name and password that every request must give; None: it gives none.
    """

    def __init__(self, jobs: Jobs, uploads: Uploads, login: Login | None) -> None:
        self._jobs, self._uploads, self._login = jobs, uploads, login
        self._opened = Documents(jobs)

    def routes(self) -> list[Route]:
        """All routes; each needs the header and the password."""
        document, entry = "/documents/{id}", "/library/{id}"
        table: list[tuple[str, str, Endpoint]] = [
            ("GET", "/health", self._health),
            ("GET", "/documents", self._documents),
            ("POST", "/documents", self._open),
            ("GET", document, self._document),
            ("DELETE", document, self._close),
            ("GET", f"{document}/ledger", self._ledger),
            ("GET", f"{document}/headings", self._headings),
            ("POST", f"{document}/read", self._read),
            ("POST", f"{document}/resume", self._resume),
            ("POST", f"{document}/ask", self._ask),
            ("POST", f"{document}/scan", self._scan),
            ("POST", f"{document}/stop", self._stop),
            ("POST", f"{document}/save", self._save),
            ("POST", "/collections", self._collect),
            ("GET", "/library", self._library),
            ("POST", f"{entry}/open", self._reopen),
            ("POST", f"{entry}/rename", self._rename),
            ("DELETE", entry, self._delete),
        ]
        openai = [("GET", "/models", self._models), ("POST", "/chat/completions", self._complete)]
        return [
            Route(PREFIX + path, self._guarded(call, error_as), methods=[method])
            for calls, error_as in ((table, error_json), (openai, openai_error))
            for method, path, call in calls
        ] + [Route(f"{PREFIX}/{{rest:path}}", self._guarded(self._nowhere, error_json), methods=_METHODS)]

    def _guarded(self, call: Endpoint, error_as: ErrorAs) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            try:
                # A browser adds `Basic` by itself where it knows a password, but never `Bearer`.
                has_key = request.headers.get("authorization", "").lower().startswith("bearer ")
                if HEADER not in request.headers and not has_key:
                    raise ApiError(403, "header-missing", "The header X-Ondevice is missing", "Send X-Ondevice: 1.")
                await self._require_password(request)
                if call != self._health and not self._jobs.engine.loaded.tokenizer:
                    what = self._jobs.loading.line if self._jobs.loading is not None else "There is no model"
                    raise ApiError(503, "no-model", what, "Try again in some seconds.")
                return await call(request)
            except Exception as error:
                return failed_response(error, error_as)

        return endpoint

    async def _require_password(self, request: Request) -> None:
        if self._login is None:
            return
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        try:
            pair = base64.b64decode(given, validate=True) if kind.lower() == "basic" else b""
        except ValueError:  # not base64, or not even ASCII
            pair = b""
        if kind.lower() == "bearer":  # what OpenAI's clients call a key
            pair = given.encode()
        if not pair or not await self._login.check(pair):
            raise ApiError(401, "password", "The user name or the password is wrong", "Send those of --auth as Basic.")

    async def _nowhere(self, request: Request) -> Response:
        what = f"There is no {request.method} {request.url.path[:_SHOWN]!r}"
        raise ApiError(404, "not-found", what, "docs/api.md has all requests.")

    # -- documents -------------------------------------------------------------------------------

    async def _health(self, request: Request) -> Response:
        loaded = self._jobs.engine.loaded
        model = {"model": loaded.name, "device": loaded.device.type, "dtype": str(loaded.dtype).removeprefix("torch.")}
        status = "ok" if loaded.tokenizer else "loading"
        return JSONResponse({"status": status} | model | {"max_file_bytes": self._uploads.max_bytes})

    async def _documents(self, request: Request) -> Response:
        return JSONResponse({"documents": [_card(workspace) for workspace in self._opened.all()]})

    async def _open(self, request: Request) -> Response:
        limit, announced = self._uploads.max_bytes + _BESIDE_FILE_BYTES, request.headers.get("content-length", "")
        bounded = limited(request, limit)
        self._uploads.require_space(int(announced) if announced.isdigit() else limit)
        async with bounded.form(max_files=1, max_fields=2) as form:
            file, password = form.get("file"), form.get("password") or ""
            if not isinstance(file, UploadFile) or not isinstance(password, str):
                raise ApiError(400, "request", "There is no file", "Send multipart/form-data with a field `file`.")
            upload = await run_in_threadpool(self._uploads.receive, file.file, file.filename or "")
        try:
            workspace = self._new_workspace(upload.path.name)
        except OndeviceError:
            upload.discard()
            raise
        await self._go(request, workspace, self._jobs.open(workspace, upload, password))
        return JSONResponse(_card(workspace), 201)

    async def _collect(self, request: Request) -> Response:
        body = await json_body(request)
        documents, entries = _ids(body, "documents"), _ids(body, "entries")
        by_key({}, body)  # it has no settings
        return JSONResponse(_card(await run_in_threadpool(self._opened.collect, documents, entries)), 201)

    async def _go(self, request: Request, workspace: Workspace, job: Job) -> None:
        """Open a document in a new workspace, unless the client goes before."""
        await unless_gone(request, lambda: self._opened.open(workspace, job), workspace.request_stop)

    def _new_workspace(self, name: str) -> Workspace:
        try:
            return self._opened.new(name)
        except OndeviceError as error:  # nothing is wrong with the file
            raise ApiError(409, "busy", error.what, error.fix) from error

    async def _document(self, request: Request) -> Response:
        return JSONResponse(_card(self._find(request)))

    async def _close(self, request: Request) -> Response:
        workspace = self._find(request)
        await run_in_threadpool(self._opened.close, workspace)
        return Response(status_code=204)

    async def _ledger(self, request: Request) -> Response:
        session = (await self._present(request)).session
        if session is None:
            raise PotError("There is no document in the pot yet", fix="Read the document first.")
        return JSONResponse(await run_in_threadpool(lambda: session.context.ledger.to_dict()))

    async def _headings(self, request: Request) -> Response:
        tokens = (await self._present(request)).tokens
        if tokens is None:
            raise PotError("The text of the document is not there yet", fix="Wait until it is open.")
        cursor = request.query_params.get("cursor", "0")
        first = int(cursor[:_MOST_DIGITS]) if cursor.isdecimal() else 0
        return JSONResponse(await run_in_threadpool(headings, tokens, first))

    # -- reading and asking ----------------------------------------------------------------------

    async def _read(self, request: Request) -> Response:
        config = with_choices(self._jobs.engine.config, by_key(READING, await json_body(request)))
        workspace = await self._claimed(request)
        return stream(self._jobs.read(workspace, config), workspace.request_stop)

    async def _resume(self, request: Request) -> Response:
        if (await self._present(request)).phase is not Phase.STOPPED:
            raise ApiError(409, "state", "Nothing was stopped in the middle of its reading", "Read the document.")
        workspace = await self._claimed(request)
        return stream(self._jobs.resume(workspace), workspace.request_stop)

    async def _ask(self, request: Request) -> Response:
        body = await json_body(request)
        question = question_of(body)
        values = by_key(ANSWERING, body)
        workspace = await self._present(request)
        session = session_of(workspace)
        claim(workspace)
        asked = Asked(question, with_values(session.context.config.generation, values), remembers=False)
        return stream(self._jobs.ask(workspace, asked), workspace.request_stop)

    async def _scan(self, request: Request) -> Response:
        body = await json_body(request)
        question = question_of(body)
        by_key({}, body)  # it has no settings
        workspace = await self._claimed(request)
        return stream(self._opened.scan(workspace, question), workspace.request_stop)

    async def _stop(self, request: Request) -> Response:
        workspace = self._find(request)
        await run_in_threadpool(workspace.halt)
        return JSONResponse(_card(workspace))

    # -- in the shape of OpenAI's ----------------------------------------------------------------

    async def _models(self, request: Request) -> Response:
        entries = await run_in_threadpool(self._jobs.library.entries)
        found: list[Workspace | Entry] = [one for one in self._opened.all() if one.session is not None or one.is_away]
        found += (entry for entry in entries if not entry.misfit(self._jobs.engine.loaded))
        return JSONResponse({"object": "list", "data": [model_of(one) for one in found]})

    async def _complete(self, request: Request) -> Response:
        body = await json_body(request)
        asked = asked_of(body, self._jobs.engine.config.generation)
        workspace = await self._model(request, body.get("model"))
        session_of(workspace)  # before it is claimed
        claim(workspace)
        options = body.get("stream_options")
        num_asked = len(self._jobs.engine.loaded.tokenizer.encode(asked.question)[0])
        has_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        completion = Completion(str(body["model"]), num_asked, includes_usage=has_usage)
        job = self._jobs.ask(workspace, asked)
        if body.get("stream"):
            return stream(job, workspace.request_stop, completion.events, "text/event-stream")
        what, fix = "The question was not answered to the end", "Ask again."
        finished = await unless_gone(request, lambda: end_of(job, AnswerFinished, what, fix), workspace.request_stop)
        return JSONResponse(completion.whole(finished))

    async def _model(self, request: Request, model: Any) -> Workspace:
        """The document with this id; one of the library is opened, unless it is open."""
        workspace = next((one for one in self._opened.all() if model and model in (one.id, one.entry_id)), None)
        if workspace is not None:
            return await self._taken_up(request, workspace)
        try:
            entry = await run_in_threadpool(self._jobs.library.find, model)
        except NotInLibrary as error:
            fix = "`GET /v1/models` lists them."
            raise ApiError(404, "model_not_found", "There is no such document", fix) from error
        workspace = self._new_workspace(entry.title)
        await self._go(request, workspace, self._jobs.reopen(workspace, entry))
        return workspace

    # -- the library -----------------------------------------------------------------------------

    async def _save(self, request: Request) -> Response:
        workspace = await self._claimed(request)
        job = self._jobs.save(workspace)
        saved = await unless_gone(request, lambda: end_of(job, Saved), workspace.request_stop)
        return JSONResponse(self._entry(saved.entry), 201)

    async def _library(self, request: Request) -> Response:
        entries = await run_in_threadpool(self._jobs.library.entries)
        return JSONResponse({"entries": [self._entry(entry) for entry in entries]})

    async def _reopen(self, request: Request) -> Response:
        entry = await run_in_threadpool(self._jobs.library.find, request.path_params["id"])
        workspace = self._new_workspace(entry.title)
        await self._go(request, workspace, self._jobs.reopen(workspace, entry))
        return JSONResponse(_card(workspace), 201)

    async def _rename(self, request: Request) -> Response:
        title = (await json_body(request)).get("title")
        if not isinstance(title, str) or not clean_title(title):
            raise ConfigError("The new name is empty", fix="Send it as a text, in `title`.")
        entry = await run_in_threadpool(self._jobs.library.rename, request.path_params["id"], title)
        return JSONResponse(self._entry(entry))

    async def _delete(self, request: Request) -> Response:
        await run_in_threadpool(self._opened.delete, request.path_params["id"])
        return Response(status_code=204)

    def _entry(self, entry: Entry) -> dict[str, Any]:
        names = ("id", "title", "saved", "document", "kind", "unit", "num_pages", "num_tokens", "model")
        shown = {name: getattr(entry, name) for name in (*names, "pot_bytes", "size_bytes")}
        config = entry.config.to_dict() if entry.config is not None else None
        return {**shown, "config": config, "problem": entry.misfit(self._jobs.engine.loaded)}

    def _find(self, request: Request) -> Workspace:
        return self._opened.required(request.path_params["id"])

    async def _present(self, request: Request) -> Workspace:
        """The document of the request; one that was open before a restart is taken up first."""
        return await self._taken_up(request, self._find(request))

    async def _taken_up(self, request: Request, workspace: Workspace) -> Workspace:
        if workspace.is_away:
            claim(workspace)
            job = self._jobs.restore_workspace(workspace)
            await unless_gone(request, lambda: end_of(job, Opened), workspace.request_stop)
        return workspace

    async def _claimed(self, request: Request) -> Workspace:
        workspace = await self._present(request)
        claim(workspace)
        return workspace


def question_of(body: dict[str, Any]) -> str:
    """The question of a body, taken out of it; raises ConfigError where there is none."""
    question = body.pop("question", None)
    if not isinstance(question, str) or not question.strip():
        raise ConfigError("There is no question", fix="Send it as a text, in `question`.")
    return question


def _ids(body: dict[str, Any], name: str) -> list[str]:
    ids = body.pop(name, [])
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise ConfigError(f"`{name}` is a list of ids", fix="Send the ids that opening gave.")
    return ids


def _card(workspace: Workspace) -> dict[str, Any]:
    """Facts of an open document, as JSON."""
    document, session = workspace.document, workspace.session
    phase = _KEPT if workspace.is_away and workspace.activity is None else workspace.phase.value
    card: dict[str, Any] = {"id": workspace.id, "name": workspace.name, "phase": phase}
    if document is None:
        return card
    missing = [page for page in document.pages if page.problem_code]
    return card | {
        "kind": document.kind,
        "unit": document.unit,
        "num_pages": document.num_pages,
        "size_bytes": document.size_bytes,
        "num_tokens": workspace.num_tokens,
        "num_read": session.context.num_read if session is not None else 0,
        "pot_bytes": workspace.pot_bytes,
        "pages_without_text": [
            {"page": page.number, "code": page.problem_code, "message": page.problem} for page in missing[:MAX_NOTES]
        ],
        "num_pages_without_text": len(missing),
        "notices": list(workspace.notices),
        "entry_id": workspace.entry_id,
        **({"places": list(workspace.tokens.places)} if workspace.is_collection and workspace.tokens else {}),
    }
