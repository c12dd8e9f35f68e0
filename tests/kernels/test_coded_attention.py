"""Attention over quantised keys and values: every implementation against the reference, and the codes themselves."""

import os
from unittest import mock

import pytest
import torch
from ondevice.kernels.coded_attention import coded_attention
from ondevice.kernels.codes import Coded, Frame, around, decode_keys, encode
from ondevice.kernels.quantize import dequantize_four, quantize_four
from ondevice.kernels.termination import Termination

from ondevice_bench.speed.gpu.coded_inputs import BITS, coded_inputs
from ondevice_bench.speed.references import coded_attention_ref, quantize_four_ref
from tests.builders.grids import first_of

# batch, num_heads, num_kv_heads, num_slots, head_dim
SHAPES = [(1, 9, 3, 300, 64), (1, 2, 2, 1, 16), (2, 8, 2, 129, 80), (1, 14, 2, 200, 64), (1, 4, 4, 70, 32)]


@pytest.mark.parametrize("shape", first_of(*SHAPES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("choice", ["auto", "torch"])
@pytest.mark.parametrize("bits", BITS)
def test_attention_is_that_of_the_reference(shape, dtype, is_shared, bits, choice):
    args = coded_inputs(shape, dtype, bits=bits, is_shared=is_shared)
    with mock.patch.dict(os.environ, {"KERNELS_IMPL": choice}):
        out, blocks_read = coded_attention(*args, scale=0.1)
    expected, blocks = coded_attention_ref(*args, scale=0.1)
    # The kernel turns a key by two angles, which are rounded each: as much as angles of float32 are off by themselves.
    off = 1e-5 if choice == "torch" else 5e-5
    assert torch.allclose(out.float(), expected.float(), atol=off if dtype == torch.float32 else 2e-2)
    assert torch.equal(blocks_read, blocks)


@pytest.mark.parametrize("choice", ["auto", "torch"])
def test_of_a_part_that_turns_alone_the_rest_stays(choice):
    args = coded_inputs((1, 4, 2, 90, 32), rotary_dim=16)
    with mock.patch.dict(os.environ, {"KERNELS_IMPL": choice}):
        out, _ = coded_attention(*args, scale=0.1)
    assert torch.allclose(out, coded_attention_ref(*args, scale=0.1)[0], atol=1e-5)


@pytest.mark.parametrize("bits", first_of(*BITS))
def test_views_into_larger_buffers_are_read_as_they_lie(bits):
    query, coded, positions, cos, sin = coded_inputs((2, 8, 2, 129, 64), bits=bits)
    part = Coded(*(tensor[:, :, 5:105] for tensor in coded[:4]), coded.frame)
    whole = Coded(*(tensor.clone() for tensor in part[:4]), coded.frame)
    args = positions[..., 5:105], cos, sin
    assert torch.equal(
        coded_attention(query, part, *args, scale=0.1)[0], coded_attention(query, whole, *args, scale=0.1)[0]
    )


@pytest.mark.parametrize("block_size", [16, 64])
def test_reading_ends_where_the_reference_ends(block_size):
    query, coded, positions, cos, sin = coded_inputs((1, 6, 2, 640, 64))
    coded.values[:, 0], coded.value_scales[:, 0] = 100, 0.01  # whatever is read of one head, its output is the same
    order = torch.arange(640 // block_size, dtype=torch.int32)[None, None]
    options = {"scale": 0.02, "block_size": block_size, "order": order, "termination": Termination(1e-4, 1e-4, 2)}
    out, blocks_read = coded_attention(query, coded, positions, cos, sin, **options)
    expected, blocks = coded_attention_ref(query, coded, positions, cos, sin, **options)
    assert torch.equal(blocks_read, blocks)
    assert blocks[0, 0] < blocks[0, 1] == 640 // block_size
    assert torch.allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 5, 8), (1, 1, 64), (2, 30, 128), (4, 80)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_four_bits_equal_the_reference_and_are_half_a_step_off(shape, dtype):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    x[0, ..., :] = 0.0
    codes, scales = quantize_four(x)
    for ours, theirs in zip((codes, scales), quantize_four_ref(x), strict=True):
        assert torch.equal(ours, theirs)
    steps = scales.float().unflatten(-1, (-1, 2))[..., 0]
    off = (dequantize_four(codes, scales, torch.float32) - x.float()).abs().unflatten(-1, (steps.shape[-1], -1))
    assert bool((off <= 0.52 * steps[..., None] + 1e-3).all())


def test_the_threads_do_not_change_the_output():
    args = coded_inputs((1, 14, 2, 700, 64))
    before = torch.get_num_threads()
    outs = []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            outs.append(coded_attention(*args, scale=0.1)[0])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(out, outs[0]) for out in outs)


def test_a_frame_takes_what_is_always_large_out_of_the_steps():
    generator = torch.Generator().manual_seed(3)
    frame = Frame(torch.zeros(1, 16), torch.ones(1, 16))
    frame.mean[0, 3] = 100.0
    keys = torch.randn(1, 1, 200, 16, generator=generator) + frame.mean[:, None]
    plain = Frame(torch.zeros(1, 16), torch.ones(1, 16))
    errors = [
        (decode_keys(*encode(around(keys, one)), one, torch.float32) - keys).abs().max() for one in (frame, plain)
    ]
    assert errors[0] < 0.02 < 0.2 < errors[1]
