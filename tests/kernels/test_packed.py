"""Packed weights: packing loses nothing, and products equal those in float32 with activations rounded to bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from ondevice.kernels.cpu import byte_vectors
from ondevice.kernels.likeliest import likeliest
from ondevice.kernels.packed import FORMATS, UNIT_SIZE, PackedWeight, joined, pack, unpack
from ondevice.kernels.projection import project
from ondevice.kernels.rounding import quantize
from ondevice.kernels.token_loss import token_loss
from torch import Tensor

from ondevice_bench.speed.references import project_ref, token_loss_ref
from tests.builders.grids import first_of

ROOT = Path(__file__).resolve().parents[2]
ALL = sorted(FORMATS)
SHAPES = ((48, 96), (40, 1184), (7, 32))  # whole tiles; more than a panel and not whole tiles; less than a tile


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """The same activations in every run."""
    torch.manual_seed(0)


def fitting(shape: tuple[int, int], in_two_steps: bool) -> tuple[int, int]:
    """The shape, with as many columns as the format wants."""
    return shape[0], -(-shape[1] // UNIT_SIZE) * UNIT_SIZE if in_two_steps else shape[1]


def weight_of(
    bits: int,
    has_offset: bool,
    shape: tuple[int, int],
    seed: int = 0,
    in_two_steps: bool = False,
    is_parted: bool = False,
) -> tuple[PackedWeight, Tensor]:
    """A packed weight, and its values."""
    generator = torch.Generator().manual_seed(seed)
    form = FORMATS[bits, has_offset, in_two_steps]
    rows, columns = shape
    codes = torch.randint(0, 1 << bits, shape, dtype=torch.uint8, generator=generator)
    codes[0, :32], codes[1, :32] = (1 << bits) - 1, 0  # sums of the largest and of the smallest must not overflow
    scales = (torch.rand(rows, columns // form.group_size, generator=generator) + 0.1).half().float()
    offsets = (torch.randn(scales.shape, generator=generator) * 4).half().float()
    packed_factors, units = (scales, offsets if has_offset else None), None
    if in_two_steps:
        wholes = [torch.randint(low, 64, scales.shape, generator=generator).float() for low in (-64, 0)]
        shared = [each[:, :: form.unit_groups] for each in (scales, offsets)]
        scales, offsets = (
            whole * each.repeat_interleave(form.unit_groups, 1) for whole, each in zip(wholes, shared, strict=True)
        )
        packed_factors = wholes[0], wholes[1] if has_offset else None
        units = shared[0], shared[1] if has_offset else None
    values = codes.view(rows, -1, form.group_size).float()
    if has_offset:
        values = values * scales[..., None] + offsets[..., None]
    else:
        values = (values - (1 << (bits - 1))) * scales[..., None]
    return pack(codes, *packed_factors, bits, units, is_parted=is_parted), values.view(shape)


def rounded(x: Tensor, group_size: int) -> Tensor:
    """Activations as products with packed weights see them."""
    groups = x.view(*x.shape[:-1], -1, group_size)
    steps = groups.abs().amax(dim=-1, keepdim=True) / 127
    return (torch.where(steps > 0, groups / steps, 0.0).round() * steps).view(x.shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("bits", "has_offset", "in_two_steps"), ALL)
def test_packing_loses_nothing(bits: int, has_offset: bool, in_two_steps: bool, shape: tuple[int, int]) -> None:
    shape = fitting(shape, in_two_steps)
    packed, values = weight_of(bits, has_offset, shape, in_two_steps=in_two_steps)
    assert packed.shape == shape
    assert torch.equal(unpack(packed), values)


@pytest.mark.parametrize("shape", [*SHAPES, (600, 64)])
def test_weights_round_as_closely_as_is_said(shape: tuple[int, int]) -> None:
    weight = torch.randn(shape)
    for bits, error in ((8, 0.006), (4, 0.085)):
        got = unpack(quantize(weight.bfloat16(), bits))  # type: ignore[arg-type]
        assert got.shape == shape
        assert (got - weight.bfloat16().float()).norm() < error * weight.norm()
    steps = torch.arange(16.0).repeat(shape[0], shape[1] // 16) * 0.5 - 3
    torch.testing.assert_close(unpack(quantize(steps, 4)), steps, atol=2e-3, rtol=1e-3)
    for equal in (0.0, -2.5):
        for bits in (8, 4):
            got = unpack(quantize(torch.full(shape, equal), bits))  # type: ignore[arg-type]
            torch.testing.assert_close(got, torch.full(shape, equal), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shape", first_of(*SHAPES))
@pytest.mark.parametrize(("bits", "has_offset", "in_two_steps"), ALL)
def test_products_equal_float32_with_rounded_activations(
    bits: int, has_offset: bool, in_two_steps: bool, shape: tuple[int, int], with_bias: bool
) -> None:
    shape = fitting(shape, in_two_steps)
    packed, values = weight_of(bits, has_offset, shape, in_two_steps=in_two_steps)
    bias = torch.randn(shape[0]) * 10 if with_bias else None
    group_size = FORMATS[bits, has_offset, in_two_steps].group_size
    for num_tokens in (1, 2, 7, 9, 64, 300):
        x = torch.randn(num_tokens, shape[1])
        x[num_tokens // 2], x[0] = -1.0, 1.0  # the largest rounded activations everywhere
        if num_tokens > 1:
            x[-1, :64] = 0.0
        expected = project_ref(rounded(x, group_size), values, bias)
        got = project(x, packed, bias)
        assert got.is_contiguous()
        # A number in the middle between two steps may be rounded to either: of few tokens, and by one step.
        deviation, exact = (got - expected).norm(dim=1), 1e-4 * expected.norm(dim=1).mean()
        assert (deviation > exact).sum() <= max(1, num_tokens // 50)
        step = x.view(num_tokens, -1, group_size).abs().amax(dim=2).amax(dim=1) / 127
        assert (deviation <= exact + step * values.norm(dim=0).amax()).all()
        assert (got - project_ref(x, packed, bias)).norm() < 0.02 * expected.norm()


def test_shapes_of_activations_are_kept() -> None:
    packed, _ = weight_of(4, True, (48, 96))
    x = torch.randn(2, 3, 96)
    assert torch.allclose(project(x, packed), project(x.view(6, 96), packed).view(2, 3, 48))
    assert project(x[0, 0], packed).shape == (48,)
    wide = torch.randn(5, 192)[:, ::2]
    assert torch.equal(project(wide, packed), project(wide.contiguous(), packed))


def test_float32_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    packed, values = weight_of(5, False, (48, 96))
    x = torch.randn(3, 96)
    monkeypatch.setenv("KERNELS_PACKED", "float32")
    assert torch.equal(project(x, packed), project_ref(x, values))
    monkeypatch.setenv("KERNELS_PACKED", "bfloat3")
    with pytest.raises(ValueError, match="KERNELS_PACKED"):
        project(x, packed)


def test_rows_of_several_formats_make_one_weight() -> None:
    weights, values = zip(
        weight_of(5, False, (32, 96), 1),
        weight_of(5, False, (16, 96), 2),
        weight_of(8, False, (24, 96), 3),
        strict=True,
    )
    both = joined(weights)
    assert len(both.parts) == 2
    assert both.nbytes == sum(weight.nbytes for weight in weights)
    expected = torch.cat(values)
    assert torch.equal(unpack(both), expected)
    assert torch.equal(unpack(both.rows(16, 60)), expected[16:60])
    assert both.rows(16, 999).shape == (56, 96)
    x, bias = torch.randn(3, 96), torch.randn(72)
    apart = torch.cat([project(x, weight) for weight in weights], dim=-1) + bias
    assert torch.allclose(project(x, both, bias), apart, atol=1e-4)


@pytest.mark.parametrize(("bits", "in_two_steps"), [(6, False), (6, True), (8, False)])
def test_lower_bits_may_stand_apart(bits: int, in_two_steps: bool) -> None:
    shape = fitting((56, 96), in_two_steps)
    (beside, values), (parted, _) = (
        weight_of(bits, False, shape, in_two_steps=in_two_steps, is_parted=each) for each in (False, True)
    )
    (rows,) = parted.parts
    assert rows.lower is not None
    assert parted.nbytes == beside.nbytes
    assert torch.equal(unpack(parted), values)
    assert torch.equal(unpack(parted.rows(16, 40)), values[16:40])
    assert torch.equal(unpack(joined([parted.rows(0, 32), parted.rows(32, 56)])), values)
    assert torch.equal(unpack(PackedWeight((rows.tiles(np.array([2, 0])),))), torch.cat((values[32:48], values[:16])))
    for num_tokens in (1, 2, 7, 40):
        x = torch.randn(num_tokens, shape[1])
        assert torch.equal(project(x, parted), project(x, beside))
    upper = PackedWeight((rows.without_lower(),))
    step = unpack(beside).unflatten(1, (-1, rows.form.group_size)) - unpack(upper).unflatten(
        1, (-1, rows.form.group_size)
    )
    assert upper.nbytes < parted.nbytes
    assert (step.norm() < 0.1 * values.norm()).item()
    one = torch.ones(1, shape[1])  # rounded to bytes it is the same
    torch.testing.assert_close(project(one, upper), project_ref(one, unpack(upper)), rtol=1e-5, atol=1e-3)


def _head(num_rows: int, seed: int = 0) -> PackedWeight:
    generator = torch.Generator().manual_seed(seed)
    codes = (torch.randn(num_rows, 256, generator=generator) * 14 + 32).clamp(0, 63).to(torch.uint8)
    return pack(codes, torch.full((num_rows, 16), 0.01), None, 6, is_parted=True)


@pytest.mark.parametrize("num_rows", [16, 700, 2000])
def test_the_likeliest_is_the_largest_of_all(num_rows: int) -> None:
    head = _head(num_rows)
    for seed in range(20):
        x = torch.randn(1, 256, generator=torch.Generator().manual_seed(seed))
        assert likeliest(x, head) == int(project(x, head).argmax())
        assert likeliest(x, unpack(head)) == int(project_ref(x, unpack(head)).argmax())


def test_lower_bits_of_few_rows_are_read_where_one_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of others all are, or the order of rows that differ in those bits alone would be left to chance."""
    head, sizes = _head(4000), list[tuple[str, int]]()

    def noted(x: Tensor, weight: PackedWeight) -> Tensor:
        sizes.extend((part.form.lower, part.num_rows) for part in weight.parts)
        return project(x, weight)

    monkeypatch.setattr("ondevice.kernels.likeliest.project", noted)
    ahead = unpack(head)[1234][None]  # its own product is far above all others
    assert likeliest(ahead, head) == 1234
    assert sizes[0] == ("unread", 4000)
    assert all(lower == "apart" and num_rows < 1000 for lower, num_rows in sizes[1:])
    sizes.clear()
    (rows,) = head.parts
    same = PackedWeight((rows.tiles(np.zeros(100, np.int64)),))  # a hundred times the same rows
    assert likeliest(ahead, same) == int(project(ahead, same).argmax())
    assert sizes[-1] == ("apart", 1600)


def test_float32_that_is_forced_chooses_among_unpacked_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    head, x = _head(2000), torch.randn(1, 256)
    monkeypatch.setenv("KERNELS_PACKED", "float32")
    assert likeliest(x, head) == int(project_ref(x, unpack(head)).argmax())


def test_token_loss_of_a_packed_head() -> None:
    packed = pack(torch.randint(0, 64, (200, 96), dtype=torch.uint8), torch.full((200, 6), 0.01), None, 6)
    states, targets = torch.randn(1, 20, 96), torch.randint(0, 200, (1, 20))
    expected = token_loss_ref(states, targets, unpack(packed))
    assert torch.allclose(token_loss(states, targets, packed, slice_size=64), expected, atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["PLAIN", "AVX2", "VNNI"])
def test_all_processors_get_the_same_products(level: str) -> None:
    """In a process of its own, since a kernel is compiled once."""
    if getattr(byte_vectors, level) > byte_vectors.LEVEL:
        pytest.skip(f"this processor has no {level}")
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import torch\n"
        "from ondevice.kernels.cpu import byte_vectors\n"
        "from ondevice.kernels.packed import PackedWeight\n"
        "from tests.kernels.test_packed import weight_of\n"
        "from ondevice.kernels.projection import project\n"
        "x = torch.randn(12, 256, generator=torch.Generator().manual_seed(1))\n"
        "formats = [(4, True, 0), (5, False, 0), (6, False, 0), (8, False, 0)]\n"
        "formats += [(4, True, 1), (5, True, 1), (6, False, 1)]\n"
        "weights = [weight_of(*one[:2], (48, 256), in_two_steps=bool(one[2]))[0] for one in formats]\n"
        "parted = [weight_of(bits, False, (48, 256), is_parted=True)[0] for bits in (6, 8)]\n"
        "weights += parted + [PackedWeight((one.parts[0].without_lower(),)) for one in parted]\n"
        "fast = [project(x[:n], weight) for weight in weights for n in (5, 12)]\n"
        f"byte_vectors.LEVEL = byte_vectors.{level}\n"
        "from ondevice.kernels.cpu import packed_product, packed_walk\n"
        "packed_product._layout.cache_clear(), packed_walk.compiled.cache_clear()\n"
        "others = [project(x[:n], weight) for weight in weights for n in (5, 12)]\n"
        "assert all(torch.equal(a, b) for a, b in zip(fast, others)), 'differ'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_later_process_compiles_nothing(tmp_path: Path) -> None:
    prepare = (
        "import torch\n"
        "from ondevice.kernels.attention import prepare_attention\n"
        "from ondevice.kernels.coded_attention import coded_attention\n"
        "from ondevice.kernels.codes import Coded, Frame, encode\n"
        "from ondevice.kernels.decode_attention import decode_attention\n"
        "from ondevice.kernels.packed import pack\n"
        "from ondevice.kernels.projection import prepare_packed, project\n"
        "weight = pack(torch.zeros(16, 32, dtype=torch.uint8), torch.ones(16, 1), None, 4)\n"
        "prepare_packed([weight])\n"
        "prepare_attention(2, 1, 16)\n"
    )
    use = (
        "query, slots = torch.ones(1, 2, 1, 16), torch.ones(1, 1, 9, 16)\n"
        "decode_attention(query, slots, slots, scale=1.0)\n"
        "(codes, scales), frame = encode(slots), Frame(torch.zeros(1, 16), torch.ones(1, 16))\n"
        "coded = Coded(codes, codes, scales, scales, frame)\n"
        "places, table = torch.zeros(1, 1, 9, dtype=torch.int32), torch.ones(9, 16)\n"
        "coded_attention(query, coded, places, table, table, scale=1.0)\n"
        "project(torch.ones(1, 32), weight), project(torch.ones(99, 32), weight)\n"
    )
    kept = []
    for code in (prepare, prepare + use):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        kept.append({path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")})
    assert len(kept[0]) > 4
    assert kept[0] == kept[1]


def test_a_kernel_that_would_be_compiled_every_time_is_none() -> None:
    from ondevice.kernels.cpu.building import built

    other = len
    with pytest.raises(AssertionError, match="compiled every time"):
        built(lambda call: other(call))
