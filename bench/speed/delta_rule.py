"""A layer with the gated delta rule, of the sizes of Qwen3.5 and with random weights: our kernel beside transformers.

Projections have 4 bits for both, so that what differs is what lies between them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from ondevice.kernels.rounding import quantize
from torch import Tensor, nn

from ondevice.model.families.parts import RecurrentLayer
from ondevice.model.families.qwen3_5 import qwen3_5_layers
from ondevice.model.loading._transformers import transformers
from ondevice.model.packed_modules import PackedLinear, replace_module
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.choosing import choosing

_SIZES = {  # hidden size, heads of keys and of values
    "0.8B": (1024, 16, 16),
    "4B": (2560, 16, 32),
}
_TOKENS, _ROUNDS, _QUICK_ROUNDS = (1, 64, 512), 20, 3
_OURS, _THEIRS = "kernel", "transformers"


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    rows, summary = list[Row](), dict[str, float]()
    for name in ("0.8B",) if options.quick else _SIZES:
        layer = _layer(*_SIZES[name])
        for num_tokens in _TOKENS:
            setup.report(f"{name}, {num_tokens} tokens", None)
            hidden = torch.randn(1, num_tokens, _SIZES[name][0], generator=torch.Generator().manual_seed(0))
            times, outs = _times(layer, hidden, _QUICK_ROUNDS if options.quick else _ROUNDS)
            case = {"model": name, "tokens": num_tokens}
            rows += [row(contender, case, "time of a layer", "ms", times[contender]) for contender in (_OURS, _THEIRS)]
            error = float((outs[_OURS] - outs[_THEIRS]).norm() / outs[_THEIRS].norm())
            rows.append(row(_OURS, case, "difference", "of the norm", [error]))
            median = {contender: sorted(each)[len(each) // 2] for contender, each in times.items()}
            summary[f"delta_rule_ratio_{name}_{num_tokens}"] = median[_THEIRS] / median[_OURS]
            summary[f"delta_rule_difference_{name}_{num_tokens}"] = error
    yield Table(rows, summary)


def _layer(hidden_size: int, num_keys: int, num_values: int) -> RecurrentLayer:
    config = transformers.AutoConfig.for_model(
        "qwen3_5_text",
        hidden_size=hidden_size,
        intermediate_size=256,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
        linear_num_key_heads=num_keys,
        linear_num_value_heads=num_values,
        vocab_size=32,
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
    for name, module in list(model.model.layers.named_modules(prefix="model.layers")):
        if type(module) is nn.Linear:
            replace_module(model, name, PackedLinear(quantize(module.weight, 4)))
    (layer,) = qwen3_5_layers(model)
    assert isinstance(layer, RecurrentLayer)
    return layer


def _times(layer: RecurrentLayer, hidden: Tensor, rounds: int) -> tuple[dict[str, list[float]], dict[str, Tensor]]:
    """Milliseconds of each round, the contenders in turns, and the output of the last."""
    times: dict[str, list[float]] = {_OURS: [], _THEIRS: []}
    outs = dict[str, Tensor]()
    state = [torch.randn(1, *size) / size[-1] for _, size in layer.sizes.values()]
    with torch.inference_mode():
        for number in range(-1, rounds):
            for contender in times:
                with choosing("KERNELS_IMPL", "auto" if contender == _OURS else "torch"):
                    start = time.perf_counter()
                    outs[contender] = layer.mix(hidden, state)[0]
                    took = time.perf_counter() - start
                if number >= 0:  # the first one compiles
                    times[contender].append(1000 * took)
    return times, outs


MEASUREMENT = Measurement[Table](_measure)
