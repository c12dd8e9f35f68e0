"""Correctness on this GPU: every Triton kernel, and whole sessions beside those of the CPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from ondevice_bench.results.result import row
from ondevice_bench.speed.gpu.kernel_cases import kernel_cases
from ondevice_bench.speed.gpu.run import Run

_TESTS = Path(__file__).resolve().parents[2] / "tests" / "gpu"


def check_kernels(run: Run, index: int, number: int) -> None:
    """Every `number`-th case of `kernel_cases` from `index` on, compiled for this GPU."""
    worst: dict[str, float] = {}
    for case in kernel_cases()[index::number]:
        try:
            error = case.error(run.device)
        except Exception as failure:  # a kernel that does not compile: the others are to be heard of too
            error = float("inf")
            print(f"  {type(failure).__name__}: {str(failure)[:500]}")
        worst[case.kernel] = max(worst.get(case.kernel, 0.0), error / case.tolerance)
        if not error <= case.tolerance:
            run.num_wrong += 1
            print(f"  WRONG: {case}: error {error:.3g}, and {case.tolerance:.3g} is allowed")
    finite = {kernel: min(ratio, 1e9) for kernel, ratio in worst.items()}  # JSON has no infinity
    run.add([row(kernel, {}, "worst error", "of what is allowed", [ratio]) for kernel, ratio in finite.items()])
    run.summary["kernel_cases_wrong"] = float(run.num_wrong)


def check_sessions(run: Run, index: int, number: int) -> None:
    """Every `number`-th test of bench/tests/gpu from `index` on; where there is no GPU those are skipped."""
    import pytest

    # A share has two cores; and what is compared need not be fast.
    torch.set_num_threads(1)
    os.environ["ONDEVICE_TUNING"] = "off"
    share = _Share(index, number)
    pytest.main(["-q", "-p", "no:cacheprovider", "--tb=short", str(_TESTS)], plugins=[share])
    run.num_wrong = share.counts.get("failed", 0)
    if not share.counts.get("passed"):
        run.leave_out("sessions", "no test ran")
    run.summary |= {f"sessions_{outcome}": float(count) for outcome, count in share.counts.items()}
    run.summary["sessions_wrong"] = float(run.num_wrong)


class _Share:
    """A plugin of pytest: some of the tests, and their outcomes."""

    def __init__(self, index: int, number: int) -> None:
        self._index, self._number = index, number
        self.counts: dict[str, int] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = items[self._index :: self._number]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":  # a failed set-up counts, too
            self.counts[report.outcome] = self.counts.get(report.outcome, 0) + 1
        if report.outcome == "failed":  # now: the process may be stopped before pytest sums up
            print(f"\nFAILED {report.nodeid}\n{report.longreprtext[-1500:]}", flush=True)
