"""MXFP4: every number of the format, and weights that five bits hold as they are."""

from __future__ import annotations

import torch
from ondevice.kernels.mxfp4 import mxfp4_codes, mxfp4_weights, pack_mxfp4
from ondevice.kernels.packed import unpack

from ondevice.model.loading._transformers import transformers


def number(bits: int) -> float:
    """One number of four bits: sign, two bits of exponent with bias 1, one of fraction (OCP MX, section 5.3.3)."""
    sign, exponent, fraction = -1 if bits & 8 else 1, bits >> 1 & 3, bits & 1
    return sign * (fraction / 2 if exponent == 0 else 2.0 ** (exponent - 1) * (1 + fraction / 2))


def test_every_number_is_that_of_the_format() -> None:
    numbers, exponents = torch.arange(32, dtype=torch.uint8)[None] & 15, torch.tensor([[120]], dtype=torch.uint8)
    codes, scales = mxfp4_codes(numbers, exponents)
    found = (codes.float() - 16) * scales
    assert found[0].tolist() == [number(bits) * 2.0 ** (120 - 127) for bits in [*range(16)] * 2]


def test_weights_are_those_of_transformers_and_packed_as_they_are() -> None:
    generator = torch.Generator().manual_seed(0)
    blocks = torch.randint(0, 256, (40, 4, 16), dtype=torch.uint8, generator=generator)
    exponents = torch.randint(107, 130, (40, 4), dtype=torch.uint8, generator=generator)
    blocks[0, 0], blocks[1, 1] = 0, 17  # a group of nothing, and one of the smallest numbers alone
    found = mxfp4_weights(blocks, exponents)
    convert = transformers.integrations.mxfp4.convert_moe_packed_tensors
    assert torch.equal(found, convert(blocks[None], exponents[None])[0].T)
    assert torch.equal(unpack(pack_mxfp4(found)), found.float())
