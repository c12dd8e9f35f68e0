"""The error of four-bit weights as torch multiplies them on a GPU, emulated on a CPU: their own numbers, in float32
products.

A .gguf file's codes stay, its scales and zeros are rounded to bfloat16; weights of safetensors are rounded to four
bits. Beside them the same weights in bfloat16, as a GPU has them otherwise, and in float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from ondevice.kernels.int4 import Int4Weight, suits_int4
from ondevice.kernels.rounding import quantize_int4
from torch import Tensor, nn

from ondevice.errors import ConfigError
from ondevice.model.decoder import Decoder
from ondevice.model.loading.gguf_model import inspect_gguf, load_gguf
from ondevice.model.loading.gguf_packed import Int4Store
from ondevice.model.loading.load import LoadedModel, load_model
from ondevice.model.loading.progress import silent
from ondevice.model.packed_modules import PackedLinear
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.quantized import FLOAT32, losses
from ondevice_bench.speed.references import made_wide
from ondevice_bench.speed.sample import file_of
from ondevice_bench.speed.source import chosen

_BFLOAT16, _INT4 = "bfloat16", "4 bits"
_TEXT, _QUICK_TEXT, _PASS = 4096, 256, 1024  # tokens
_CPU = torch.device("cpu")


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    loaded = setup.engine.loaded
    if loaded.device != _CPU:
        raise ConfigError("This emulates a GPU on a CPU", where=loaded.name, fix="Add {engine.device} cpu.")
    document = chosen(setup, options.text, _QUICK_TEXT if options.quick else options.tokens or _TEXT)
    ids = setup.engine.decoder.ids(loaded.tokenizer.encode("".join(page.text for page in document.pages))[0])
    model = load_model(loaded.source, device="cpu", dtype="float32", quantization="none").model
    linears = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    setup.report("Rounding to 4 bits", None)
    four = _four_bits(loaded, linears)
    rows, nats = list[Row](), dict[str, float]()

    def note(name: str) -> None:
        setup.report(f"Reading with weights in {name}", None)
        nats[name] = float(losses(Decoder(model, has_fast_step=False), ids, _PASS)[0].mean())
        rows.append(row(name, {"tokens": ids.shape[1] - 1}, "perplexity", "", [math.exp(nats[name])]))

    note(FLOAT32)
    errors: dict[str, list[float]] = {_BFLOAT16: [], _INT4: []}
    exact = {name: linears[name].weight.detach().clone() for name in four}
    for contender in (_BFLOAT16, _INT4):
        for name, module in linears.items():
            wide = four[name] if contender == _INT4 and name in four else module.weight.detach().to(torch.bfloat16)
            module.weight.data.copy_(wide)
            if name in four:
                errors[contender].append(float((wide.float() - exact[name]).norm() / exact[name].norm()))
        note(contender)
        rows.append(row(contender, {"weights": len(four)}, "error of a weight", "of its norm", errors[contender]))
    summary = {
        "perplexity_ratio_int4_gpu": math.exp(nats[_INT4] - nats[FLOAT32]),
        "perplexity_ratio_bfloat16": math.exp(nats[_BFLOAT16] - nats[FLOAT32]),
        "weight_error_int4_gpu": sum(errors[_INT4]) / len(four),
        "weight_error_bfloat16": sum(errors[_BFLOAT16]) / len(four),
        "matrices_in_4_bits": float(len(four)),
    }
    yield Table(rows, summary)


def _four_bits(loaded: LoadedModel, linears: dict[str, nn.Linear]) -> dict[str, Tensor]:
    """The weights that a GPU would have in four bits, wide, by the names of their modules."""
    path = file_of(loaded.source)
    if path is None:
        return {
            name: made_wide(quantize_int4(module.weight.detach()))
            for name, module in linears.items()
            if name != "lm_head" and suits_int4(module.out_features, module.in_features)
        }
    if loaded.quantization != "stored":
        raise ConfigError("This file's weights are unpacked", where=str(path), fix="Leave {engine.quantization} out.")
    model, _ = load_gguf(path, inspect_gguf(path), silent, Int4Store(_CPU))
    packed = {name: module for name, module in model.named_modules() if isinstance(module, PackedLinear)}
    return {name: made_wide(module.weight) for name, module in packed.items() if isinstance(module.weight, Int4Weight)}


MEASUREMENT = Measurement[Table](_measure)
