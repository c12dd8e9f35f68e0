"""Compile every Triton kernel for NVIDIA GPUs, down to machine code, on a machine that needs none.

Not collected by itself: Triton reads TRITON_INTERPRET once per process, so `test_triton_compile` starts this file.
"""

import os

import pytest
import triton
from ondevice.kernels.quantize import num_groups
from ondevice.kernels.triton import (
    add_norm,
    coded_attention,
    decode_kernels,
    gated,
    int4,
    logsumexp,
    rope,
    store_codes,
    store_token,
)
from ondevice.kernels.triton.tiles import power_of_two
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ondevice_bench.paged import triton_paged_attention

# Bytes of shared memory that one program may have, by compute capability: A100, Orin, RTX 40, H100, RTX 50.
ALL_SHARED_BYTES = {80: 163 << 10, 87: 163 << 10, 89: 99 << 10, 90: 227 << 10, 120: 99 << 10}
_ONLY = os.environ.get("CAPABILITY")
SHARED_BYTES = {int(_ONLY): ALL_SHARED_BYTES[int(_ONLY)]} if _ONLY else ALL_SHARED_BYTES
_SMALLEST = min(SHARED_BYTES, key=SHARED_BYTES.__getitem__)
# head_dim, padded to a power of two; query heads of a KV head, padded to 16; slots of a tile; storage
SIZES = {
    "llama-bf16": (128, 128, 4, 16, 64, "bf16"),
    "llama-fp16": (128, 128, 4, 16, 64, "fp16"),
    "small-fp32": (64, 64, 3, 16, 64, "fp32"),
    "odd-bf16": (80, 128, 40, 64, 64, "bf16"),
    "wide-bf16": (256, 256, 2, 16, 32, "bf16"),
}


def compile_for(capability, kernel, types, constants, num_warps=4, num_stages=3):
    """Types of the first parameters of a kernel, in their order; the others are constants, by name."""
    names = [parameter.name for parameter in kernel.params]
    assert len(names) == len(types) + len(constants)
    signature = dict(zip(names, types, strict=False)) | dict.fromkeys(constants, "constexpr")
    # As with a launch: torch's memory and the strides of common shapes are multiples of 16, and loads wide for that.
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, (name, kind) in enumerate(zip(names, types, strict=False))
        if kind.startswith("*") or name.endswith("stride")
    }
    options = {"num_warps": num_warps, "num_stages": num_stages}
    source = ASTSource(kernel, signature, constants, aligned)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def sizes_of(name):
    head_dim, padded_dim, groups, padded_groups, tile, dtype = SIZES[name]
    return dtype, {
        "HEAD_DIM": head_dim,
        "PADDED_DIM": padded_dim,
        "GROUPS": groups,
        "PADDED_GROUPS": padded_groups,
        "TILE": tile,
        "IN_FLOAT32": dtype == "fp32",
    }


def fits(capability, compiled):
    """Whether it is machine code that the GPU can run."""
    is_code = ".entry" in compiled.asm["ptx"] and compiled.asm["cubin"][:4] == b"\x7fELF"
    return is_code and compiled.metadata.shared <= SHARED_BYTES[capability]


def sizes_for(capabilities_of_all=(90,)):
    """Every GPU with the common size, and some with all."""
    return [(c, name) for c in SHARED_BYTES for name in SIZES if name == "llama-bf16" or c in capabilities_of_all]


@pytest.mark.parametrize(("capability", "name"), sizes_for())
def test_paged_attention(capability, name):
    dtype, sizes = sizes_of(name)
    types = [f"*{dtype}"] * 3 + ["*i32"] * 2 + [f"*{dtype}", "fp32", "i32", "i32"]
    kernel = triton_paged_attention.paged_attention_kernel
    assert fits(capability, compile_for(capability, kernel, types, {**sizes, "BLOCK_SIZE": 16}))


@pytest.mark.parametrize(("capability", "name"), sizes_for())
@pytest.mark.parametrize("bits", [(8, 8), (8, 4), (4, 4)])
def test_coded_attention(capability, name, bits):
    dtype, sizes = sizes_of(name)
    kinds = {8: ("*i8", "*fp32"), 4: ("*u8", "*fp16")}
    (keys, key_scales), (values, value_scales) = (kinds[one] for one in bits)
    types = [
        f"*{dtype}",
        keys,
        values,
        key_scales,
        value_scales,
        "*fp32",
        "*fp32",
        "*i32",
        *[f"*{dtype}"] * 3,
        *["*fp32"] * 2,
        "*i32",
        "fp32",
        *["i32"] * 10,
    ]
    kernel, head_dim = coded_attention.coded_attention_kernel, sizes["HEAD_DIM"]
    own = {
        "ROTARY_DIM": head_dim,
        "GROUP_SIZE": head_dim // num_groups(head_dim),
        "KEY_BITS": bits[0],
        "VALUE_BITS": bits[1],
        "SPLITS": 16,
    }
    assert fits(capability, compile_for(capability, kernel, types, {**sizes, **own}))


@pytest.mark.parametrize(("capability", "name"), sizes_for())
@pytest.mark.parametrize("bits", [(8, 8), (8, 4), (4, 4)])
def test_store_codes(capability, name, bits):
    dtype, sizes = sizes_of(name)
    kinds = {8: ("*i8", "*fp32"), 4: ("*u8", "*fp16")}
    (keys, key_scales), (values, value_scales) = (kinds[one] for one in bits)
    types = [f"*{dtype}"] * 4 + ["*i32"] * 2 + [keys, values, key_scales, value_scales] + ["*fp32"] * 2
    types += [f"*{dtype}"] + ["i32"] * 7
    head_dim, padded_dim = sizes["HEAD_DIM"], sizes["PADDED_DIM"]
    groups = num_groups(head_dim)
    constants = {"NUM_HEADS": 32, "NUM_KV_HEADS": 8, "KEY_BITS": bits[0], "VALUE_BITS": bits[1]}
    constants |= {"HALF_GROUPS": groups // 2, "GROUP_SIZE": head_dim // groups, "HEAD_DIM": head_dim}
    constants |= {"PADDED_DIM": padded_dim, "PADDED_GROUPS": power_of_two(groups // 2)}
    constants |= {"PADDED_SIZE": power_of_two(head_dim // groups)}
    assert fits(capability, compile_for(capability, store_codes.store_codes_kernel, types, constants, num_warps=1))


@pytest.mark.parametrize(("capability", "name"), sizes_for())
def test_rope(capability, name):
    dtype, sizes = sizes_of(name)
    types = [f"*{dtype}"] * 4 + ["i32"] * 10
    constants = {"ROTARY_DIM": sizes["HEAD_DIM"], "HEAD_DIM": sizes["HEAD_DIM"], "PADDED_DIM": sizes["PADDED_DIM"]}
    assert fits(capability, compile_for(capability, rope.rope_kernel, types, {**constants, "BLOCK": 16}))


@pytest.mark.parametrize(("capability", "name"), sizes_for())
def test_store_token(capability, name):
    dtype, sizes = sizes_of(name)
    types = [f"*{dtype}"] * 4 + ["*i32"] * 2 + [f"*{dtype}"] * 4 + ["i32"] * 5
    constants = {key: sizes[key] for key in ("HEAD_DIM", "PADDED_DIM")} | {"NUM_HEADS": 32, "NUM_KV_HEADS": 8}
    assert fits(capability, compile_for(capability, store_token.store_token_kernel, types, constants, num_warps=1))


@pytest.mark.parametrize("capability", SHARED_BYTES)
@pytest.mark.parametrize(("size", "dtype"), [(4096, "bf16"), (576, "fp32"), (8192, "fp16"), (3, "bf16")])
@pytest.mark.parametrize("has_before", [False, True])
def test_add_norm(capability, size, dtype, has_before):
    types = [f"*{dtype}"] * 5 + ["fp32"] * 2
    constants = {"SIZE": size, "PADDED_SIZE": power_of_two(size), "HAS_BEFORE": has_before}
    compiled = compile_for(capability, add_norm.add_norm_kernel, types, constants, num_warps=add_norm.num_warps(size))
    assert fits(capability, compiled)


@pytest.mark.parametrize("capability", SHARED_BYTES)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("is_silu", [False, True])
def test_gated(capability, dtype, is_silu):
    constants = {"IS_SILU": is_silu, "BLOCK": 1024}
    assert fits(capability, compile_for(capability, gated.gated_kernel, [f"*{dtype}"] * 2 + ["i32"], constants))


@pytest.mark.parametrize("capability", SHARED_BYTES)
@pytest.mark.parametrize("depth", [1, 4])
def test_int4_made_wide(capability, depth):
    constants = {"TILE_ROWS": 8, "GROUP_SIZE": 32, "MIDDLE": 8, "DEPTH": depth, "BLOCK": 256}
    types = ["*i32", "*bf16", "*bf16", "i32", "i32"]
    assert fits(capability, compile_for(capability, int4.widen_kernel, types, constants))


@pytest.mark.parametrize("capability", SHARED_BYTES)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_logsumexp(capability, dtype):
    types, constants = [f"*{dtype}", "*fp32", "fp32", "i32", "i32"], {"BLOCK": 4096, "HAS_CAP": True}
    assert fits(capability, compile_for(capability, logsumexp.logsumexp_kernel, types, constants, num_warps=8))


def compile_read(capability, name, splits, block_size=64):
    dtype, sizes = sizes_of(name)
    types = [f"*{dtype}"] * 4 + ["*fp32", "*fp32", "*i32", "fp32"] + ["i32"] * 3
    constants = {**sizes, "SPLITS": splits, "BLOCK_SIZE": block_size}
    return compile_for(capability, decode_kernels.read_kernel, types, constants, 4, 2)


@pytest.mark.parametrize("capability", SHARED_BYTES)
@pytest.mark.parametrize("splits", [1, 16])
def test_decode_attention(capability, splits):
    assert fits(capability, compile_read(capability, "llama-bf16", splits))


# Sizes whose tiles are smaller than a block are among them.
@pytest.mark.parametrize("name", [name for name in SIZES if name != "llama-bf16"])
def test_decode_attention_of_other_sizes(name):
    assert fits(_SMALLEST, compile_read(_SMALLEST, name, 16))


@pytest.mark.parametrize("capability", SHARED_BYTES)
def test_decode_merge(capability):
    constants = {"SPLITS": 24, "PADDED_SPLITS": 32, "ROWS": 12, "HEAD_DIM": 80, "PADDED_DIM": 128}
    types = ["*fp32", "*fp32", "*bf16"]
    assert fits(capability, compile_for(capability, decode_kernels.merge_kernel, types, constants))
