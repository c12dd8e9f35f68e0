"""The requests by which the page shows a PDF's pages as pictures, with a passage framed; guarded as the map's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ondevice.documents import Page
from ondevice.documents.pictures import MEDIA_TYPE, frames
from ondevice.errors import DocumentError
from ondevice.serving.registry import Registry
from ondevice.serving.workspace import Workspace
from ondevice.ui.map.routes import HEADER, PREFIX

_NO_STORE = {"Cache-Control": "no-store"}
_GONE = "The file itself was not kept, only its text. Open it once more to see its pages."


def page_routes(registry: Registry) -> list[Route]:
    """The routes, for the app's own server; `registry` is where workspaces are found."""

    def route(name: str, answer: Callable[[Workspace, Page, Request], Response]) -> Route:
        def endpoint(request: Request) -> Response:
            workspace = registry.workspace(request.headers.get(HEADER))
            document = workspace.document if workspace is not None else None
            try:
                index = int(request.query_params["index"])
                if workspace is None or document is None or not 0 <= index < (document.num_pages or 0):
                    return Response(status_code=204, headers=_NO_STORE)  # as for the map: no failure for its console
                assert isinstance(document.pages, tuple), "a stream is never shown"
                return answer(workspace, document.pages[index], request)
            except (KeyError, ValueError):
                return PlainTextResponse("That is no question about a page.", 400, _NO_STORE)

        return Route(f"{PREFIX}/{name}", endpoint, methods=["GET"])

    return [route("picture", _picture), route("passage", _passage)]


def _picture(workspace: Workspace, page: Page, request: Request) -> Response:
    """The page at `index`: a picture, or as JSON why there is none."""
    if workspace.page_file is None:
        return _json({"why": _GONE})
    try:
        return Response(workspace.page_file.page(page.number).image, media_type=MEDIA_TYPE, headers=_NO_STORE)
    except DocumentError as error:
        return _json({"why": str(error)})


def _passage(workspace: Workspace, page: Page, request: Request) -> Response:
    """Frames around the tokens [from, to) on the page at `index`, in 1/10,000 of its width and height."""
    start, stop = (int(request.query_params[name]) for name in ("from", "to"))
    span = _characters(workspace, int(request.query_params["index"]), start, stop)
    if workspace.page_file is None or span is None:
        return _json({"frames": []})
    try:
        return _json({"frames": frames(workspace.page_file.page(page.number), page.text, *span)})
    except DocumentError:
        return _json({"frames": []})


def _characters(workspace: Workspace, index: int, start: int, stop: int) -> tuple[int, int] | None:
    """Characters of the page's text that the document's tokens [start, stop) are; None where none of them is there."""
    tokens = workspace.tokens
    if tokens is None or index >= tokens.num_pages:
        return None
    first, last = tokens.page_tokens(index)
    begin, end = max(start, first) - first, min(stop, last) - first
    if begin >= end:
        return None
    spans = tokens.page_spans(index)
    return int(spans[begin][0]), int(spans[end - 1][1])


def _json(value: Any) -> Response:
    return Response(json.dumps(value), media_type="application/json", headers=_NO_STORE)
