"""A stand-in for the package that brings llama.cpp."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest

Request = dict[str, Any]


def fake_llama_cpp(
    monkeypatch: pytest.MonkeyPatch, timings: Callable[[int], dict[str, float]], reply: dict[str, Any] | None = None
) -> list[Request]:
    """Install it; the list is of all requests, of which the n-th is answered with `timings(n)`, or with `reply`."""
    requests: list[Request] = []

    class Server:
        def __init__(self, params: object) -> None:
            pass

        def handle_completions(self, request: Request) -> dict[str, Any]:
            requests.append(request)
            return reply or {"timings": timings(len(requests))}

    module = ModuleType("xllamacpp")
    module.Server, module.CommonParams = Server, MagicMock  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "xllamacpp", module)
    return requests
