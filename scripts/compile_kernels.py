"""Compile the kernels for CPUs that the catalogue's smaller models need: no first start has to wait for them then."""

from __future__ import annotations

import sys
from multiprocessing import get_context

# The packed formats of their files, (bits, has_offset, in_two_steps), and query heads, KV heads and the size of a head.
FORMATS = (
    *((4, True, True), (5, True, True), (6, False, True)),
    *((4, True, False), (5, False, False), (8, False, False)),
)
DELTA_HEADS = ((128, 128),)  # sizes of keys and values in Qwen3.5's recurrent layers
HEADS = ((12, 2, 128), (14, 2, 64), (9, 3, 64), (16, 8, 128))


def compile_products(bits: int, has_offset: bool, in_two_steps: bool) -> None:
    """Compile the products with weights of one format, as they are in layers and in a head."""
    from ondevice.kernels.packed import FORMATS as KNOWN
    from ondevice.kernels.packed import empty, parted
    from ondevice.kernels.projection import prepare_packed

    form = KNOWN[bits, has_offset, in_two_steps]
    prepare_packed([empty(form), empty(parted(form))])


def compile_attention(num_heads: int, num_kv_heads: int, head_dim: int) -> None:
    """Compile the attention of such heads."""
    from ondevice.kernels.attention import prepare_attention

    prepare_attention(num_heads, num_kv_heads, head_dim, in_bfloat16=True)


def compile_delta_rule(key_dim: int, value_dim: int) -> None:
    """Compile the delta rule of such heads."""
    from ondevice.kernels.cpu.delta_rule import compiled

    compiled(key_dim, value_dim)


def main() -> None:
    """Compile all of them in two processes."""
    with get_context("spawn").Pool(2) as pool:
        waits = [pool.apply_async(compile_products, each) for each in FORMATS]
        waits += [pool.apply_async(compile_attention, each) for each in HEADS]
        waits += [pool.apply_async(compile_delta_rule, each) for each in DELTA_HEADS]
        for one in waits:
            one.get()


if __name__ == "__main__":
    sys.exit(main())
