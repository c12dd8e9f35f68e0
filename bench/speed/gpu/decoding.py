"""Decoding on a GPU: the decoder over a pot, with and without its graph, beside `generate` and what memory allows."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import torch
from ondevice.kernels.int4 import suits_int4
from ondevice.kernels.rounding import quantize_int4
from torch import nn

from ondevice.config import EngineConfig, KvDtype
from ondevice.model.decoder import Decoder
from ondevice.model.packed_modules import PackedLinear, replace_module
from ondevice.pot.memory_pot import MemoryPot
from ondevice.session.engine import Engine
from ondevice_bench.results.result import row
from ondevice_bench.speed.decode import bytes_per_token
from ondevice_bench.speed.gpu.ceilings import copy_bytes_per_second
from ondevice_bench.speed.gpu.run import LARGE, SMALL, Run, calls_of
from ondevice_bench.speed.random_model import random_model
from ondevice_bench.speed.reference import Reference

_CAPACITY, _CACHED = 4096, (1500, 3500)
_CODED: tuple[KvDtype, ...] = ("int8", "k8v4")
_NEW_TOKENS, _ROUNDS, _WARM = 64, 2, 4
_COUNTED = 4  # tokens whose calls are counted


def measure_decoding(run: Run) -> None:
    """Tokens per second from a pot, whose tokens the host reads one by one, of an 8B and a 1B shape."""
    bandwidth = copy_bytes_per_second(run.device)
    names = (LARGE, SMALL) if torch.cuda.mem_get_info(run.device)[0] > 26e9 else (SMALL,)
    for name in names:
        engine = Engine(random_model(name, device=run.device, dtype=torch.bfloat16), EngineConfig(device="cuda"))
        for num_cached in _CACHED:
            if run.has_time:
                _measure(run, name, engine, num_cached, bandwidth)
            else:
                run.leave_out(f"decoding of {name} after {num_cached} tokens", "no time is left")
        for kv_dtype in _CODED:
            _measure_coded(run, name, engine, kv_dtype)
        try:
            if run.has_time:
                _measure_int4(run, name, engine)
            else:
                run.leave_out(f"decoding of {name} with weights in 4 bits", "no time is left")
        except Exception as failure:  # these products have run on no GPU yet: the figures so far are to stay
            run.leave_out(f"decoding of {name} with weights in 4 bits", f"{type(failure).__name__}: {failure}")
        del engine
        torch.cuda.empty_cache()


def _measure(run: Run, name: str, engine: Engine, num_cached: int, bandwidth: float) -> None:
    case, loaded = {"model": name, "cached tokens": num_cached}, engine.loaded
    ids = torch.randint(0, 256, (1, num_cached + 1), device=run.device)
    bytes_read = bytes_per_token(engine, num_cached + _NEW_TOKENS // 2)
    contenders = {"pot": engine.decoder, "pot, call by call": Decoder(loaded.model, has_fast_step=False)}
    tokens: dict[str, list[int]] = {}
    for contender, decoder in contenders.items():
        pot, speeds, tokens[contender] = _rounds(decoder, ids)
        run.add([row(contender, case, "decoding speed", "tokens/s", speeds)])
        if num_cached == _CACHED[0]:
            with pot.savepoint():
                calls = calls_of(partial(_decode, decoder, pot, ids, _COUNTED))
            run.add([row(contender, case, "launches a token", "", [calls.launches / _COUNTED])])
            run.add([row(contender, case, "waits a token", "", [calls.waits / _COUNTED])])
        run.add([row(contender, case, "share of bandwidth", "", [speeds[-1] * bytes_read / bandwidth])])
        del pot
    pot = engine.decoder.new_pot(num_cached)
    engine.decoder.forward(ids[:, :-1], pot)
    _decode(engine.decoder, pot, ids, _WARM, overwrites=True)
    speeds = [_NEW_TOKENS / _decode(engine.decoder, pot, ids, _NEW_TOKENS, overwrites=True)[0] for _ in range(_ROUNDS)]
    run.add([row("pot, over old slots", case, "decoding speed", "tokens/s", speeds)])
    del pot
    agreement = [one == other for one, other in zip(*tokens.values(), strict=True)]
    run.add([row("pot", case, "same tokens as call by call", "share", [sum(agreement) / len(agreement)])])
    reference = Reference(loaded)
    cache = reference.fill(ids)
    reference.generate(ids, cache, _WARM)
    speeds = [_NEW_TOKENS / reference.generate(ids, cache, _NEW_TOKENS)[0] for _ in range(_ROUNDS)]
    run.add([row("transformers generate", case, "decoding speed", "tokens/s", speeds)])
    speed = {one.contender: one.p50 for one in run.rows if one.case == case and one.metric == "decoding speed"}
    suffix = f"{'8b' if name == LARGE else '1b'}_{num_cached}"
    run.summary[f"decode_ratio_vs_generate_{suffix}"] = speed["pot"] / speed["transformers generate"]
    run.summary[f"decode_ratio_vs_call_by_call_{suffix}"] = speed["pot"] / speed["pot, call by call"]


def _measure_coded(run: Run, name: str, engine: Engine, kv_dtype: KvDtype) -> None:
    """The same from a quantised pot, beside one token after the other without a graph."""
    num_cached, case = _CACHED[-1], {"model": name, "cached tokens": _CACHED[-1]}
    if not run.has_time:
        run.leave_out(f"decoding of {name} from a pot in {kv_dtype}", "no time is left")
        return
    ids = torch.randint(0, 256, (1, num_cached + 1), device=run.device)
    slow = Decoder(engine.loaded.model, has_fast_step=False)
    tokens = list[list[int]]()
    for contender, decoder in ((f"pot, {kv_dtype}", engine.decoder), (f"pot, {kv_dtype}, call by call", slow)):
        _, speeds, written = _rounds(decoder, ids, kv_dtype)
        tokens.append(written)
        run.add([row(contender, case, "decoding speed", "tokens/s", speeds)])
    agreement = [one == other for one, other in zip(*tokens, strict=True)]
    shared = sum(agreement) / len(agreement)
    run.add([row(f"pot, {kv_dtype}", case, "same tokens as call by call", "share", [shared])])
    speed = {one.contender: one.p50 for one in run.rows if one.case == case and one.metric == "decoding speed"}
    if "pot" in speed:
        suffix = f"{'8b' if name == LARGE else '1b'}_{num_cached}"
        run.summary[f"decode_ratio_{kv_dtype}_vs_model_{suffix}"] = speed[f"pot, {kv_dtype}"] / speed["pot"]


def _measure_int4(run: Run, name: str, engine: Engine) -> None:
    """The same model with its weights rounded to four bits, which is also how long that takes."""
    num_cached, began = _CACHED[0], time.perf_counter()
    _in_four_bits_(engine.loaded.model)
    decoder = Decoder(engine.loaded.model)
    torch.cuda.synchronize()
    case, contender = {"model": name, "cached tokens": num_cached}, "pot, weights in 4 bits"
    run.add([row(contender, case, "time to round", "s", [time.perf_counter() - began])])
    ids = torch.randint(0, 256, (1, num_cached + 1), device=run.device)
    _, speeds, _ = _rounds(decoder, ids)
    run.add([row(contender, case, "decoding speed", "tokens/s", speeds)])
    speed = {one.contender: one.p50 for one in run.rows if one.case == case and one.metric == "decoding speed"}
    if "pot" in speed:
        suffix = f"{'8b' if name == LARGE else '1b'}_{num_cached}"
        run.summary[f"decode_speedup_int4_{suffix}"] = speed[contender] / speed["pot"]


def _rounds(
    decoder: Decoder, ids: torch.Tensor, kv_dtype: KvDtype = "model"
) -> tuple[MemoryPot, list[float], list[int]]:
    """A pot that has read all ids but the last, tokens a second of each round from there, and what was written."""
    pot = decoder.allocate(decoder.pot_shape(_CAPACITY, kv_dtype=kv_dtype))
    speeds, tokens = list[float](), list[int]()
    decoder.forward(ids[:, :-1], pot)
    with pot.savepoint():
        _decode(decoder, pot, ids, _WARM)
    for _ in range(_ROUNDS):
        with pot.savepoint():
            seconds, tokens = _decode(decoder, pot, ids, _NEW_TOKENS)
        speeds.append(_NEW_TOKENS / seconds)
    return pot, speeds, tokens


def _decode(
    decoder: Decoder, pot: MemoryPot, ids: torch.Tensor, num_tokens: int, *, overwrites: bool = False
) -> tuple[float, list[int]]:
    """Seconds, and greedy tokens after the last of `ids`; each takes a free slot, or `overwrites` one after another."""
    token, tokens = int(ids[0, -1]), list[int]()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for number in range(num_tokens):
        if overwrites:
            pot.victims = slice(4 + number, 5 + number)
        out = decoder.forward(decoder.ids([token]), pot)
        token = decoder.head.likeliest(out.hidden_states[:, -1])
        tokens.append(token)
    return time.perf_counter() - began, tokens


def _in_four_bits_(model: Any) -> None:
    """Round the projections of a causal LM in bfloat16 to four bits for a GPU, where it is; the head stays."""
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear and name != "lm_head" and suits_int4(module.out_features, module.in_features):
            bias = None if module.bias is None else module.bias.detach()
            replace_module(model, name, PackedLinear(quantize_int4(module.weight.detach()), bias))
