"""A quantised pot beside one in the model's type, with the same tokens in the same slots, in one run: bytes, how
fast it is read into and decoded from, and what the next tokens lose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from ondevice.config import KvDtype
from ondevice.model.decoder import Decoder
from ondevice.pot.memory_pot import MemoryPot
from ondevice.prefill.key_frame import key_frame
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.source import chosen
from ondevice_bench.speed.turns import speedup_row, take_turns

CACHED, QUICK_CACHED = (1024, 4096), (256,)
_PASS, _QUICK_PASS = 256, 32  # tokens read on top of what is there
_NEW, _AHEAD, _STEP = 16, 128, 512  # tokens decoded in a round, predicted for the loss, of a pass that fills
_MODEL: KvDtype = "model"


def _filled(setup: Setup, ids: Tensor, room: int) -> dict[str, MemoryPot]:
    """A pot of every type that has read the same tokens."""
    engine, pots = setup.engine, dict[str, MemoryPot]()
    decoder = engine.decoder
    frame = key_frame(decoder, engine.loaded.tokenizer, engine.loaded.fingerprint)
    for kv_dtype in get_args(KvDtype):
        setup.report(f"Reading {ids.shape[1]:,} tokens into a pot of type {kv_dtype}", None)
        shape = decoder.pot_shape(ids.shape[1] + room, key_rotation=engine.config.pot.key_rotation, kv_dtype=kv_dtype)
        pots[kv_dtype] = decoder.allocate(shape, None if kv_dtype == _MODEL else frame)
        for start in range(0, ids.shape[1], _STEP):
            decoder.forward(ids[:, start : start + _STEP], pots[kv_dtype])
    return pots


@torch.inference_mode()
def _decode(decoder: Decoder, pot: MemoryPot, first: Tensor) -> None:
    token = first
    with pot.savepoint():
        for _ in range(_NEW):
            states = decoder.forward(token, pot).hidden_states
            token = decoder.head.logits(states[:, -1]).argmax(dim=-1, keepdim=True)


def _read(decoder: Decoder, pot: MemoryPot, ids: Tensor) -> None:
    with pot.savepoint():
        decoder.forward(ids, pot)


@torch.inference_mode()
def _loss(decoder: Decoder, pot: MemoryPot, ids: Tensor) -> Tensor:
    """Nats of each of the next tokens after the first."""
    with pot.savepoint():
        states = decoder.forward(ids, pot).hidden_states
        return decoder.head.token_loss(states[:, :-1], ids[:, 1:]).flatten()


def _compared(
    setup: Setup, pots: Mapping[str, MemoryPot], ahead: Tensor, num_pass: int, num_cached: int
) -> Iterator[Row]:
    decoder, case = setup.engine.decoder, {"cached tokens": num_cached}
    for metric, work in (("reading", _read), ("decoding", _decode)):
        count = num_pass if metric == "reading" else _NEW
        ids = ahead[:, : num_pass if metric == "reading" else 1]
        setup.report(f"{metric.capitalize()} beside {num_cached:,} tokens", None)
        seconds = take_turns(
            {name: lambda pot=pot, work=work, ids=ids: work(decoder, pot, ids) for name, pot in pots.items()},  # type: ignore[misc]
            decoder.device,
            budget_seconds=30.0,
        )
        for name, values in seconds.items():
            yield row(name, case, f"{metric} speed", "tokens/s", [count / one for one in values])
            if name != _MODEL:
                yield speedup_row(seconds, case, metric, name, _MODEL)
    losses = {name: _loss(decoder, pot, ahead[:, :_AHEAD]) for name, pot in pots.items()}
    for name, pot in pots.items():
        yield row(name, case, "bytes of a slot", "bytes", [pot.nbytes / pot.shape.capacity])
        if name != _MODEL:
            off = losses[name] - losses[_MODEL]
            yield row(name, case, "loss of the next tokens, more", "nats", [float(off.mean())])
            yield row(name, case, "loss of a token, off by", "nats", [float(off.abs().mean())])


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    lengths = options.cached or (QUICK_CACHED if options.quick else CACHED)
    num_pass = _QUICK_PASS if options.quick else _PASS
    room = max(num_pass, _NEW, _AHEAD)
    document = chosen(setup, options.text, max(lengths) + room)
    encode = setup.engine.loaded.tokenizer.encode
    ids = setup.engine.decoder.ids(encode("".join(page.text for page in document.pages))[0])
    rows: list[Row] = []
    for num_cached in lengths:
        pots = _filled(setup, ids[:, :num_cached], room)
        rows += _compared(setup, pots, ids[:, num_cached : num_cached + room], num_pass, num_cached)
    yield Table(rows, _summary(rows))


def _summary(rows: list[Row]) -> dict[str, float]:
    """Means over the lengths, by type."""
    names = {
        "reading, speedup": "reading_speed",
        "decoding, speedup": "decode_speed",
        "bytes of a slot": "slot_bytes",
        "loss of the next tokens, more": "nats_more",
    }
    values: dict[str, list[float]] = {}
    for one in rows:
        if one.metric in names:
            key = f"{names[one.metric]}_{one.contender.replace(' ', '_')}"
            values.setdefault(key, []).append(one.p50)
    return {key: float(np.mean(some)) for key, some in values.items()}


MEASUREMENT = Measurement[Table](_measure)
