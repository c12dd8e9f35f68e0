"""A grid of measurements: cells that need an engine each and nothing of one another, measured side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ray

from ondevice_batch.cluster import Share
from ondevice_batch.jobs import engines_of, failing_clearly


def in_cells(worker: type, arguments: Sequence[Any], num_cells: int, share: Share) -> Iterator[dict[str, Any]]:
    """Yield the result of `worker(*arguments)` for each {"cell": number}, as soon as it is there; one worker an engine.

    Raises:
        OndeviceError: a cell has failed.
    """
    cells = ray.data.range(num_cells, override_num_blocks=num_cells).rename_columns({"id": "cell"})
    done = iter(cells.map(worker, fn_constructor_args=arguments, **engines_of(share)).iter_rows())
    while (row := failing_clearly(lambda: next(done, None))) is not None:
        yield row
