"""The largest of a weight's outputs for one token: what greedy decoding wants of the head, and all that it wants."""

from __future__ import annotations

import numpy as np
from ondevice.kernels.packed import TILE_ROWS, PackedRows, PackedWeight
from ondevice.kernels.projection import project, rounds_activations
from torch import Tensor

_AHEAD = 32  # rows of which all bits are read, and those of their tiles
_DEVIATIONS = 8  # of what lower bits add: the farthest of 200,000 normal numbers is 4.5 off


def likeliest(x: Tensor, weight: Tensor | PackedWeight) -> int:
    """The first of the rows with the largest product with x; with packed weights as `project` rounds it.

    Where the lower bits of a packed weight stand apart, they are read of those tiles alone that are ahead by the upper
    bits of all. How far they move the outputs there says how far they could move others; where that might change who
    is first, all are read.

    Args:
        x: (1, in_features).
        weight: (out_features, in_features).
    """
    found = None
    if isinstance(weight, PackedWeight) and rounds_activations(weight):
        *others, rows = weight.parts
        if not others and rows.lower is not None and rows.num_rows % TILE_ROWS == 0:
            found = _by_upper_bits(x, rows)
    return int(project(x, weight).argmax()) if found is None else found


def _by_upper_bits(x: Tensor, rows: PackedRows) -> int | None:
    """NumPy does what is small: torch's threads would have to be woken while helpers of products have the cores."""
    rough = project(x, PackedWeight((rows.without_lower(),))).numpy().ravel()
    columns = rough.reshape(TILE_ROWS, -1)  # of rows far from each other, for their maxima are found soon
    largest = columns.max(axis=0)
    if len(largest) <= _AHEAD:
        return None
    ahead = largest.argpartition(-_AHEAD)[-_AHEAD:]
    bound = largest[ahead].min()
    places, which = (columns[:, ahead] >= bound).nonzero()
    tiles = np.unique((places * len(largest) + ahead[which]) // TILE_ROWS)
    exact = project(x, PackedWeight((rows.tiles(tiles),))).numpy().reshape(-1, TILE_ROWS)
    moved = exact - rough.reshape(-1, TILE_ROWS)[tiles]
    if exact.max() < bound + moved.mean() + _DEVIATIONS * moved.std():
        return None
    tile, row = divmod(int(exact.argmax()), TILE_ROWS)
    return int(tiles[tile]) * TILE_ROWS + row
