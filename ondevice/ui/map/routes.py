"""The requests by which the page fills its token map and its reading view: a few kilobytes each, when they are needed.

They are for this program's own page and no public interface. A request names the workspace in a header; its id
cannot be guessed, and in a header it ends up in no log. A page of another origin cannot send that header: the browser
asks this server first, and is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ondevice.serving.registry import Registry
from ondevice.serving.token_map import MAX_CELLS, Look
from ondevice.serving.token_view import TokenView
from ondevice.serving.workspace import Workspace
from ondevice.ui.map.account import account
from ondevice.ui.map.film import film
from ondevice.ui.map.reading_view import num_pieces, piece

PREFIX = "/ondevice"
HEADER = "x-ondevice-workspace"
_MAX_PAGES = 4096  # of one answer: 32 kB
_MOST = 2**31  # of what numpy counts with
NO_STORE = {"Cache-Control": "no-store"}
_MISSING = 204  # a document may be closed while the page asks for it: that is no failure for its console


class NotThere(Exception):
    """This document has no such token, page or part, or is not open."""


def document_route(
    registry: Registry,
    name: str,
    answer: Callable[[Workspace, TokenView, Request], Response],
    about: str = "document",
) -> Route:
    """The route of one kind of request about an open document.

    Args:
        registry: where workspaces are found.
        answer: to a request about a document and its tokens; raises NotThere, or KeyError or ValueError if the
            request makes no sense.
        about: what the request asks about.
    """

    def endpoint(request: Request) -> Response:
        try:
            workspace = registry.workspace(request.headers.get(HEADER))
            if workspace is None or (view := workspace.view) is None:  # it may be closed meanwhile
                raise NotThere
            return answer(workspace, view, request)
        except NotThere:
            return Response(status_code=_MISSING, headers=NO_STORE)
        except (KeyError, ValueError):
            return PlainTextResponse(f"That is no question about a {about}.", 400, NO_STORE)

    return Route(f"{PREFIX}/{name}", endpoint, methods=["GET"])


def map_routes(registry: Registry) -> list[Route]:
    """The routes, for the app's own server; `registry` is where workspaces are found."""
    answers = {"cells": _cells, "pages": _pages, "token": _token, "text": _text, "film": _film}
    return [document_route(registry, name, answer) for name, answer in answers.items()]


def _film(workspace: Workspace, view: TokenView, _: Request) -> Response:
    """Facts of a film, beside its cells."""
    return as_json(film(workspace, view))


def _cells(_: Workspace, view: TokenView, request: Request) -> Response:
    """Cells of `size` tokens over [start, stop): two bytes each, and after them one for each layer."""
    start, stop, size = _span(view, request)
    if -(-(stop - start) // size) > MAX_CELLS:
        raise ValueError
    cells = view.cells(start, stop, size, _look(request))
    return _binary(cells.to_bytes() + cells.layers_to_bytes())


def _pages(_: Workspace, view: TokenView, request: Request) -> Response:
    """Number and first token of each page from `first` on, as pairs of uint32."""
    first, tokens = _number(request, "first"), view.tokens
    shown = range(first, min(first + _MAX_PAGES, tokens.num_pages))
    pairs = [(tokens.page_numbers[index], tokens.page_tokens(index)[0]) for index in shown]
    return _binary(np.array(pairs, "<u4").tobytes())


def _token(_: Workspace, view: TokenView, request: Request) -> Response:
    """All there is to say about the tokens [start, stop)."""
    start, stop = _span(view, request)[:2]
    return as_json(account(view, start, max(stop, start + 1), _look(request)))


def _text(_: Workspace, view: TokenView, request: Request) -> Response:
    """A piece of the page at `index`, by the number of its part; runs also end before the tokens `from` and `to`."""
    index, part = _number(request, "index"), _number(request, "part")
    if index >= view.tokens.num_pages:
        raise NotThere
    first, last = view.tokens.page_tokens(index)
    if part >= num_pieces(last - first):
        raise NotThere
    names = ("from", "to")
    cuts = [_number(request, name) for name in names if name in request.query_params]
    return as_json(piece(view, index, part, _look(request), cuts))


def _span(view: TokenView, request: Request) -> tuple[int, int, int]:
    start, stop = _number(request, "start"), _number(request, "stop")
    size = _number(request, "size") if "size" in request.query_params else 1
    if stop < start or size < 1:
        raise ValueError
    if start >= view.tokens.num_tokens:
        raise NotThere
    return start, min(stop, view.tokens.num_tokens), size


def _look(request: Request) -> Look:
    names = ("cycle", "layer", "head")
    return Look(*(_number(request, name) if name in request.query_params else None for name in names))


def _number(request: Request, name: str) -> int:
    number = int(request.query_params[name])
    if not 0 <= number < _MOST:
        raise ValueError
    return number


def _binary(content: bytes) -> Response:
    return Response(content, media_type="application/octet-stream", headers=NO_STORE)


def as_json(value: Any) -> Response:
    """A response of JSON that no browser keeps."""
    content = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return Response(content, media_type="application/json", headers=NO_STORE)
