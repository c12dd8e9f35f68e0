"""The fields that the host tier keeps of a token and of a unit of them, by what its numbers are stored as."""

from __future__ import annotations

from typing import Literal

import torch

from ondevice.config import TierDtypeName
from ondevice.pot.host.chunks import UNIT_ROWS, Field
from ondevice.pot.shape import PotShape

StoredTier = Literal["int8", "stored", "k8v4", "int4"]


def tier_fields(shape: PotShape, dtype: torch.dtype, stored: StoredTier) -> dict[str, Field]:
    """The fields of a token of one layer, and of a unit of them; the wider types first.

    `numbers` and `scales` are of its key and its value, or of its key alone where values are in other codes.
    """
    token, unit = (2, shape.num_kv_heads), (shape.num_kv_heads,)
    if stored == "k8v4":
        (keys, key_size), (values, value_size), (key_scales, _), (scales, scale_size) = shape.code_kinds
        return {
            "scales": Field((1, *unit), key_scales),
            "mean_scales": Field(unit, torch.float32, UNIT_ROWS),
            "origin": Field((), torch.int32),
            "value_scales": Field((1, *unit, *scale_size), scales),
            "numbers": Field((1, *unit, *key_size), keys),
            "value_numbers": Field((1, *unit, *value_size), values),
            "means": Field((*unit, shape.head_dim), torch.int8, UNIT_ROWS),
        }
    if stored == "int4":
        (codes, size), _, (scales, scale_size), _ = shape.code_kinds
        return {
            "mean_scales": Field(unit, torch.float32, UNIT_ROWS),
            "origin": Field((), torch.int32),
            "scales": Field((*token, *scale_size), scales),
            "numbers": Field((*token, *size), codes),
            "means": Field((*unit, shape.head_dim), torch.int8, UNIT_ROWS),
        }
    if stored == "int8":
        return {
            "scales": Field(token, torch.float32),
            "mean_scales": Field(unit, torch.float32, UNIT_ROWS),
            "origin": Field((), torch.int32),
            "numbers": Field((*token, shape.head_dim), torch.int8),
            "means": Field((*unit, shape.head_dim), torch.int8, UNIT_ROWS),
        }
    origin = {"origin": Field((), torch.int32)}
    numbers = {
        "numbers": Field((*token, shape.head_dim), dtype),
        "means": Field((*unit, shape.head_dim), dtype, UNIT_ROWS),
    }
    return numbers | origin if dtype.itemsize > torch.int32.itemsize else origin | numbers


def stored_beside(shape: PotShape, wanted: TierDtypeName) -> StoredTier:
    """The storage of a tier beside such a pot: quantised numbers stay as they are."""
    return wanted if shape.kv_dtype == "model" else shape.kv_dtype
