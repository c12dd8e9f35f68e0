"""Devices where there is but one: tensors belong to islands of the CPU, and what mixes two of them fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

MAIN, OTHER = torch.device("cpu", 0), torch.device("cpu", 1)


class Islands(TorchDispatchMode):
    """A context in which a tensor made on, or moved to, `OTHER` may only meet such, as on a second GPU.

    torch calls both the CPU. What is made anew without either of them belongs nowhere, and goes with both.

    Attributes:
        num_moved: tensors that were moved from one to the other.
    """

    def __init__(self) -> None:
        super().__init__()
        self._islands = WeakIdKeyDictionary()  # of storages, which views share
        self.num_moved = 0

    def __enter__(self) -> Islands:
        def cpu(tensor: Tensor) -> Tensor:  # torch would give back the tensor itself
            copy = tensor.clone()
            self._islands.pop(copy.untyped_storage(), None)
            return copy

        self._patched = pytest.MonkeyPatch()
        self._patched.setattr(Tensor, "cpu", cpu)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patched.undo()

    def put(self, tensors: Iterator[Tensor] | list[Tensor], device: torch.device) -> None:
        """Say where tensors are."""
        for tensor in tensors:
            self._islands[tensor.untyped_storage()] = device

    def of(self, tensor: Tensor) -> torch.device | None:
        return self._islands.get(tensor.untyped_storage())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        made = [one for one in tree_leaves(out) if isinstance(one, Tensor)]
        name, wanted = func._schema.name, kwargs.get("device")
        if wanted is not None and torch.device(wanted).index is not None:
            self.num_moved += bool(given)
            self.put(made, torch.device(wanted))
        elif name != "aten::copy_":  # a copy may cross
            islands = {island for one in given if one.dim() and (island := self.of(one)) is not None}
            assert len(islands) < 2, f"{name} takes tensors of two devices"
            for one in made:
                if islands and self.of(one) is None:
                    self.put([one], *islands)
        return out
