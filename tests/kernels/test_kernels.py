"""Every kernel against its float32 reference: odd shapes, grouped queries, data types."""

import sys

import pytest
import torch
from ondevice.kernels.attention import additive_mask, attention, attention_mass, attention_peak, causal_mask
from ondevice.kernels.attention_sharpness import attention_sharpness, attention_sums
from ondevice.kernels.pot_update import keep_slots_, replace_slots_, take_slots
from ondevice.kernels.projection import project
from ondevice.kernels.rope import rotate, signed_sine
from ondevice.kernels.token_loss import token_loss

from ondevice_bench.speed.references import (
    attention_mass_ref,
    attention_peak_ref,
    attention_ref,
    attention_sharpness_ref,
    keep_slots_ref,
    project_ref,
    replace_slots_ref,
    rotate_ref,
    token_loss_ref,
)
from tests.builders.grids import slow

module = sys.modules["ondevice.kernels.attention"]  # the name in the package is the function
sharpness_module = sys.modules["ondevice.kernels.attention_sharpness"]
DTYPES = [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)]
# batch, num_heads, num_kv_heads, num_queries, num_slots, head_dim
SHAPES = [
    (1, 9, 3, 1, 1, 64),
    (1, 9, 3, 1, 137, 64),
    (1, 4, 4, 7, 7, 16),  # nothing older: purely causal
    (2, 6, 2, 33, 170, 24),
    (1, 8, 1, 5, 300, 128),
    (3, 2, 2, 64, 65, 32),
    (1, 9, 3, 1, 1030, 64),  # from here on with a kernel for one query on a CPU, which is compiled for seconds
    *map(slow, [(2, 14, 2, 1, 1024, 64), (1, 12, 2, 1, 1300, 128)]),
]


def _inputs(shape, dtype):
    batch, num_heads, num_kv_heads, num_queries, num_slots, head_dim = shape
    generator = torch.Generator().manual_seed(sum(shape))
    query = torch.randn(batch, num_heads, num_queries, head_dim, generator=generator)
    keys = torch.randn(batch, num_kv_heads, num_slots, head_dim, generator=generator)
    values = torch.randn(batch, num_kv_heads, num_slots, head_dim, generator=generator)
    return query.to(dtype), keys.to(dtype), values.to(dtype)


def _random_mask(shape):
    """Every query sees its own slot and a random half of the others, differently in each KV head."""
    batch, _, num_kv_heads, num_queries, num_slots, _ = shape
    visible = torch.rand(batch, num_kv_heads, num_queries, num_slots, generator=torch.Generator().manual_seed(1)) < 0.5
    own = torch.arange(num_queries) + num_slots - num_queries
    visible[:, :, torch.arange(num_queries), own] = True
    return visible


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("softcap", [None, 2.5])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_equals_reference(shape, masked, softcap, dtype, tolerance):
    query, keys, values = _inputs(shape, dtype)
    mask = additive_mask(_random_mask(shape), dtype) if masked else None
    options = {"scale": shape[-1] ** -0.5, "mask": mask, "softcap": softcap}
    out = attention(query, keys, values, **options)
    assert out.shape == query.shape
    assert out.dtype == dtype
    expected = attention_ref(query.float(), keys.float(), values.float(), **options)
    torch.testing.assert_close(out.float(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("softcap", [None, 2.5])
@pytest.mark.parametrize("max_scores", [1, 2000, 1 << 24])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_sharpness_equals_reference(monkeypatch, shape, max_scores, softcap, dtype, tolerance):
    monkeypatch.setattr(sharpness_module, "_MAX_SCORES", max_scores)
    query, keys, _ = _inputs(shape, dtype)
    sharpness, _ = attention_sharpness(query, keys, scale=shape[-1] ** -0.5, softcap=softcap)
    expected = attention_sharpness_ref(query, keys, scale=shape[-1] ** -0.5, softcap=softcap)
    torch.testing.assert_close(sharpness, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("max_scores", [1, 1 << 24])
def test_sharpness_of_some_keys_count_the_attention_that_the_others_take_up(monkeypatch, max_scores):
    query, keys = torch.randn(1, 6, 5, 16), torch.randn(1, 3, 40, 16)
    everything, _ = attention_sharpness(query, keys, scale=0.7)
    monkeypatch.setattr(sharpness_module, "_MAX_SCORES", max_scores)
    _, others = attention_sharpness(query, keys[:, :, 25:], scale=0.7)
    sharpness, sums = attention_sharpness(query, keys[:, :, :25], scale=0.7, others=others)
    torch.testing.assert_close(sharpness, everything[:, :25])
    folded = query.view(1, 3, 10, 16)
    torch.testing.assert_close(sums, (folded @ keys[:, :, :25].transpose(-1, -2) * 0.7).logsumexp(dim=-1))
    torch.testing.assert_close(attention_sums(query, keys[:, :, :25], scale=0.7), sums)


@pytest.mark.parametrize("softcap", [None, 2.5])
def test_long_prompts_are_attended_in_slices_without_a_mask_of_all_by_all(monkeypatch, softcap):
    query, keys, values = _inputs((1, 4, 2, 70, 90, 16), torch.float32)
    whole = attention_ref(query, keys, values, scale=0.25, softcap=softcap or 1e6)
    sizes = []
    monkeypatch.setattr(module, "_MAX_SCORES", 1000)
    monkeypatch.setattr(module, "causal_mask", lambda n, m, *rest: sizes.append(n * m) or causal_mask(n, m, *rest))
    out = attention(query, keys, values, scale=0.25, softcap=softcap or 1e6)
    torch.testing.assert_close(out, whole, atol=1e-4, rtol=1e-4)
    assert sizes
    assert max(sizes) <= 1000


def test_one_sharp_head_outweighs_many_that_look_everywhere():
    query, keys = torch.zeros(1, 4, 1, 8), torch.zeros(1, 4, 50, 8)
    query[0, 3, 0, 0], keys[0, 3, 17, 0] = 1.0, 20.0
    sharpness, _ = attention_sharpness(query, keys, scale=1.0)
    assert int(sharpness.argmax()) == 17
    assert float(sharpness[0, 17]) == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("softcap", [None, 2.5])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_mass_equals_reference_and_sums_to_the_queries(shape, masked, softcap):
    query, keys, _ = _inputs(shape, torch.float32)
    mask = additive_mask(_random_mask(shape), torch.float32) if masked else None
    options = {"scale": shape[-1] ** -0.5, "mask": mask, "softcap": softcap}
    mass = attention_mass(query, keys, **options)
    torch.testing.assert_close(mass, attention_mass_ref(query, keys, **options), atol=1e-5, rtol=1e-5)
    groups = shape[1] // shape[2]
    torch.testing.assert_close(mass.sum(-1), torch.full(mass.shape[:2], float(groups * shape[3])))


@pytest.mark.parametrize("softcap", [None, 2.5])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_peak_equals_reference(shape, masked, softcap):
    query, keys, _ = _inputs(shape, torch.float32)
    mask = additive_mask(_random_mask(shape), torch.float32) if masked else None
    options = {"scale": shape[-1] ** -0.5, "mask": mask, "softcap": softcap}
    peak = attention_peak(query, keys, **options)
    torch.testing.assert_close(peak, attention_peak_ref(query, keys, **options), atol=1e-5, rtol=1e-5)
    assert float(peak.max()) <= 1.0
    assert bool((peak <= attention_mass(query, keys, **options) + 1e-6).all())


def test_attention_reads_a_view_of_a_larger_buffer():
    query, keys, values = _inputs((1, 4, 2, 5, 40, 16), torch.float32)
    expected = attention(query, keys[:, :, :31].clone(), values[:, :, :31].clone(), scale=0.25)
    torch.testing.assert_close(attention(query, keys[:, :, :31], values[:, :, :31], scale=0.25), expected)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(64, 64), (16, 8), (128, 96)])
def test_rotate_equals_reference(head_dim, rotary_dim, dtype, tolerance):
    generator = torch.Generator().manual_seed(head_dim)
    x = torch.randn(2, 3, 11, head_dim, generator=generator).to(dtype)
    angle = torch.rand(11, rotary_dim // 2, generator=generator) * 6.28
    cos, sin = torch.cat((angle.cos(), angle.cos()), -1), torch.cat((angle.sin(), angle.sin()), -1)
    out = rotate(x, cos.to(dtype), signed_sine(sin).to(dtype))
    expected = rotate_ref(x.float(), cos, sin)
    torch.testing.assert_close(out.float(), expected, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(out[..., rotary_dim:], x[..., rotary_dim:], atol=0, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("trailing", [(), (5,), (64,)])
@pytest.mark.parametrize("sizes", [(1, 1, 8, 8, 8), (2, 3, 40, 33, 17), (1, 3, 40, 40, 1)])
def test_keep_slots_equals_reference_in_place(sizes, trailing, dtype):
    batch, heads, capacity, num_cached, num_kept = sizes
    generator = torch.Generator().manual_seed(7)
    buffer = torch.randint(1, 100, (batch, heads, capacity, *trailing), generator=generator).to(dtype)
    buffer[:, :, num_cached:] = 0
    index = torch.rand(batch, heads, num_cached, generator=generator).argsort(-1)[..., :num_kept]
    expected, address = keep_slots_ref(buffer, index, num_cached), buffer.data_ptr()
    assert keep_slots_(buffer, index, num_cached).data_ptr() == address
    assert torch.equal(buffer, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("trailing", [(), (5,), (64,)])
def test_replace_slots_equals_reference_in_place_and_take_slots_reads_it_back(trailing, dtype):
    generator = torch.Generator().manual_seed(8)
    buffer = torch.randint(1, 100, (2, 3, 20, *trailing), generator=generator).to(dtype)
    new = torch.randint(1, 100, (2, 3, 6, *trailing), generator=generator).to(dtype)
    index = torch.rand(2, 3, 20, generator=generator).argsort(-1)[..., :6]
    expected, address = replace_slots_ref(buffer, index, new), buffer.data_ptr()
    assert replace_slots_(buffer, index, new).data_ptr() == address
    assert torch.equal(buffer, expected)
    assert torch.equal(take_slots(buffer, index), new)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(
    "shape", [(40,), (1, 40), (1, 1, 40), (2, 1, 40), (1, 7, 40), (8, 1, 40), (2, 16, 40), (33, 40)]
)
@pytest.mark.parametrize("library", ["onednn", "mkl"])
def test_project_equals_reference(monkeypatch, library, shape, has_bias, dtype, tolerance):
    monkeypatch.setenv("KERNELS_GEMM", library)
    generator = torch.Generator().manual_seed(4)
    x, weight = torch.randn(shape, generator=generator), torch.randn(33, 40, generator=generator) / 6
    bias = torch.randn(33, generator=generator) if has_bias else None
    out = project(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))
    assert out.shape == (*shape[:-1], 33)
    torch.testing.assert_close(out.float(), project_ref(x, weight, bias), atol=2 * tolerance, rtol=2 * tolerance)


@pytest.mark.parametrize("choice", ["auto", "onednn", "mkl"])
@pytest.mark.parametrize("num_tokens", [1, 31, 300])
def test_either_library_multiplies_alike(monkeypatch, choice, num_tokens):
    monkeypatch.setenv("KERNELS_GEMM", choice)
    generator = torch.Generator().manual_seed(4)
    x, weight = torch.randn(num_tokens, 96, generator=generator), torch.randn(50, 96, generator=generator)
    torch.testing.assert_close(project(x, weight), project_ref(x, weight), atol=1e-4, rtol=1e-4)


def test_the_library_is_chosen_by_maker_tokens_and_size(monkeypatch):
    chooser, large, small = sys.modules["ondevice.kernels.projection"], 896 * 896, 192 * 576
    for is_intel, num_tokens, num_weights, choice, is_mkl in [
        (True, 128, large, "auto", True), (True, 1, large, "auto", False), (False, 1024, large, "auto", False),
        (False, 1, large, "mkl", True), (True, 1024, large, "onednn", False), (False, 1, small, "auto", True),
        (False, 1, small, "onednn", False),
    ]:  # fmt: skip
        monkeypatch.setattr(chooser, "is_intel", lambda is_intel=is_intel: is_intel)
        monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
        monkeypatch.setenv("KERNELS_GEMM", choice)
        assert chooser._takes_mkl(num_tokens, num_weights) == is_mkl
    monkeypatch.setenv("KERNELS_GEMM", "blis")
    with pytest.raises(ValueError, match="'blis'; it must be one of auto, onednn, mkl"):
        project(torch.ones(1, 4), torch.ones(4, 4))


def test_one_query_is_left_to_torch_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(module, "_one_query_cpu", lambda *args: pytest.fail("the kernel was called"))
    query, keys, values = _inputs((1, 4, 2, 1, 1030, 16), torch.float32)
    monkeypatch.setenv("KERNELS_IMPL", "torch")
    attention(query, keys, values, scale=0.25)
    monkeypatch.delenv("KERNELS_IMPL")
    attention(query.double(), keys.double(), values.double(), scale=0.25)  # its numbers are float32
    with pytest.raises(pytest.fail.Exception):
        attention(query, keys, values, scale=0.25)


@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("slice_size", [1, 7, 64, 1000])
def test_token_loss_equals_reference_for_any_slice(slice_size, softcap):
    generator = torch.Generator().manual_seed(9)
    hidden, weight = torch.randn(2, 13, 24, generator=generator), torch.randn(101, 24, generator=generator)
    targets = torch.randint(0, 101, (2, 13), generator=generator)
    loss = token_loss(hidden, targets, weight, softcap=softcap, slice_size=slice_size)
    torch.testing.assert_close(loss, token_loss_ref(hidden, targets, weight, softcap=softcap), atol=1e-4, rtol=1e-5)


def test_token_loss_never_holds_all_logits():
    hidden, weight = torch.randn(1, 64, 8), torch.randn(5000, 8)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.shape[0] == 64:
                largest = max(largest, out.numel())
            return out

    with Watch():
        token_loss(hidden, torch.zeros(1, 64, dtype=torch.int64), weight, slice_size=100)
    assert 64 * 100 <= largest < 64 * 5000
