"""`decode_attention` on a GPU: how its blocks are split over programs, and the launch of the kernels.

A call writes into memory of torch's allocator only and never waits for the device, so that a CUDA graph can hold it.
With more than one split, how early reading ends depends on how fast each split runs: the blocks read, and the last
digits of the output, may then differ between two runs of the same call. `num_splits=1` is the reference's order.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any

import torch
from ondevice.kernels.backend import is_interpreted
from ondevice.kernels.termination import Termination
from ondevice.kernels.triton.decode_kernels import merge_kernel, read_kernel
from ondevice.kernels.triton.tiles import power_of_two, tile_sizes
from ondevice.kernels.triton.tuning import Choice, tuned
from torch import Tensor

_MAX_ROWS = 128  # query heads of a KV head; their output is held in registers
_MAX_SPLITS = 64
_MIN_BLOCKS_TO_END = 8  # blocks of each split where reading may end early, else there is little left to save
_NEVER = 2**30

_states: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scale: float,
    block_size: int,
    order: Tensor | None,
    termination: Termination | None,
    num_used: Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Launch the kernels; shapes and results as for `decode_attention`.

    Args:
        num_splits: programs that share the blocks of one KV head; None: as many as this GPU is fastest with, and one
            in the interpreter.
    """
    assert query.shape[2] == 1
    batch, num_heads, _, head_dim = query.shape
    num_kv_heads, num_slots = keys.shape[1:3]
    num_rows = num_heads // num_kv_heads
    assert num_rows <= _MAX_ROWS, f"{num_rows} query heads share a KV head; this kernel takes {_MAX_ROWS}"
    assert keys.stride() == values.stride()
    assert keys.stride(3) == 1
    num_steps = -(-num_slots // block_size) if order is None else order.shape[-1]
    query = query.contiguous()
    assert num_used is None or (num_used.dtype == torch.int32 and order is None)
    order_strides = (0, 0)
    if order is not None:
        assert order.dtype == torch.int32
        order = order.expand(batch, num_kv_heads, num_steps)
        assert order.stride(2) == 1
        order_strides = order.stride()[:2]
    sizes = tile_sizes(num_rows, head_dim, query.dtype)
    shape = {
        "ROWS": num_rows,
        "HEAD_DIM": head_dim,
        "PADDED_DIM": sizes["PADDED_DIM"],
        "DETECTS": termination is not None,
    }
    rule = termination or Termination()
    out = torch.empty_like(query)
    blocks_read = query.new_empty((batch, num_kv_heads), dtype=torch.int32)

    def launch(choice: Choice, patience: float) -> None:
        splits, counts, flags = choice.num_splits, blocks_read, blocks_read
        threads = max(32 * choice.num_warps, power_of_two(splits))
        partial = statistics = progress = out
        if splits > 1:
            parts = batch * num_kv_heads * splits
            partial = query.new_empty((parts, num_rows, head_dim), dtype=torch.float32)
            statistics = query.new_empty((parts, num_rows, 2), dtype=torch.float32)
            counts = query.new_empty(parts, dtype=torch.int32)
            if termination is not None:
                flags, progress = _shared_state(query.device, batch * num_kv_heads, splits, num_rows)
        read_kernel[(splits, num_kv_heads, batch)](
            query,
            keys,
            values,
            # A pointer that is not read still needs a type.
            counts if order is None else order,
            out,
            partial,
            statistics,
            counts,
            flags,
            progress,
            _taus(rule.tau, num_kv_heads, query.device),
            counts if num_used is None else num_used,
            scale,
            rule.phi,
            _NEVER if patience >= _NEVER else math.ceil(patience / splits),
            num_slots,
            num_steps,
            *keys.stride()[:3],
            *order_strides,
            SPLITS=splits,
            PADDED_PARTS=max(power_of_two(splits), threads // sizes["PADDED_GROUPS"]),
            THREADS=threads,
            BLOCK_SIZE=block_size,
            PADDED_ROWS=sizes["PADDED_GROUPS"],
            TILE=min(sizes["TILE"], max(16, power_of_two(block_size))),
            IN_FLOAT32=sizes["IN_FLOAT32"],
            HAS_ORDER=order is not None,
            HAS_LENGTH=num_used is not None,
            IS_RELATIVE=rule.is_relative,
            **shape,
            num_warps=choice.num_warps,
            num_stages=choice.num_stages,
        )
        if splits > 1:
            merge_kernel[(batch * num_kv_heads, num_rows)](
                partial,
                statistics,
                counts,
                out,
                blocks_read,
                flags,
                progress,
                SPLITS=splits,
                PADDED_SPLITS=power_of_two(splits),
                **shape,
            )

    if num_splits is not None or is_interpreted():
        choice = Choice(min(num_splits or 1, num_steps), 4, 2)
    elif num_used is not None:
        # Nothing to be timed: how many slots there will be is not known, and a first answer would wait for it.
        choice = _candidates(query.device, batch * num_kv_heads, num_steps, termination is not None)[0]
    else:
        candidates = _candidates(query.device, batch * num_kv_heads, num_steps, termination is not None)
        # Lengths and batches of about one size share a choice, so that a growing cache is not tuned again and again.
        key = (
            f"decode_attention {query.dtype} rows={num_rows} dim={head_dim} block={block_size}"
            f" heads={power_of_two(batch * num_kv_heads)} blocks={power_of_two(num_steps)}"
            f" detects={termination is not None} order={order is not None}"
        )
        # Timed without an end: when reading ends depends on the data, and then for all splits together.
        choice = tuned(key, query.device, candidates, lambda choice: launch(choice, math.inf))
        choice = choice._replace(num_splits=min(choice.num_splits, num_steps))
    launch(choice, rule.patience)
    return out, blocks_read


def _candidates(device: torch.device, num_heads: int, num_steps: int, detects: bool) -> list[Choice]:
    """Launch choices worth timing; the first is taken where nothing can be timed."""
    most = min(num_steps // _MIN_BLOCKS_TO_END if detects else num_steps // 2, _MAX_SPLITS)
    # Without a detector the compiler reads ahead; with one, a second program on each processor hides what is waited
    # for, and a larger number of splits ends later.
    fill = _num_processors(device) / num_heads
    splits = sorted({max(1, min(most, round(fill * share))) for share in (0.5, 1, 2, 4)})
    default = max(1, min(most, round(fill * (1 if detects else 2))))
    warps_stages = [(4, 2), (8, 2)] if detects else [(4, 2), (4, 3), (8, 2)]
    choices = [Choice(number, *pair) for number in splits for pair in warps_stages]
    return [Choice(default, *warps_stages[0]), *choices]


@lru_cache(maxsize=1024)
def _taus(tau: float | tuple[float, ...], num_kv_heads: int, device: torch.device) -> Tensor:
    """(num_kv_heads,) float32."""
    return torch.tensor(tau, dtype=torch.float32).expand(num_kv_heads).contiguous().to(device)


@cache
def _num_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def _shared_state(device: torch.device, num_heads: int, num_splits: int, num_rows: int) -> tuple[Tensor, Tensor]:
    """Flags between splits, as a call must find them; the merge resets them.

    Kept for each stream, as two calls must not share it at the same time. A graph gets its own, and makes it again.

    Returns:
        Raised flags (num_heads, num_splits) int32, zeros; and (num_heads, num_splits, num_rows, 2) float32 for the
        logarithm of the softmax mass and the norm of each part's rows, minus infinity.
    """
    is_recording = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    key = (device, stream, num_heads, num_splits, num_rows)
    if not is_recording and key in _states:
        return _states[key]
    flags = torch.zeros(num_heads, num_splits, dtype=torch.int32, device=device)
    progress = torch.full((num_heads, num_splits, num_rows, 2), -torch.inf, device=device)
    if not is_recording:
        _states[key] = flags, progress
    return flags, progress
