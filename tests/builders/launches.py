"""What a GPU would be asked to do, counted where there is none: a launch for all that computes or copies."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

# Those of which the host has to know the result.
_WAITS = {"_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2", "unique_consecutive", "is_nonzero"}


class Launches(TorchDispatchMode):
    """A context in which operations are counted.

    Attributes:
        ops: how often each operation ran that is no view and allocates no memory alone.
        waits: how often the host needed a number; copies to the host that are free here are not among them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ops: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[-1]
        returned = [one.alias_info for one in func._schema.returns]
        is_view = any(alias is not None and not alias.is_write for alias in returned)
        if name in _WAITS:
            self.waits[name] += 1
        elif not is_view and not name.startswith(("empty", "new_empty", "_unsafe_view", "_reshape_alias")):
            self.ops[name] += 1
        return func(*args, **kwargs or {})

    @property
    def total(self) -> int:
        return self.ops.total()
