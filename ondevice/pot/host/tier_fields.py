"""The fields that the host tier keeps of a token and of a unit of them, by what its numbers are stored as."""

from __future__ import annotations

from dataclasses import replace

import torch

from ondevice.pot.host.chunks import UNIT_ROWS, Field
from ondevice.pot.shape import PotShape


def tier_fields(shape: PotShape) -> dict[str, Field]:
    """The fields of a token of one layer, and of a unit of them; the wider types first.

    What the pot has quantised stays as it is, all else is in 8 bits. `numbers` and `scales` are of its key and its
    value, or of its key alone where values are in other codes.
    """
    unit, fields = (shape.num_kv_heads,), {"origin": Field((), torch.int32)}
    stored = "int8" if shape.kv_dtype == "model" else shape.kv_dtype
    kinds = replace(shape, kv_dtype=stored, key_rotation="on-read").code_kinds
    (keys, key_size), (values, value_size), (key_scales, key_scale_size), (scales, scale_size) = kinds
    token = (1 if keys != values else 2, *unit)
    fields["numbers"], fields["scales"] = Field((*token, *key_size), keys), Field((*token, *key_scale_size), key_scales)
    if keys != values:
        fields["value_numbers"] = Field((*token, *value_size), values)
        fields["value_scales"] = Field((*token, *scale_size), scales)
    fields["means"] = Field((*unit, shape.head_dim), torch.int8, UNIT_ROWS)
    fields["mean_scales"] = Field(unit, torch.float32, UNIT_ROWS)
    return dict(sorted(fields.items(), key=lambda item: -item[1].dtype.itemsize))
