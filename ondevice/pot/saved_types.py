"""Keys and values of a saved pot in another type than the pot's own: smaller, and open to any type of model.

What is rounded here is made wide again when the file is opened; provenance is kept as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from ondevice.config import SaveAs
from ondevice.errors import DamagedPot
from ondevice.kernels.codes import Frame, decode_keys, encode_keys
from ondevice.kernels.quantize import dequantize, quantize
from ondevice.pot.saved_state import LARGEST, check_finite, take

_WIDE = {"bf16": torch.bfloat16, "float32": torch.float32}
_FRAME = "own_frame."  # of the keys of this pot alone
_LEAST = 1e-6  # of a channel that stands still


class Loss(NamedTuple):
    """The error of rounding: root mean square of the differences, as a share of that of the numbers."""

    keys: float
    values: float


def rounded(state: Mapping[str, Tensor], save_as: SaveAs) -> tuple[dict[str, Tensor], Loss]:
    """The state of a pot that is not quantised with its keys and values in another type, and what that loses."""
    saved, sums = dict(state), {"keys": [0.0, 0.0], "values": [0.0, 0.0]}
    for name, wide in state.items():
        kind, _, layer = name.partition(".")
        if kind not in sums:
            continue
        if save_as == "int8" and kind == "keys":
            frame = _frame_of(wide)
            saved[name], saved[f"key_scales.{layer}"] = encode_keys(wide, frame)
            saved |= {f"{_FRAME}{part}.{layer}": own for part, own in frame._asdict().items()}
            back = decode_keys(saved[name], saved[f"key_scales.{layer}"], frame, torch.float32)
        elif save_as == "int8":
            saved[name], saved[f"value_scales.{layer}"] = quantize(wide)
            back = dequantize(saved[name], saved[f"value_scales.{layer}"], torch.float32)
        else:
            saved[name] = wide.to(_WIDE[save_as])
            back = saved[name].float()
        sums[kind][0] += float((back - wide.float()).square().sum())
        sums[kind][1] += float(wide.float().square().sum())
    return saved, Loss(*((lost / max(all_, 1e-30)) ** 0.5 for lost, all_ in sums.values()))


def widened(state: dict[str, Tensor], save_as: SaveAs, num_layers: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """The inverse: keys and values in `dtype`.

    Raises:
        DamagedPot: the state is not what `rounded` gives.
    """
    wide = dict(state)
    for layer in range(num_layers):
        for kind in ("keys", "values"):
            name, scales_name = f"{kind}.{layer}", f"{kind[:-1]}_scales.{layer}"
            if save_as != "int8":
                wide[name] = take(wide, name, _WIDE[save_as], (None,) * 4).to(dtype)
                continue
            codes = take(wide, name, torch.int8, (None,) * 4)
            scales = take(wide, scales_name, torch.float32, tuple(codes.shape[:3]))
            check_finite(scales_name, scales, LARGEST / 128)
            del wide[scales_name]
            if kind == "values":
                wide[name] = dequantize(codes, scales, dtype)
                continue
            size = (codes.shape[1], codes.shape[3])
            frame = Frame(*(take(wide, f"{_FRAME}{part}.{layer}", torch.float32, size) for part in Frame._fields))
            for part, own in frame._asdict().items():
                check_finite(f"the {part} of keys", own)
                del wide[f"{_FRAME}{part}.{layer}"]
            wide[name] = decode_keys(codes, scales, frame, dtype)
    return wide


def check_type(save_as: str) -> SaveAs:
    """The type that a file names; raises DamagedPot where there is none such."""
    for known in get_args(SaveAs):
        if save_as == known:
            return known  # type: ignore[no-any-return]
    raise DamagedPot(f"its keys and values are said to be {save_as!r:.40}")


def _frame_of(keys: Tensor) -> Frame:
    """Mean and spread of keys (1, num_kv_heads, n, head_dim), channel by channel: (num_kv_heads, head_dim)."""
    wide = keys[0].float()
    if not wide.shape[1]:
        return Frame(wide.new_zeros(wide.shape[0], wide.shape[2]), wide.new_ones(wide.shape[0], wide.shape[2]))
    return Frame(wide.mean(dim=1), wide.std(dim=1, correction=0).clamp_min(_LEAST))
