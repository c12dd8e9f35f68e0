"""Decode attention with early termination: the reference against plain attention, every implementation against it."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from ondevice.kernels.decode_attention import decode_attention
from ondevice.kernels.termination import Termination

from ondevice_bench.speed.references import attention_ref, decode_attention_ref
from tests.builders.grids import first_of, slow

# batch, num_heads, num_kv_heads, num_queries, num_slots, head_dim
SHAPES = [
    (1, 2, 2, 1, 1, 16),
    (1, 9, 3, 1, 300, 64),
    (2, 8, 2, 1, 129, 80),
    (1, 18, 1, 1, 200, 64),
    (1, 20, 4, 1, 70, 32),
]


def inputs(shape, dtype=torch.float32, seed=0):
    batch, num_heads, num_kv_heads, num_queries, num_slots, head_dim = shape
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(batch, num_heads, num_queries, head_dim, generator=generator)
    keys, values = torch.randn(2, batch, num_kv_heads, num_slots, head_dim, generator=generator)
    return query.to(dtype), keys.to(dtype), values.to(dtype)


def random_order(shape, block_size, seed=1):
    generator, num_blocks = torch.Generator().manual_seed(seed), -(-shape[4] // block_size)
    rows = [torch.randperm(num_blocks, generator=generator) for _ in range(shape[0] * shape[2])]
    return torch.stack(rows).view(shape[0], shape[2], num_blocks).int()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_shuffled", [False, True])
def test_reference_without_termination_is_plain_attention(shape, is_shuffled):
    query, keys, values = inputs(shape)
    order = random_order(shape, 32) if is_shuffled else None
    out, blocks_read = decode_attention_ref(query, keys, values, scale=0.2, block_size=32, order=order)
    assert torch.allclose(out, attention_ref(query, keys, values, scale=0.2), atol=1e-6)
    assert (blocks_read == -(-shape[4] // 32)).all()


def test_reference_ends_when_the_output_stands_still_and_reads_block_0():
    query, keys, values = inputs((1, 3, 1, 1, 640, 16))
    values[:] = 1.0  # whatever is read, the output is the same
    rule = Termination(tau=1e-5, phi=1e-3, patience=3)
    out, blocks_read = decode_attention_ref(query, keys, values, scale=1.0, termination=rule)
    assert blocks_read.tolist() == [[5]]  # one to begin with, three stable ones, block 0
    assert torch.allclose(out, torch.ones_like(out))


@pytest.mark.parametrize("termination", [None, Termination(patience=math.inf)])
def test_reference_reads_everything_without_an_end(termination):
    query, keys, values = inputs((1, 3, 1, 1, 640, 16))
    values[:] = 1.0
    assert decode_attention_ref(query, keys, values, scale=1.0, termination=termination)[1].tolist() == [[10]]


def test_reference_with_a_slow_head_reads_on_for_all_that_share_it():
    query, keys, values = inputs((1, 2, 1, 1, 640, 16))
    query[:, 0] = 0.0
    keys[..., 0] = torch.arange(640.0)  # the second head looks at ever more distant slots
    query[:, 1] = torch.eye(16)[0] * -1.0
    rule = Termination(tau=0.2, phi=1.0, patience=2)
    both = decode_attention_ref(query, keys, values, scale=1.0, termination=rule)[1]
    first = decode_attention_ref(query[:, :1], keys, values, scale=1.0, termination=rule)[1]
    assert first.item() < both.item()


# groups of 1, 3 and 7 query heads, odd lengths, heads that fill no whole vector, blocks from 16 to 256 slots
# Each is compiled for seconds, so most run with the slow tests.
CPU_CASES = [
    (SHAPES[1], 32),
    ((1, 7, 1, 1, 331, 32), 16),
    ((2, 3, 1, 1, 100, 20), 32),
    *(slow(shape, 32) for shape in (SHAPES[0], *SHAPES[2:])),
    slow((1, 3, 3, 1, 1000, 16), 64),
    slow((4, 9, 3, 1, 777, 64), 128),
    slow((2, 6, 2, 1, 513, 128), 256),
]
RULES = [
    None,
    Termination(patience=math.inf),
    Termination(tau=0.2, phi=0.3, patience=2),
    Termination(tau=0.15, phi=0.05, patience=1, is_relative=True),
    Termination(tau=(0.1, 0.6, 0.3, 0.0), phi=0.3, patience=1, is_relative=True),  # a number for each KV head
]


def in_a_pot(tensor, capacity=1100):
    """The same numbers as a view of the first slots of a larger buffer."""
    buffer = torch.full((*tensor.shape[:2], capacity, tensor.shape[3]), torch.nan, dtype=tensor.dtype)
    buffer[:, :, : tensor.shape[2]] = tensor
    return buffer[:, :, : tensor.shape[2]]


def check_on_cpu(query, keys, values, termination=None, **options):
    if termination is not None and isinstance(termination.tau, tuple):
        termination = replace(termination, tau=termination.tau[: keys.shape[1]])
    options["termination"] = termination
    out, blocks_read = decode_attention(query, in_a_pot(keys), in_a_pot(values), **options)
    expected, expected_blocks = decode_attention_ref(query, keys, values, **options)
    tolerance = 1e-5 if query.dtype == torch.float32 else 2e-2
    assert out.dtype == query.dtype
    assert blocks_read.tolist() == expected_blocks.tolist()
    assert torch.allclose(out.float(), expected.float(), atol=tolerance, rtol=tolerance)
    return blocks_read


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("ordered", first_of("shuffled per head", "last first", "shuffled"))
@pytest.mark.parametrize(("shape", "block_size"), CPU_CASES)
def test_cpu_computes_the_reference(shape, block_size, ordered, rule):
    order = None if ordered == "last first" else random_order(shape, block_size)
    if ordered == "shuffled":
        order = order[:1, :1]
    check_on_cpu(*inputs(shape), scale=0.2, block_size=block_size, order=order, termination=rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", first_of((1, 3, 1, 1, 77, 20), (2, 9, 3, 1, 300, 64)))
def test_cpu_reads_bfloat16(shape, rule):
    check_on_cpu(*inputs(shape, torch.bfloat16), scale=0.2, block_size=32, termination=rule)


def test_cpu_reads_float16():
    check_on_cpu(*inputs(SHAPES[1], torch.float16), scale=0.2)


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_cpu_ends_in_the_same_place_with_any_number_of_threads(num_threads):
    query, keys, values = inputs((1, 9, 3, 1, 1000, 64))
    options = {"scale": 0.2, "block_size": 16, "termination": RULES[2]}
    blocks_read = check_on_cpu(query, keys, values, **options)
    out, _ = decode_attention(query, keys, values, **options)
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        again = [decode_attention(query, keys, values, **options) for _ in range(20)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(other, out) and torch.equal(blocks, blocks_read) for other, blocks in again)
    assert 2 < blocks_read.min() < 60


def test_cpu_needs_no_openmp(monkeypatch):
    from ondevice.kernels.cpu import threads

    monkeypatch.setattr(threads, "_openmp_fork", lambda: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for _ in range(5):
        check_on_cpu(*inputs((2, 9, 3, 1, 1000, 64)), scale=0.2, termination=RULES[2])


def test_cpu_serves_several_threads_at_once():
    cases = [inputs((1, 9, 3, 1, 500, 64), seed=seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda case: check_on_cpu(*case, scale=0.2, termination=RULES[2]), cases))


def test_cpu_reads_large_scores():
    query, keys, values = inputs((1, 3, 1, 1, 400, 64))
    check_on_cpu(query * 30, keys * 30, values, scale=1.0, block_size=64)
