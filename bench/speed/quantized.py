"""Weights that stay quantised, beside the model in float32, in turn in one run: a GGUF's as they are stored against
the same unpacked, or those that were rounded while they were read against the ones in the files.

Products of every shape of the model by number of tokens, a pass that reads with its token losses, decoding; and what
the rounding of activations costs: perplexity and greedy choice on a text.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from ondevice.kernels.packed import PackedWeight, unpack
from ondevice.kernels.projection import project
from torch import Tensor, nn

from ondevice.errors import ConfigError
from ondevice.machine.process import peak_rss_bytes
from ondevice.model.decoder import Decoder
from ondevice.model.families.parts import Linear
from ondevice.model.loading.load import LoadedModel, load_model
from ondevice.model.loading.placement import require_memory
from ondevice.model.packed_modules import PackedLinear
from ondevice.pot.memory_pot import MemoryPot
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.source import chosen
from ondevice_bench.speed.turns import speedup_row, take_turns, time_rows

FLOAT32 = "float32"
_NAMES = {"stored": "stored", "8bit": "int8", "4bit": "int4"}
_TOKENS, _QUICK_TOKENS = (1, 32, 1024), (1, 32)
_PASS, _QUICK_PASS = 1024, 128  # tokens of a pass that reads
_TEXT, _QUICK_TEXT = 4096, 256
_NEW = 16  # tokens decoded in each round


def unpacked(loaded: LoadedModel) -> Any:
    """The same model with its weights in float32; embedding and norms are shared.

    Raises:
        ModelError: it does not fit into the memory that is free.
    """
    linears = {name: module for name, module in loaded.model.named_modules() if isinstance(module, PackedLinear)}
    require_memory(sum(4 * m.in_features * m.out_features for m in linears.values()), loaded.device, "stored")
    parts: dict[int, Any] = {id(module): module for module in loaded.model.modules() if not list(module.children())}
    for packed in linears.values():
        linear = nn.Linear(1, 1, bias=packed.bias is not None)
        linear.in_features, linear.out_features = packed.in_features, packed.out_features
        assert isinstance(packed.weight, PackedWeight)
        linear.weight = nn.Parameter(unpack(packed.weight))
        linear.bias = packed.bias  # type: ignore[assignment]  # None where there is none
        parts[id(packed)] = linear
    return copy.deepcopy(loaded.model, parts).eval().requires_grad_(False)  # which copies none of the parts


def _projections(decoder: Decoder) -> dict[str, Linear]:
    """One of every shape."""
    return {**decoder.parts.layers[0].linears, "head": Linear(decoder.parts.lm_head, None)}


def _products(ours: str, contenders: Mapping[str, Decoder], counts: Sequence[int]) -> Iterator[Row]:
    packed, exact = _projections(contenders[ours]), _projections(contenders[FLOAT32])
    for name in packed.keys() & exact.keys():
        rows, columns = packed[name].weight.shape
        for num_tokens in counts:
            x = torch.randn(num_tokens, columns)
            seconds = take_turns(
                {
                    ours: lambda x=x, one=packed[name]: project(x, one.weight, one.bias),  # type: ignore[misc]
                    FLOAT32: lambda x=x, one=exact[name]: project(x, one.weight, one.bias),  # type: ignore[misc]
                },
                x.device,
                budget_seconds=2.0,
            )
            case = {"product": name, "outputs": rows, "inputs": columns, "tokens": num_tokens}
            yield from time_rows(seconds, case, "product")
            yield speedup_row(seconds, case, "product", ours, FLOAT32)


def _reading(decoder: Decoder, ids: Tensor) -> None:
    pot = decoder.new_pot(ids.shape[1])
    states = decoder.forward(ids, pot).hidden_states
    decoder.head.token_loss(states[:, :-1], ids[:, 1:])


def _decoding(decoder: Decoder, pot: MemoryPot, first: Tensor) -> None:
    lengths, token = (list(pot.num_cached), list(pot.next_position)), first
    with torch.inference_mode():
        for _ in range(_NEW):
            states = decoder.forward(token, pot).hidden_states
            token = decoder.head.logits(states[:, -1]).argmax(dim=-1, keepdim=True)
    pot.rewind_to_(*lengths)


def packed_bytes(model: nn.Module) -> int:
    """Bytes of all packed weights in memory; memory that modules share counts once."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for module in model.modules()
        if isinstance(module, PackedLinear)
        for tensor in module.weight.tensors
    }
    return sum(storages.values())


def is_packed(model: nn.Module) -> bool:
    """True if any of the weights are packed."""
    return any(isinstance(module, PackedLinear) for module in model.modules())


@torch.inference_mode()
def losses(decoder: Decoder, ids: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Of a text read in passes of `size`: nats of each token after the first, and the likeliest token in its place."""
    pot, nats, greedy = decoder.new_pot(ids.shape[1]), [], []
    for start in range(0, ids.shape[1] - 1, size):
        states = decoder.forward(ids[:, start : min(start + size, ids.shape[1] - 1)], pot).hidden_states
        targets = ids[:, start + 1 : start + 1 + states.shape[1]]
        nats.append(decoder.head.token_loss(states, targets))
        greedy += [decoder.head.logits(some).argmax(dim=-1) for some in states.split(64, dim=1)]
    return torch.cat(nats, dim=1), torch.cat(greedy, dim=1)


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    loaded, packed = setup.engine.loaded, setup.engine.decoder
    if not is_packed(loaded.model) or loaded.device.type != "cpu":
        raise ConfigError(
            "This measures weights that stay quantised on a CPU",
            where=loaded.name,
            fix="Name a .gguf file with {engine.model}, or add {engine.quantization} 8bit without {engine.dtype}.",
        )
    ours = _NAMES[loaded.quantization]
    quick = options.quick
    num_pass = _QUICK_PASS if quick else _PASS
    document = chosen(setup, options.text, _QUICK_TEXT if quick else options.tokens or _TEXT)
    ids = packed.ids(loaded.tokenizer.encode("".join(page.text for page in document.pages))[0])
    setup.report("Reading with the quantised weights alone", None)
    _reading(packed, ids[:, :num_pass])
    peak = peak_rss_bytes()
    exact = unpacked(loaded) if ours == "stored" else load_model(loaded.source, device="cpu", quantization="none").model
    contenders = {ours: packed, FLOAT32: Decoder(exact)}
    setup.report("Products", None)
    rows = list(_products(ours, contenders, _QUICK_TOKENS if quick else _TOKENS))
    setup.report("Reading", None)
    seconds = take_turns(
        {name: lambda one=one: _reading(one, ids[:, :num_pass]) for name, one in contenders.items()},  # type: ignore[misc]
        packed.device,
        min_rounds=3,
        budget_seconds=60.0,
    )
    reading = {name: [num_pass / s for s in values] for name, values in seconds.items()}
    pots = {name: one.new_pot(num_pass + _NEW) for name, one in contenders.items()}
    for name, one in contenders.items():
        one.forward(ids[:, :num_pass], pots[name])
    setup.report("Decoding", None)
    seconds = take_turns(
        {name: lambda name=name: _decoding(contenders[name], pots[name], ids[:, :1]) for name in contenders},  # type: ignore[misc]
        packed.device,
        budget_seconds=30.0,
    )
    decoding = {name: [_NEW / s for s in values] for name, values in seconds.items()}
    for name in contenders:
        rows.append(row(name, {"tokens": num_pass}, "reading speed", "tokens/s", reading[name]))
        rows.append(row(name, {"cached tokens": num_pass}, "decoding speed", "tokens/s", decoding[name]))
    setup.report("Perplexity", None)
    nats, greedy = zip(*(losses(one, ids, num_pass) for one in contenders.values()), strict=True)
    for name, loss in zip(contenders, nats, strict=True):
        rows.append(row(name, {"tokens": loss.shape[1]}, "perplexity", "", [math.exp(float(loss.mean()))]))
    summary = {
        f"reading_speedup_{ours}": _ratio(reading, ours),
        f"decode_speedup_{ours}": _ratio(decoding, ours),
        f"perplexity_ratio_{ours}": math.exp(float(nats[0].mean() - nats[1].mean())),
        "greedy_agreement": float((greedy[0] == greedy[1]).float().mean()),
        "packed_bytes": float(packed_bytes(loaded.model)),
        "peak_memory_bytes": float(peak),
    }
    yield Table(rows, summary)


def _ratio(speeds: dict[str, list[float]], ours: str) -> float:
    return float(np.median([a / b for a, b in zip(speeds[ours], speeds[FLOAT32], strict=True)]))


MEASUREMENT = Measurement[Table](_measure)
