"""Ceilings of this GPU: copies, matrix products, calls; and which of torch's kernels attend."""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F

from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.gpu.attention import milliseconds
from ondevice_bench.speed.gpu.run import Run

_COPY_BYTES = 1 << 30
_WIDTH, _TALL = 4096, 28_672  # a product of Llama 3.1 8B: the gate and up projections
_PASSES = (512, 768, 2048, 8192)
_CALLS = 2000


def measure_ceilings(run: Run) -> None:
    """Copies in GB/s, products in TFLOP/s, and microseconds a call."""
    run.add([_copy(run.device), *(_product(run.device, tokens) for tokens in _PASSES), _call(run.device)])
    ceilings = {one.metric: one.p50 for one in run.rows}
    run.summary |= {"copy_gb_per_second": ceilings["copies"], "microseconds_per_call": ceilings["time a call"]}
    run.summary["product_tflops"] = max(one.p50 for one in run.rows if one.metric == "products")


def copy_bytes_per_second(device: torch.device) -> float:
    """Bytes read and written a second."""
    source = torch.empty(_COPY_BYTES // 2, dtype=torch.int16, device=device).random_()
    target = torch.empty_like(source)
    return 2 * _COPY_BYTES / milliseconds(lambda: target.copy_(source))[1] * 1e3


def _copy(device: torch.device) -> Row:
    return row("torch", {"bytes": _COPY_BYTES}, "copies", "GB/s", [copy_bytes_per_second(device) / 1e9])


def _product(device: torch.device, tokens: int) -> Row:
    x = torch.randn(tokens, _WIDTH, dtype=torch.bfloat16, device=device)
    weight = torch.randn(_TALL, _WIDTH, dtype=torch.bfloat16, device=device)
    operations = 2 * tokens * _WIDTH * _TALL
    speeds = [operations / ms / 1e9 for ms in milliseconds(lambda: F.linear(x, weight))]
    return row("torch", {"tokens": tokens, "weight": f"{_TALL} x {_WIDTH}"}, "products", "TFLOP/s", speeds)


def _call(device: torch.device) -> Row:
    one = torch.zeros(1, device=device)
    times = []
    for _ in range(5):
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        for _ in range(_CALLS):
            one.add_(1.0)
        torch.cuda.synchronize(device)
        times.append((time.perf_counter() - began) / _CALLS * 1e6)
    return row("torch", {"operation": "add one number"}, "time a call", "us", times[1:])
