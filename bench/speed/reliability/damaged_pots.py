"""Saved pots spoilt at random, by a seed: bytes of the file, values of the header, and tensors of all kinds.

What a hostile author writes has true checksums: it has to be read with care, and so most mutants have them.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ondevice.pot import saving

JSON_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 16, 255, 4096, 2**31 - 1, 2**31, 2**53, 2**63, -(2**63), 10**30, 0.5, -0.5,
    1e308, math.nan, math.inf, "", "x", "full", "foresight", "off", "auto", "1:1", "2:50%", "9" * 400, "attacker/model",
    "/etc", "\ud800", "\x00", "a" * 5000, [], [1], [[]], {}, {"x": 1}, {"": None},
]  # fmt: skip
WHOLE = [0, 1, -1, -2, -3, 2, 5, 100, 255, 2**15, 2**24, 2**31 - 1, -(2**31), 2**53, 2**62, -(2**63)]
REAL = [0.0, -0.0, 1e-30, 1.0, -1.0, 1e4, 1e30, -1e38, math.nan, math.inf, -math.inf]
TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
         torch.uint16, torch.bool, torch.float64, torch.complex64, torch.float8_e4m3fn]  # fmt: skip


class SavedPot:
    """A whole saved pot, in parts."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        self.header = saving.read_header(path)
        self.tensors = {name: one.clone() for name, one in saving.read_tensors(path, self.header["sha256"]).items()}
        del self.header["format"], self.header["sha256"]


def write_summed(path: Path, tensors: dict[str, Tensor], header: Any) -> None:
    """A file with true checksums; `header` may be anything."""
    whole = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    sums = {} if isinstance(header, str) else {"format": saving.FORMAT, "sha256": saving._checksums(whole)}
    text = header if isinstance(header, str) else json.dumps(sums | header)
    save_file(whole, path, {"ondevice": text, "ondevice.sha256": saving._sha256(text)})


def spoil(pot: SavedPot, path: Path, rng: random.Random) -> str:
    """Write one mutant; what was done to it."""
    kind = rng.choice((spoil_bytes, spoil_header, spoil_header, spoil_values, spoil_values, spoil_values, spoil_form))
    return kind(pot, path, rng)


def spoil_bytes(pot: SavedPot, path: Path, rng: random.Random) -> str:
    data = bytearray(pot.data)
    at, size = rng.randrange(len(data)), rng.choice((1, 1, 1, 8, 200))
    if rng.random() < 0.5:
        at = rng.randrange(8 + int.from_bytes(data[:8], "little"))
    what = rng.choice(("flip", "cut", "zero", "insert", "remove", "length"))
    match what:
        case "flip":
            for i in range(at, min(at + size, len(data))):
                data[i] ^= 1 << rng.randrange(8)
        case "cut":
            del data[at:]
        case "zero":
            data[at : at + size] = bytes(len(data[at : at + size]))
        case "insert":
            data[at:at] = rng.randbytes(size)
        case "remove":
            del data[at : at + size]
        case "length":
            data[:8] = rng.choice((0, 1, 2**20, 2**40, 2**63)).to_bytes(8, "little")
    path.write_bytes(data)
    return f"bytes: {what} {size} at {at}"


def spoil_header(pot: SavedPot, path: Path, rng: random.Random) -> str:
    header = json.loads(json.dumps(pot.header))
    what = spoil_json(header, rng)
    if rng.random() < 0.3:  # both places that say the same, as an author would
        for name in ("pot", "slim", "spec"):
            method = header.get("method")
            method = method.get(name) if name != "pot" and isinstance(method, dict) else method
            config = header["config"].get(name) if isinstance(header.get("config"), dict) else None
            if isinstance(method, dict) and isinstance(config, dict):
                method.update({key: config[key] for key in config.keys() & method.keys() - {"schedule", "model"}})
    write_summed(path, pot.tensors, header)
    return f"header: {what}"


def spoil_json(root: dict[str, Any], rng: random.Random) -> str:
    """Change one node of a JSON object; says which."""
    parent: Any = root
    where = []
    while True:
        key = rng.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
        where.append(str(key))
        if isinstance(parent[key], dict | list) and parent[key] and rng.random() < 0.85:
            parent = parent[key]
        else:
            break
    value = rng.choice(JSON_VALUES)
    what = rng.choice(("set", "set", "set", "set", "delete", "add", "nest"))
    match what:
        case "set":
            parent[key] = value
        case "delete":
            del parent[key]
        case "add" if isinstance(parent, dict):
            parent[rng.choice(("x", "problem", "loaded", "ask"))] = value
        case _:
            for _ in range(rng.choice((3, 40, 900))):
                value = [value]
            parent[key] = value
    return f"{what} {'.'.join(where)} {value!r:.40}"


def spoil_values(pot: SavedPot, path: Path, rng: random.Random) -> str:
    tensors = dict(pot.tensors)
    name = rng.choice([name for name, tensor in tensors.items() if tensor.numel()])
    tensor = tensors[name] = tensors[name].clone()
    flat = tensor.view(-1)
    at = rng.randrange(flat.numel())
    if tensor.dtype.is_floating_point:
        value: Any = rng.choice(REAL)
    else:
        info = torch.iinfo(tensor.dtype)
        value = rng.choice([n for n in (*WHOLE, int(flat[at]) + 1, int(flat[at]) - 1) if info.min <= n <= info.max])
    stop = at + rng.choice((1, 1, 1, flat.numel()))
    if tensor.dtype == torch.uint16:  # which torch fills in no other way
        flat.numpy()[at:stop] = value
    else:
        flat[at:stop] = value
    write_summed(path, tensors, pot.header)
    return f"values: {name}[{at}:{stop}] = {value}"


def spoil_form(pot: SavedPot, path: Path, rng: random.Random) -> str:
    tensors = dict(pot.tensors)
    name = rng.choice(list(tensors))
    tensor = tensors[name]
    what = rng.choice(("drop", "rename", "type", "shape", "shorter", "longer", "empty", "swap", "extra"))
    match what:
        case "drop":
            del tensors[name]
        case "rename":
            tensors[rng.choice((f"{name}x", "x", f"tier.{name}", "tokens.ids", ""))] = tensors.pop(name)
        case "type":
            tensors[name] = tensor.to(rng.choice(TYPES))
        case "shape":
            change: Callable[[Tensor], Tensor] = rng.choice(
                (lambda t: t.reshape(-1), lambda t: t[None], lambda t: t.transpose(0, -1) if t.dim() else t[None])
            )
            tensors[name] = change(tensor)
        case "shorter" | "longer" if tensor.dim() and 0 not in tensor.shape:
            dim = rng.randrange(tensor.dim())
            size = tensor.shape[dim]
            index = torch.arange(size - 1 if what == "shorter" else size + 1).clamp(max=size - 1)
            bits = tensor.view(torch.int16) if tensor.dtype.itemsize == 2 else tensor  # not all types can be indexed
            tensors[name] = bits.index_select(dim, index).view(tensor.dtype)
        case "empty":
            tensors[name] = torch.empty(rng.choice(((0,), (0, 2**40), (3, 0))), dtype=tensor.dtype)
        case "swap":
            other = rng.choice(list(tensors))
            tensors[name], tensors[other] = tensors[other], tensor
        case _:
            tensors["extra"] = tensor.clone()
    write_summed(path, tensors, pot.header)
    return f"form: {what} {name}"
