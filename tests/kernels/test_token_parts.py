"""What lies between the products of one token on a CPU, as calls that are laid out once, against torch."""

from __future__ import annotations

import pytest
import torch
from ondevice.kernels.attention import attention
from ondevice.kernels.coded_attention import coded_attention
from ondevice.kernels.codes import Coded, Frame, around, encode
from ondevice.kernels.cpu import decode_attention, packed_product, token_parts
from ondevice.kernels.cpu.calls import Call, Sequence
from ondevice.kernels.cpu.threads import takes_helpers
from ondevice.kernels.gated import gated
from ondevice.kernels.norm import RMSNorm
from ondevice.kernels.projection import project
from ondevice.kernels.rope import rotate, signed_sine
from ondevice.kernels.rounding import quantize
from torch import Tensor

pytestmark = pytest.mark.skipif(not takes_helpers(), reason="helper threads need Linux")

HEAD_DIMS = (16, 32, 64, 80, 128)


def run(*calls: Call, num_threads: int = 2) -> None:
    Sequence(calls).run(num_threads)


def table(num_positions: int, dim: int) -> tuple[Tensor, Tensor]:
    angles = torch.outer(torch.arange(num_positions), 0.5 ** torch.arange(dim // 2))
    angles = torch.cat((angles, angles), dim=1)
    return angles.cos(), signed_sine(angles.sin())


@pytest.mark.parametrize("size", [32, 896, 1536])
@pytest.mark.parametrize("num_rows", [1, 3])
def test_norms(num_rows: int, size: int) -> None:
    x, norm = torch.randn(num_rows, size), RMSNorm(torch.randn(size), 1e-6)
    out = torch.empty_like(x)
    run(token_parts.norm_call(x, norm, out))
    torch.testing.assert_close(out, norm(x))
    run(token_parts.norm_call(x, norm, x))
    assert torch.equal(x, out), "in place"


@pytest.mark.parametrize("size", [32, 8960])
def test_the_gate_is_finite_for_any_number(size: int) -> None:
    gate_up, out = torch.randn(1, 2 * size), torch.empty(1, size)
    gate_up[0, :8] = torch.tensor([0.0, -0.0, 88.0, -88.0, 1e4, -1e4, 3e38, -3e38])
    run(token_parts.gate_call(gate_up, out))
    expected = gated(gate_up, torch.nn.functional.silu)
    # Where exp ends, 1e-38 is 0 here.
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_heads_turn_by_a_row_of_the_table(head_dim: int) -> None:
    x, (cos, sin) = torch.randn(5, head_dim), table(9, head_dim)
    out = torch.empty_like(x)
    call = token_parts.turn_call(x, out)
    for position in (0, 7):
        call.arguments["cosines"][0], call.arguments["sines"][0] = cos[position].data_ptr(), sin[position].data_ptr()
        run(call)
        torch.testing.assert_close(out, rotate(x, cos[position], sin[position]))


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("num_heads", [1, 3])
def test_a_token_is_stored_in_its_slot_alone(num_heads: int, head_dim: int) -> None:
    keys, rotated, values = torch.randn(3, num_heads, head_dim)
    buffers = torch.zeros(3, num_heads, 10, head_dim)
    call = token_parts.store_call(keys, rotated, values, 4 * buffers.stride(1))
    for name, buffer in zip(("to_keys", "to_rotated", "to_values"), buffers, strict=True):
        call.arguments[name][0] = buffer[:, 7].data_ptr()
    run(call)
    assert torch.equal(buffers[:, :, 7], torch.stack((keys, rotated, values)))
    assert not buffers[:, :, :7].any()
    assert not buffers[:, :, 8:].any()


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("num_heads", [1, 3])
def test_codes_are_those_of_the_reference_to_the_bit(num_heads: int, head_dim: int) -> None:
    keys, values = torch.randn(2, num_heads, head_dim) * 5
    values[0] = 0
    frame = Frame(torch.randn(num_heads, head_dim), torch.rand(num_heads, head_dim) + 0.1)
    expected = [encode(around(keys[:, None], frame)), encode(values[:, None])]
    codes, scales = torch.zeros(2, num_heads, 6, head_dim, dtype=torch.int8), torch.zeros(2, num_heads, 6)
    call = token_parts.store_codes_call(keys, values, *frame, codes.stride(1), 4 * scales.stride(1))
    for at, name in enumerate(("keys", "values")):
        call.arguments[f"to_{name}"][0] = codes[at, :, 3].data_ptr()
        call.arguments[f"to_{name[:-1]}_scales"][0] = scales[at, :, 3].data_ptr()
    run(call)
    for at, (some, steps) in enumerate(expected):
        assert torch.equal(codes[at, :, 3:4], some)
        assert torch.equal(scales[at, :, 3:4], steps)
    assert not codes[:, :, 4:].any()
    assert not codes[:, :, :3].any()


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("bits", [4, 8])
def test_products_are_those_of_a_call_of_their_own_again_and_again(bits: int, num_threads: int) -> None:
    weight, bias = quantize(torch.randn(48, 64), bits), torch.randn(48)  # type: ignore[arg-type]
    x, out = torch.randn(1, 64), torch.zeros(1, 48)
    calls = packed_product.calls(x, weight, bias, out, num_threads)
    for _ in range(3):
        x.normal_()
        run(*calls, num_threads=num_threads)
        assert torch.equal(out, project(x, weight, bias))
    total = out.clone()
    run(*packed_product.calls(x, weight, out, out, num_threads), num_threads=num_threads)
    torch.testing.assert_close(out, total + project(x, weight))


@pytest.mark.parametrize("is_coded", [False, True])
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim"), [(2, 2, 32), (6, 2, 64), (7, 1, 128)])
def test_attention_to_as_many_slots_as_are_said(
    num_heads: int, num_kv_heads: int, head_dim: int, is_coded: bool
) -> None:
    capacity, (cos, sin) = 300, table(512, head_dim)
    query, out = torch.randn(1, num_heads, 1, head_dim), torch.empty(1, num_heads, 1, head_dim)
    keys, values = torch.randn(2, 1, num_kv_heads, capacity, head_dim)
    positions = torch.randperm(capacity).int().expand(1, num_kv_heads, -1).contiguous()
    frame = Frame(torch.randn(num_kv_heads, head_dim), torch.rand(num_kv_heads, head_dim) + 0.5)
    pairs = encode(around(keys, frame)), encode(values)
    coded = Coded(pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1], frame)
    if is_coded:
        call = decode_attention.call(
            query, coded.keys, coded.values, out, scale=0.1, num_threads=2, coded=coded, positions=positions
        )
        call.arguments["cosines"][0], call.arguments["sines"][0] = cos.data_ptr(), sin.data_ptr()
    else:
        call = decode_attention.call(query, keys, values, out, scale=0.1, num_threads=2)
    for used in (1, 65, capacity, 3):
        call.arguments["num_slots"][0] = used
        run(call)
        if is_coded:
            some = Coded(*(part[:, :, :used] for part in coded[:4]), frame)
            expected = coded_attention(query, some, positions[:, :, :used], cos, sin, scale=0.1)[0]
        else:
            expected = attention(query, keys[:, :, :used], values[:, :, :used], scale=0.1)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
