"""The app's mark, and the manifest with which a browser installs the page as an app of its own.

A token is a cell, and some of them are kept: the map in small.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

MARK = Path(str(resources.files("ondevice.assets") / "mark.svg"))
_MARK_PATH, _MANIFEST_PATH = "/ondevice/mark.svg", "/manifest.json"  # where Gradio's page looks for it
_COLOUR, _GROUND = "#0f766e", "#f6f8f9"


def manifest(root: str = "") -> dict[str, Any]:
    """The manifest; `root` is the path under which the app is served."""
    return {
        "name": "ondevice",
        "short_name": "ondevice",
        "description": "Reads documents of any length in a fixed amount of memory, and shows what it keeps.",
        "id": f"{root}/",
        "start_url": f"{root}/",
        "scope": f"{root}/",
        "display": "standalone",
        "theme_color": _COLOUR,
        "background_color": _GROUND,
        "icons": [{"src": f"{root}{_MARK_PATH}", "sizes": "any", "type": "image/svg+xml", "purpose": "any"}],
    }


def mark_routes() -> list[Route]:
    """The mark and the manifest."""

    def as_manifest(request: Request) -> Response:
        root = str(request.scope.get("root_path", "")).rstrip("/")
        return JSONResponse(manifest(root), media_type="application/manifest+json")

    def as_mark(_: Request) -> Response:
        return Response(MARK.read_bytes(), media_type="image/svg+xml")

    return [Route(_MANIFEST_PATH, as_manifest, methods=["GET"]), Route(_MARK_PATH, as_mark, methods=["GET"])]
