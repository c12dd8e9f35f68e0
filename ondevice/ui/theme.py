"""The theme: one family of letters, shipped with Gradio; quiet surfaces, one accent; light and dark from one table.
The mark, and the manifest with which a browser installs the page as an app of its own.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import gradio as gr
from gradio.themes.utils import fonts
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ondevice.files import asset

MARK = Path(str(resources.files("ondevice.assets") / "mark.svg"))
_MARK_PATH, _MANIFEST_PATH = "/ondevice/mark.svg", "/manifest.json"  # where Gradio's page looks for it
_COLOUR, _GROUND = "#0f766e", "#f6f8f9"
_FAMILY = "IBM Plex Sans"  # its figures are all of one width
_SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "DejaVu Sans", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace")
_COLOURS = json.loads(asset("colours.json"))  # light and dark: the theme's, and `od_...` of what we draw ourselves


def make_theme() -> gr.themes.Base:
    """The theme of the app."""
    theme = gr.themes.Base(
        primary_hue=gr.themes.colors.teal,
        secondary_hue=gr.themes.colors.teal,
        neutral_hue=gr.themes.colors.slate,
        radius_size=gr.themes.sizes.radius_md,
        spacing_size=gr.themes.sizes.spacing_md,
        text_size=gr.themes.sizes.text_md,
        font=[fonts.LocalFont(_FAMILY, weights=(400, 600, 700)), *(fonts.Font(name) for name in _SANS)],
        font_mono=[fonts.Font(name) for name in _MONO],
    ).set(block_shadow="none")
    for name, (light, dark) in _COLOURS.items():  # each becomes a variable of the stylesheet
        setattr(theme, name, light)
        setattr(theme, f"{name}_dark", dark)
    return theme


def mark_routes() -> list[Route]:
    """The mark and the manifest."""

    def as_manifest(request: Request) -> Response:
        root = str(request.scope.get("root_path", "")).rstrip("/")  # the path under which the app is served
        manifest = {
            **dict.fromkeys(("name", "short_name"), "ondevice"),
            "description": "Reads documents of any length in a fixed amount of memory, and shows what it keeps.",
            **dict.fromkeys(("id", "start_url", "scope"), f"{root}/"),
            "display": "standalone",
            "theme_color": _COLOUR,
            "background_color": _GROUND,
            "icons": [{"src": f"{root}{_MARK_PATH}", "sizes": "any", "type": "image/svg+xml", "purpose": "any"}],
        }
        return JSONResponse(manifest, media_type="application/manifest+json")

    def as_mark(_: Request) -> Response:
        return Response(MARK.read_bytes(), media_type="image/svg+xml")

    return [Route(_MANIFEST_PATH, as_manifest, methods=["GET"]), Route(_MARK_PATH, as_mark, methods=["GET"])]
