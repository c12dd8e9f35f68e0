"""The recording that the empty page plays: what is said of it, and the request that brings it.

It is made by `ondevice record`.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ondevice import words

PATH = "/ondevice/recording"


def recording() -> bytes:
    """The recording that is shipped, as JSON."""
    return (resources.files("ondevice.assets") / "recording.json").read_bytes()


def caption() -> dict[str, str]:
    """The caption of a recording: its document, and the tokens of a cell of its map."""
    made: dict[str, Any] = json.loads(recording())
    tokens, slots, took = words.count(made["tokens"]), words.count(made["slots"]), words.duration(made["seconds"])
    return {
        "caption": f"{made['title']}, {tokens} tokens, read by {made['model']} through {slots} slots in {took} on "
        f"{made['date']} ({made['device']}), played in 8 seconds.",
        "cell": f"Every cell is {words.plural(made['cell_tokens'], 'token')} of the novel, in order. The stronger the "
        "colour, the more attention heads of the model still hold them.",
    }


def recording_route() -> Route:
    """The route by which the page gets the recording when somebody wants to see it."""

    def endpoint(_: Request) -> Response:
        return Response(recording(), media_type="application/json", headers={"Cache-Control": "no-cache"})

    return Route(PATH, endpoint, methods=["GET"])
