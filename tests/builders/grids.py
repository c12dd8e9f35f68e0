"""Cases of the larger grids: the first of each runs with the unit tests, the others with the slow ones."""

from __future__ import annotations

from typing import Any

import pytest

KEY_ROTATIONS = ("stored", "half-cache")


def slow(*values: Any) -> Any:
    """A case that runs with the slow tests."""
    return pytest.param(*values, marks=pytest.mark.slow)


def first_of(*values: Any) -> list[Any]:
    """Cases of one value, of which all but the first are slow."""
    first, *others = values
    return [first, *map(slow, others)]
