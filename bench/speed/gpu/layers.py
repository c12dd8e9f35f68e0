"""Times of what stands around attention in a layer on a GPU: our kernels beside torch, and products in four bits.

Sizes are those of Llama 3.1 8B, for one token, where calls and memory count, and for a pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from ondevice.kernels.gated import gated
from ondevice.kernels.int4 import Int4Rows, tinygemm, widened
from ondevice.kernels.norm import RMSNorm, add_norm_
from ondevice.kernels.rounding import quantize_int4
from torch import Tensor

from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.choosing import choosing
from ondevice_bench.speed.gpu.attention import milliseconds
from ondevice_bench.speed.gpu.run import Run

HIDDEN, INTERMEDIATE = 4096, 14_336
TOKENS = (1, 768)
FEW = (1, 16, 64, 256)  # tokens for which both ways to multiply with four bits are timed
_CHOICES = {"Triton": "triton", "torch": "torch"}


def measure_layers(run: Run) -> None:
    """Norms and gates by each implementation, and products in four bits each way."""
    for num_tokens in TOKENS:
        x, residual = torch.randn(2, 1, num_tokens, HIDDEN, device=run.device, dtype=torch.bfloat16)
        norm = RMSNorm(torch.ones(HIDDEN, device=run.device, dtype=torch.bfloat16), 1e-5)
        both = torch.randn(1, num_tokens, 2 * INTERMEDIATE, device=run.device, dtype=torch.bfloat16)
        works: dict[str, Callable[[], Any]] = {
            "add_norm": partial(add_norm_, x, residual, norm),
            "add_norm, normed before": partial(add_norm_, x, residual, norm, norm),
            "gated": partial(gated, both, F.silu),
        }
        for kernel, work in works.items():
            run.add(_rows(kernel, num_tokens, work))
            times = {one.contender: one.p50 for one in run.rows[-len(_CHOICES) :]}
            name = kernel.replace(", ", "_").replace(" ", "_")
            run.summary[f"{name}_speedup_{num_tokens}"] = times["torch"] / max(times["Triton"], 1e-6)
    try:
        _measure_products(run)
    except Exception as failure:  # these have run on no GPU yet: the figures so far are to stay
        run.leave_out("products in 4 bits", f"{type(failure).__name__}: {failure}")


def _measure_products(run: Run) -> None:
    plain = torch.randn(2 * INTERMEDIATE, HIDDEN, device=run.device, dtype=torch.bfloat16) * HIDDEN**-0.5
    (rows,) = quantize_int4(plain).parts
    assert isinstance(rows, Int4Rows)
    for num_tokens in (*FEW, TOKENS[1]):
        x = torch.randn(num_tokens, HIDDEN, device=run.device, dtype=torch.bfloat16)
        works: dict[str, Callable[[], Any]] = {
            "bfloat16": partial(F.linear, x, plain),
            "4 bits, tinygemm": partial(tinygemm, x, rows),
            "4 bits, made wide": partial(_made_wide, x, rows),
        }
        case = {"product": f"{2 * INTERMEDIATE} x {HIDDEN}", "tokens": num_tokens}
        run.add([row(name, case, "time", "ms", milliseconds(work)) for name, work in works.items()])
        times = {one.contender: one.p50 for one in run.rows[-len(works) :]}
        for name, short in (("4 bits, tinygemm", "tinygemm"), ("4 bits, made wide", "wide")):
            run.summary[f"int4_{short}_speedup_{num_tokens}"] = times["bfloat16"] / max(times[name], 1e-6)


def _made_wide(x: Tensor, rows: Int4Rows) -> Tensor:
    return F.linear(x, widened(rows))


def _rows(kernel: str, num_tokens: int, work: Callable[[], Any]) -> list[Row]:
    case, rows = {"kernel": kernel, "tokens": num_tokens}, []
    for label, choice in _CHOICES.items():
        with choosing("KERNELS_IMPL", choice):
            rows.append(row(label, case, "time", "ms", milliseconds(work)))
    return rows
