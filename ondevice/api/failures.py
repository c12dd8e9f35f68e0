"""Failures of requests: a status, and as JSON what went wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from ondevice.config import key_name
from ondevice.errors import ConfigError, LibraryError, NotInLibrary, OndeviceError, OutOfMemory, PotError
from ondevice.serving.failure import problem_text

_STATUSES = {  # of errors; the first one counts
    NotInLibrary: 404,
    LibraryError: 409,
    ConfigError: 400,
    PotError: 409,
    OutOfMemory: 503,
    OndeviceError: 422,
}
ErrorAs = Callable[[Exception, str], Mapping[str, Any]]  # of an error, and what one of our own is called


class ApiError(OndeviceError):
    """A request that cannot be answered, with its status."""

    def __init__(self, status: int, code: str, what: str, fix: str = "") -> None:
        super().__init__(what, fix=fix)
        self.status, self.code = status, code


def failed_response(error: Exception, error_as: ErrorAs) -> Response:
    """The answer to a request that has failed; `error_as` says in which form."""
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException):  # of the form parser, or of the line before the password
        headers |= error.headers or {}
        error = ApiError(error.status_code, "too-many" if error.status_code == 429 else "request", str(error.detail))
    statuses = [status for kind, status in _STATUSES.items() if isinstance(error, kind)]
    status = error.status if isinstance(error, ApiError) else [*statuses, 500][0]
    if status == 503:
        headers["Retry-After"] = "5"
    if status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="ondevice"'
    text = "" if isinstance(error, OndeviceError) else problem_text(error, "api")
    return JSONResponse({"error": error_as(error, text)}, status, headers=headers)


def error_json(error: Exception, text: str) -> dict[str, str]:
    """An error as JSON; `text` is what one of our own is called."""
    if isinstance(error, OndeviceError):
        return error.to_dict(key_name)
    return {"code": "internal", "what": text, "where": "", "fix": ""}
