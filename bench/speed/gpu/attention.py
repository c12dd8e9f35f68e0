"""Times of attention kernels on a GPU: that of one token beside torch's, and the others.

The caches are made so that attention lies where it lies in language models: most of it on the first slots (the sinks)
and on some of the newest ones, a little on one place in the middle, and the rest thinly on everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from ondevice.kernels.decode_attention import used_attention
from torch import Tensor

from ondevice_bench.paged.paged_attention import paged_attention
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.choosing import choosing
from ondevice_bench.speed.gpu.paged_inputs import paged_inputs
from ondevice_bench.speed.gpu.run import Run

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 32, 8, 128  # Llama 3.1 8B
LENGTHS = (4096, 32_768)
BATCHES = (1, 4)
_SCALE = HEAD_DIM**-0.5
_HEAVY_SCORE = 11.0  # of the slots that attention lies on; the scores of the others are normal
_CALLS, _REPLAYS = 10, 11  # of a graph that is timed; the first replay is a warm-up
_FLUSHED_BYTES = 96 << 20  # more than caches hold

OURS = "decode attention"
GQA, FOLDED = "torch SDPA, enable_gqa", "torch SDPA, heads as queries"


def peaked_cache(batch: int, num_slots: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Query (batch, 32, 1, 128), keys and values (batch, 8, num_slots, 128) as the module says.

    A KV head's query heads share a direction and differ by noise. Keys are normal, but those of 4 sinks, of 16 among
    the newest 256 slots and of one in the middle point in the shared direction, so that they score about
    `_HEAVY_SCORE` (the middle one 3 less).
    """
    generator = torch.Generator(device).manual_seed(num_slots + batch)
    groups = NUM_HEADS // NUM_KV_HEADS
    shared = torch.randn(batch, NUM_KV_HEADS, 1, HEAD_DIM, generator=generator, device=device)
    noise = torch.randn(batch, NUM_KV_HEADS, groups, HEAD_DIM, generator=generator, device=device)
    query = (shared + 0.1 * noise).view(batch, NUM_HEADS, 1, HEAD_DIM)
    shape = (batch, NUM_KV_HEADS, num_slots, HEAD_DIM)
    keys = torch.randn(shape, generator=generator, device=device)
    values = torch.randn(shape, generator=generator, device=device)
    unit = shared / (shared.norm(dim=-1, keepdim=True) ** 2 * _SCALE)  # scores 1
    newest = num_slots - 1 - torch.randperm(min(256, num_slots // 2), generator=generator, device=device)[:16]
    for slots, score in ((torch.arange(4), _HEAVY_SCORE), (newest, _HEAVY_SCORE)):
        keys[:, :, slots.to(device)] = unit * score
    keys[:, :, num_slots // 2] = unit[:, :, 0] * (_HEAVY_SCORE - 3)
    return query.to(dtype), keys.to(dtype), values.to(dtype)


def milliseconds(function: Callable[[], Any]) -> list[float]:
    """10th, 50th and 90th percentile of the time of a call, with an empty cache each time.

    The calls are recorded as a graph, so that it is the device that is timed, and not the host that calls it; the time
    of emptying the cache is measured alike and taken off.
    """
    flushed = torch.empty(_FLUSHED_BYTES, dtype=torch.uint8, device="cuda")
    function()  # compiled and tuned before it is recorded
    with_it = _replays(lambda: (flushed.zero_(), function()))
    without = float(np.median(_replays(flushed.zero_)))
    return [max(float(time) - without, 0.0) for time in np.percentile(with_it, (10, 50, 90))]


def _replays(work: Callable[[], Any]) -> list[float]:
    """Milliseconds of a call, in each of some replays of a graph of many."""
    graph, times = torch.cuda.CUDAGraph(), []
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        for _ in range(_CALLS):
            work()
    for _ in range(_REPLAYS):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        times.append(began.elapsed_time(ended) / _CALLS)
    return times[1:]


def decode_rows(
    device: torch.device, batches: tuple[int, ...] = BATCHES, lengths: tuple[int, ...] = LENGTHS
) -> Iterator[list[Row]]:
    """Every batch and length: times of all contenders, and the error of ours."""
    for batch in batches:
        for num_slots in lengths:
            try:
                yield _decode_rows(batch, num_slots, device)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()  # a small device: what does not fit is left out


def _decode_rows(batch: int, num_slots: int, device: torch.device) -> list[Row]:
    query, keys, values = peaked_cache(batch, num_slots, device, torch.bfloat16)
    folded = query.view(batch, NUM_KV_HEADS, -1, HEAD_DIM)
    used = torch.tensor([num_slots], dtype=torch.int32, device=device)
    contenders: dict[str, Callable[[], Any]] = {
        OURS: lambda: used_attention(query, keys, values, used, scale=_SCALE),
        GQA: lambda: F.scaled_dot_product_attention(query, keys, values, scale=_SCALE, enable_gqa=True),
        FOLDED: lambda: F.scaled_dot_product_attention(folded, keys, values, scale=_SCALE),
    }
    case = {"batch": batch, "slots": num_slots}
    rows = [row(name, case, "time", "ms", milliseconds(contender)) for name, contender in contenders.items()]
    expected, out = contenders[FOLDED]().view(query.shape), contenders[OURS]()
    error = (out - expected).float().norm(dim=-1) / expected.float().norm(dim=-1)
    return [*rows, row(OURS, case, "relative error", "", [float(error.max())])]


def other_rows(device: torch.device) -> Iterator[list[Row]]:
    """`paged_attention`: the Triton kernel beside the torch path, 8,192 slots."""
    paged = paged_inputs([8192] * 4, (NUM_HEADS, NUM_KV_HEADS), HEAD_DIM, 16, torch.bfloat16)
    paged = tuple(tensor.to(device) for tensor in paged)
    yield _both("paged_attention", lambda: paged_attention(*paged, scale=_SCALE))


def _both(name: str, function: Callable[[], Any]) -> list[Row]:
    case = {"kernel": name, "slots": 8192}
    rows = []
    for label, choice in (("Triton", "triton"), ("torch", "torch")):
        with choosing("KERNELS_IMPL", choice):
            rows.append(row(label, case, "time", "ms", _with_the_host(function)))
    return rows


def _with_the_host(function: Callable[[], Any]) -> list[float]:
    """As `milliseconds`, of what no graph can hold: the host's own time counts where it is the longer one."""
    from triton.testing import do_bench

    return [float(time) for time in do_bench(function, warmup=20, rep=40, quantiles=[0.1, 0.5, 0.9])]


def measure_attention(run: Run) -> None:
    """Times of attention kernels."""
    for rows in chain(decode_rows(run.device), other_rows(run.device)):
        run.add(rows)
        if not run.has_time:
            run.leave_out("the other sizes of attention", "no time is left")
            break
    run.summary |= summary_of(run.rows)


def summary_of(rows: list[Row]) -> dict[str, float]:
    """Medians over the cases of the ratios that matter."""
    times = {
        (r.contender, r.case["batch"], r.case["slots"]): r.p50 for r in rows if "batch" in r.case and r.metric == "time"
    }
    cases = sorted({key[1:] for key in times})

    def ratio(one: str, other: str) -> float:
        return _median([times[(one, *case)] / times[(other, *case)] for case in cases])

    if not cases:
        return {}
    return {
        "decode_speedup_vs_sdpa_gqa": ratio(GQA, OURS),
        "decode_speedup_vs_sdpa_folded": ratio(FOLDED, OURS),
    }


def _median(numbers: list[float]) -> float:
    return float(torch.tensor(numbers, dtype=torch.float64).quantile(0.5))
