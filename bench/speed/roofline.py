"""The roofline of this machine, and the share of it that each stage reaches.

Reading is bound by multiplications, decoding by the bytes that have to come from memory: all weights, and the cache.
Everything takes turns, since such machines change their speed while one looks.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from ondevice.kernels.attention import attention
from ondevice.kernels.projection import project
from torch import Tensor

from ondevice.model.decoder import Decoder
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.bandwidth import ReadBandwidth
from ondevice_bench.speed.choosing import choosing
from ondevice_bench.speed.decode import bytes_per_token
from ondevice_bench.speed.turns import Seconds, speedup_row, take_turns, time_rows

_PASS, _QUICK_PASS = 1024, 128  # tokens of a pass that reads
_SLOTS, _QUICK_SLOTS = (1024, 4096, 16_384), (1024,)
_SIZE, _QUICK_SIZE = 2048, 512  # of the square matrices whose product is the limit
MACHINE, KERNEL, IN_BFLOAT16, TORCH = "machine", "compiled kernel", "compiled kernel in bfloat16", "torch SDPA"
HELPERS, OPENMP = "helper threads", "OpenMP"
_TOKENS_PER_TURN = 8  # some time slices, and far longer than the threads of what was measured before go on spinning


def pass_flops(decoder: Decoder, num_tokens: int) -> float:
    """Floating-point operations of a pass over an empty pot, a multiplication and an addition being two."""
    parts = decoder.parts
    products = sum(math.prod(op.weight.shape) for layer in parts.layers for op in layer.linears.values())
    scores = len(parts.layers) * parts.num_heads * parts.head_dim * (num_tokens + 1)  # half of q . k and of p . v
    return 2.0 * num_tokens * (products + scores)


def _gemm(size: int, library: str) -> Callable[[], object]:
    one, other = torch.randn(size, size), torch.randn(size, size)

    def multiply() -> Tensor:
        with choosing("KERNELS_GEMM", library):
            return project(one, other)

    return multiply


def _stages(engine: Engine, num_tokens: int, size: int) -> tuple[list[Row], dict[str, float]]:
    decoder = engine.decoder
    ids = _ids(decoder, num_tokens)
    bandwidth = ReadBandwidth(decoder.device)
    works: Mapping[str, Callable[[], object]] = {
        "read": bandwidth.measure,
        "onednn": _gemm(size, "onednn"),
        "mkl": _gemm(size, "mkl"),
        "reading": lambda: decoder.forward(ids, decoder.new_pot(num_tokens)),
        "decoding": _decoding_after(decoder, ids),
    }
    seconds = take_turns(works, decoder.device, budget_seconds=60.0)
    gemm = [2 * size**3 / min(pair) for pair in zip(seconds["onednn"], seconds["mkl"], strict=True)]
    reads = [bandwidth.num_bytes / s for s in seconds["read"]]
    flops = [pass_flops(decoder, num_tokens) / s for s in seconds["reading"]]
    taken = [_TOKENS_PER_TURN * bytes_per_token(engine, num_tokens) / s for s in seconds["decoding"]]
    shares = {"reading": _shares(flops, gemm), "decoding": _shares(taken, reads)}
    label = {"stored": "stored weights"}.get(engine.loaded.quantization, str(engine.decoder.dtype).split(".")[1])
    case, square = {"tokens": num_tokens}, {"size": size}
    rows = [
        row(MACHINE, {}, "read bandwidth", "bytes/s", reads),
        *(
            row(MACHINE, square, f"product, {name}", "FLOP/s", _rates(seconds, name, size))
            for name in ("onednn", "mkl")
        ),
        row(label, case, "reading", "FLOP/s", flops),
        row(label, case, "reading, share of the product", "", shares["reading"]),
        row(label, case, "decoding", "bytes/s", taken),
        row(label, case, "decoding, share of the bandwidth", "", shares["decoding"]),
    ]
    return rows, {
        "ingest_share_of_gemm": float(np.median(shares["reading"])),
        "decode_share_of_read_bandwidth": float(np.median(shares["decoding"])),
        "gemm_flops": float(np.median(gemm)),
        "read_bandwidth": float(np.median(reads)),
    }


def _rates(seconds: Seconds, name: str, size: int) -> list[float]:
    return [2 * size**3 / s for s in seconds[name]]


def _shares(reached: list[float], limits: list[float]) -> list[float]:
    return [one / limit for one, limit in zip(reached, limits, strict=True)]


def _ids(decoder: Decoder, num_tokens: int) -> Tensor:
    return torch.randint(0, min(decoder.parts.vocab_size, 1000), (1, num_tokens), device=decoder.device)


def _decoding_after(decoder: Decoder, ids: Tensor) -> Callable[[], None]:
    """Decodes `_TOKENS_PER_TURN` tokens, each after these."""
    pot = decoder.new_pot(ids.shape[1] + 1)
    decoder.forward(ids, pot)
    lengths = list(pot.num_cached), list(pot.next_position)

    @torch.inference_mode()
    def decode() -> None:
        for _ in range(_TOKENS_PER_TURN):
            decoder.head.likeliest(decoder.forward(ids[:, :1], pot).hidden_states[:, -1])
            pot.rewind_to_(*lengths)

    return decode


def _attention_rows(decoder: Decoder, num_slots: int, num_queries: int) -> list[Row]:
    """The last tokens of so many, in as many layers as the model has: each with keys and values of its own."""
    parts = decoder.parts
    size = (2, 1, parts.num_kv_heads, num_slots, parts.head_dim)
    layers = [torch.randn(size, device=decoder.device).to(decoder.dtype) for _ in parts.layers]
    query = torch.randn(1, parts.num_heads, num_queries, parts.head_dim, device=decoder.device).to(decoder.dtype)

    def attend(implementation: str, in_bfloat16: bool = False) -> None:
        # in the same threads: those of OpenMP go on spinning for a while
        with choosing("KERNELS_IMPL", implementation), choosing("KERNELS_THREADS", "openmp"):
            for keys, values in layers:
                attention(query, keys, values, scale=parts.scale, in_bfloat16=in_bfloat16)

    works: dict[str, Callable[[], object]] = {KERNEL: lambda: attend("auto"), TORCH: lambda: attend("torch")}
    if num_queries > 1:
        works[IN_BFLOAT16] = lambda: attend("auto", True)
    seconds = take_turns(works, decoder.device, budget_seconds=5.0 if num_queries == 1 else 20.0)
    case = {"slots": num_slots, "heads": parts.num_heads, "KV heads": parts.num_kv_heads, "head size": parts.head_dim}
    metric = "attention of one token" if num_queries == 1 else f"attention of {num_queries:,} tokens"
    against_torch = [speedup_row(seconds, case, metric, name, TORCH) for name in (KERNEL, IN_BFLOAT16) if name in works]
    return [*time_rows(seconds, case, metric), *against_torch]


def _thread_rows(decoder: Decoder, num_tokens: int) -> tuple[list[Row], dict[str, float]]:
    """Decoding with packed weights in helper threads and in those of OpenMP, alone and beside a busy program."""
    decode = _decoding_after(decoder, _ids(decoder, num_tokens))

    def decode_in(threads: str) -> None:
        with choosing("KERNELS_THREADS", threads):
            decode()

    works = {HELPERS: lambda: decode_in("auto"), OPENMP: lambda: decode_in("openmp")}
    rows, summary = [], {}
    for beside, others, figure in (
        ("nothing", nullcontext(), "helpers_speedup"),
        ("a busy program", _busy_program(), "helpers_speedup_beside"),
    ):
        with others:
            seconds = take_turns(works, decoder.device)
        each = {name: [value / _TOKENS_PER_TURN for value in values] for name, values in seconds.items()}
        case = {"tokens": num_tokens, "beside": beside}
        rows += [*time_rows(each, case, "decoding a token"), speedup_row(each, case, "decoding", HELPERS, OPENMP)]
        summary[figure] = rows[-1].p50
    return rows, summary


@contextmanager
def _busy_program() -> Iterator[None]:
    """Another process takes one core meanwhile, or as much of one as it gets."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    quick = options.quick
    setup.report("Products, memory, reading, decoding", None)
    rows, summary = _stages(setup.engine, _QUICK_PASS if quick else _PASS, _QUICK_SIZE if quick else _SIZE)
    if setup.engine.loaded.quantization == "stored" and torch.get_num_threads() > 1:
        setup.report("Threads, alone and beside a busy program", None)
        some, figures = _thread_rows(setup.engine.decoder, _QUICK_PASS if quick else _PASS)
        rows, summary = rows + some, summary | figures
    for num_slots in _QUICK_SLOTS if quick else _SLOTS:
        setup.report(f"Attention over {num_slots:,} slots", None)
        one = _attention_rows(setup.engine.decoder, num_slots, 1)
        many = _attention_rows(setup.engine.decoder, num_slots, _QUICK_PASS if quick else _PASS)
        rows += one + many
        summary |= {
            f"attention_speedup_{num_slots}": one[-1].p50,
            f"reading_attention_speedup_{num_slots}": many[-2].p50,
            f"reading_attention_speedup_bfloat16_{num_slots}": many[-1].p50,
        }
    yield Table(rows, summary)


MEASUREMENT = Measurement[Table](_measure)
