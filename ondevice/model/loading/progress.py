"""Progress of loading a model: a callback, since nothing below the user interface prints."""

from __future__ import annotations

from collections.abc import Callable

# Takes a stage to show, and the fraction of it that is done, or None if that is unknown.
Progress = Callable[[str, float | None], None]


def silent(stage: str, fraction: float | None) -> None:
    """The `Progress` of callers that show nothing."""
