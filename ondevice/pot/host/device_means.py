"""Mean keys of a host tier on the GPU that ranks blocks by them: copied once, and again when more has come.

They are a sixteenth of the tier, or a ninth of one in 4 bits. Without this every question would bring all of them over,
twice.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

MOST = 1 / 8  # of the tier's bytes


class DeviceMeans:
    """As the tier stores them, layer by layer."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, torch.device], tuple[int, list[Tensor]]] = {}

    def of(self, layer: int, num_written: int, device: torch.device, read: Callable[[], list[Tensor]]) -> list[Tensor]:
        """The fields of one layer on a device, each (num_units, ...).

        Args:
            num_written: tokens that ever came to the layer: equal for equal contents.
            read: gives them there.
        """
        held = self._held.get((layer, device))
        if held is None or held[0] != num_written:
            self._held[layer, device] = held = num_written, read()
        return held[1]

    def forget(self) -> None:
        """Keep nothing."""
        self._held.clear()
