"""The kernels of paged storage against their references, and which implementation runs them."""

import pytest
import torch
from ondevice.kernels.attention import attention
from ondevice.kernels.backend import uses_triton

from ondevice_bench.paged.paged_attention import paged_attention, paged_attention_ref
from ondevice_bench.paged.paged_update import gather_blocks, replace_paged_slots_, replace_paged_slots_ref
from ondevice_bench.speed.gpu.paged_inputs import paged_inputs, scattered_tables

DTYPES = [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)]
# lengths, (heads, kv_heads), head_dim, block_size
CASES = [
    ([1], (4, 4), 16, 8),
    ([1, 137], (9, 3), 64, 16),
    ([0, 33, 16], (8, 2), 80, 8),
    ([40, 41], (3, 1), 24, 5),
]


@pytest.fixture(autouse=True)
def default_implementation(monkeypatch):
    monkeypatch.delenv("KERNELS_IMPL", raising=False)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_paged_attention_equals_reference(case, dtype, tolerance):
    query, keys, values, tables, lengths = paged_inputs(*case, dtype)
    out = paged_attention(query, keys, values, tables, lengths, scale=case[2] ** -0.5)
    assert out.shape == query.shape
    assert out.dtype == dtype
    expected = paged_attention_ref(query.float(), keys.float(), values.float(), tables, lengths, scale=case[2] ** -0.5)
    torch.testing.assert_close(out.float(), expected, atol=tolerance, rtol=tolerance)
    assert not bool(out[lengths == 0].any())


def test_paged_attention_equals_attention_over_contiguous_slots():
    query, keys, values, tables, lengths = paged_inputs([21, 50], (6, 2), 32, 8, torch.float64)
    out = paged_attention(query, keys, values, tables, lengths, scale=0.2)
    for row, length in enumerate(lengths.tolist()):
        own = [gather_blocks(blocks, tables[row : row + 1])[:, :, :length] for blocks in (keys, values)]
        expected = attention(query[row : row + 1, :, None], *own, scale=0.2)[0, :, 0]
        assert float((out[row] - expected).abs().max()) <= 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("trailing", [(), (5,), (64,)])
@pytest.mark.parametrize("per_head", [False, True])
def test_replace_paged_slots_equals_reference_in_place_and_gather_reads_it_back(per_head, trailing, dtype):
    tables, num_blocks = scattered_tables([23, 40], block_size=8)
    generator = torch.Generator().manual_seed(8)
    blocks = torch.randint(1, 100, (num_blocks, 8, 3, *trailing), generator=generator).to(dtype)
    new = torch.randint(1, 100, (2, 3, 6, *trailing), generator=generator).to(dtype)
    slots = torch.rand(2, *([3] if per_head else []), 23, generator=generator).argsort(-1)[..., :6]
    expected, address = replace_paged_slots_ref(blocks, tables, slots, new), blocks.data_ptr()
    assert replace_paged_slots_(blocks, tables, slots, new).data_ptr() == address
    assert torch.equal(blocks, expected)
    index = (slots if per_head else slots[:, None].expand(2, 3, 6)).reshape(2, 3, 6, *[1] * len(trailing))
    assert torch.equal(gather_blocks(blocks, tables).gather(2, index.expand_as(new)), new)


@pytest.mark.parametrize("per_head", [False, True])
def test_a_slot_without_a_block_is_refused(per_head):
    tables, num_blocks = scattered_tables([23, 40], block_size=8)
    blocks = torch.zeros(num_blocks, 8, 3, 4)
    slots = torch.tensor([[24], [0]])  # the first sequence has three blocks
    slots = slots[:, None].expand(2, 3, 1) if per_head else slots
    with pytest.raises(IndexError):
        replace_paged_slots_(blocks, tables, slots, torch.ones(2, 3, 1, 4))
    assert not bool(blocks[tables[0, 2]].any())


def test_a_tensor_on_the_cpu_is_worked_on_by_torch(monkeypatch):
    assert not uses_triton(torch.zeros(1))
    monkeypatch.setenv("KERNELS_IMPL", "torch")
    assert not uses_triton(torch.zeros(1))


@pytest.mark.parametrize(
    ("choice", "message"), [("cuda", "auto, torch, triton"), ("triton", "(?i)not installed|INTERPRET")]
)
def test_an_implementation_that_cannot_run_is_refused(choice, message, monkeypatch):
    monkeypatch.setenv("KERNELS_IMPL", choice)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match=message):
        uses_triton(torch.zeros(1))
