"""The requests by which the page shows a PDF's pages as pictures, with a passage framed; guarded as the map's."""

from __future__ import annotations

from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ondevice.documents import Page
from ondevice.documents.pictures import MEDIA_TYPE, Frame, frames
from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import DocumentError
from ondevice.serving.registry import Registry
from ondevice.serving.token_view import TokenView
from ondevice.serving.workspace import Workspace
from ondevice.ui.map.routes import NO_STORE, NotThere, as_json, document_route

_WIDTHS = range(64, 513)  # pixels of a small picture
_GONE = "The file itself was not kept, only its text. Open it once more to see its pages."


def page_routes(registry: Registry) -> list[Route]:
    """The routes, for the app's own server; `registry` is where workspaces are found."""
    answers = {"picture": _picture, "passage": _passage}
    return [document_route(registry, name, answer, "page") for name, answer in answers.items()]


def _page(workspace: Workspace, request: Request) -> Page:
    """The page at `index`."""
    index, document = int(request.query_params["index"]), workspace.document
    if document is None or not 0 <= index < (document.num_pages or 0):
        raise NotThere
    assert isinstance(document.pages, tuple), "a stream is never shown"
    return document.pages[index]


def _picture(workspace: Workspace, _: TokenView, request: Request) -> Response:
    """The page at `index`: a picture, small where `width` is given, or as JSON why there is none."""
    page, width = _page(workspace, request), int(request.query_params.get("width", 0))
    if width and width not in _WIDTHS:
        raise ValueError
    if workspace.page_file is None:
        return as_json({"why": _GONE})
    try:
        image = workspace.page_file.page(page.number, width).image
        return Response(image, media_type=MEDIA_TYPE, headers=NO_STORE)
    except DocumentError as error:
        return as_json({"why": str(error)})


def _passage(workspace: Workspace, view: TokenView, request: Request) -> Response:
    """Frames around the tokens [from, to) on the page at `index`, in 1/10,000 of its width and height."""
    page, found = _page(workspace, request), list[Frame]()
    start, stop = (int(request.query_params[name]) for name in ("from", "to"))
    span = _characters(view.tokens, int(request.query_params["index"]), start, stop)
    if workspace.page_file is not None and span is not None:
        with suppress(DocumentError):
            found = frames(workspace.page_file.page(page.number), page.text, *span)
    return as_json({"frames": found})


def _characters(tokens: DocumentTokens, index: int, start: int, stop: int) -> tuple[int, int] | None:
    """Characters of the page's text that the document's tokens [start, stop) are; None where none of them is there."""
    if index >= tokens.num_pages:
        return None
    first, last = tokens.page_tokens(index)
    begin, end = max(start, first) - first, min(stop, last) - first
    if begin >= end:
        return None
    spans = tokens.page_spans(index)
    return int(spans[begin][0]), int(spans[end - 1][1])
