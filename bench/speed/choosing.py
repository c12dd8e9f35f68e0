"""Choice of an implementation for a while: measurements let several take turns."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock


def choosing(variable: str, choice: str) -> AbstractContextManager[Any]:
    """Set an environment variable meanwhile."""
    return mock.patch.dict(os.environ, {variable: choice})
