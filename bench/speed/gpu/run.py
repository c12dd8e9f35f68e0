"""State that the parts of `gpu-check` share: the rows so far, the time that is left, and the driver's settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ondevice.model.decoder import Decoder
from ondevice_bench.results.result import Result, Row, row, write_result
from ondevice_bench.speed.random_model import random_model

_LAUNCHES = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cudaMemcpy", "cudaMemset")
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
LARGE, SMALL = "llama-3.1-8b", "llama-3.2-1b"
_LARGE_BYTES = 26e9  # free memory with which the large shape has room for its caches


class Run:
    """The rows and the summary so far, and the time that is left; what there is is written after each addition.

    Args:
        result: without rows.
        path: where it is written; None: nowhere.
        seconds: that this part may take.
    """

    def __init__(self, device: torch.device, result: Result, path: Path | None, seconds: float) -> None:
        self.device, self.rows, self.summary, self.left_out = device, list[Row](), dict[str, float](), list[str]()
        self.num_wrong = 0
        self._result, self._path, self._began = result, path, time.monotonic()
        self._end = self._began + seconds

    @property
    def seconds_left(self) -> float:
        return self._end - time.monotonic()

    @property
    def has_time(self) -> bool:
        return self.seconds_left > 0

    def add(self, rows: Sequence[Row]) -> None:
        """Keep rows and print them."""
        self.rows += rows
        for one in rows:
            case = ", ".join(f"{name} {value}" for name, value in one.case.items())
            at = time.monotonic() - self._began
            print(f"{at:6.1f} {case:<46} {one.contender:<26} {one.metric:<22} {one.p50:>10.4g} {one.unit}", flush=True)
        self.keep(is_complete=False)

    def leave_out(self, what: str, why: object) -> None:
        """Say that something was not measured: a row of its own, since a result without it would look whole."""
        self.left_out.append(what)
        print(f"  left out: {what}: {why}", flush=True)
        self.add([row(what, {"why": str(why)[:300]}, "left out", "", [1.0])])

    def keep(self, *, is_complete: bool) -> None:
        """Write what there is: a run that is stopped leaves its figures."""
        if self._path is None:
            return
        is_whole = is_complete and not self.left_out and not self.num_wrong
        write_result(self._path, replace(self._result, rows=tuple(self.rows), summary=self.summary, complete=is_whole))


@dataclass(frozen=True, slots=True)
class Calls:
    """Counts of a stretch of work's calls to the device, and of its waits."""

    launches: int
    waits: int


def calls_of(work: Callable[[], object]) -> Calls:
    """Count what `work` asks of the device: kernels, copies and graphs, each one launch; and times it waits."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        work()
    events = profile.key_averages()
    launches = sum(event.count for event in events if event.key.startswith(_LAUNCHES))
    # Leaving the profiler waits for the device, too.
    return Calls(launches, max(sum(event.count for event in events if event.key.startswith(_WAITS)) - 1, 0))


def large_decoder(run: Run) -> tuple[str, Decoder]:
    """A decoder over random weights of the larger shape that fits with some room, and its name."""
    name = LARGE if torch.cuda.mem_get_info(run.device)[0] > _LARGE_BYTES else SMALL
    return name, Decoder(random_model(name, device=run.device, dtype=torch.bfloat16).model)
