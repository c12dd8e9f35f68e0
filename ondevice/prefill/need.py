"""How many of a pot's slots each layer of a model needs, and each head: measured once, on a text of our own.

Heads differ much in how many tokens they look at, and little from text to text: what a head would need to repeat one
text it needs for another. So the slots are shared out before a document is read, and stay. How they differ depends on
how much is kept: the fewer slots there are, the larger is the part of the few heads that copy. So what is measured is
a table by the part that is kept. It is stored beside the converted weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ondevice.errors import ModelError
from ondevice.files import READABLE, replacing
from ondevice.model.decoder import Decoder
from ondevice.model.loading.cache_folder import cache_dir
from ondevice.model.tokenizer import Tokenizer
from ondevice.prefill.repeat import repeat_peaks

_TEXT = "lighthouse.md"
_TOKENS, _ROOM, _PASS = 1024, 640, 512  # of half the text, or of twice as much, shares differ by about one part in ten
_PARTS = tuple(2 ** (-step / 2) for step in range(1, 13))  # of all slots that are kept: those whose heads are counted
_LEAST = 0.05  # of an even share, so that no head is left with nothing
_KNOWN: WeakKeyDictionary[Decoder, Tensor] = WeakKeyDictionary()


def head_need(decoder: Decoder, tokenizer: Tokenizer, fingerprint: str, part: float) -> Tensor:
    """The share of each KV head among the slots that a text is repeated from, 1 on average.

    Where it is not known, it is measured: that reads and repeats some 1,000 tokens in a pot of its own.

    Args:
        fingerprint: of the model.
        part: of all tokens of a document that a head keeps on average, above 0.

    Returns:
        (num_layers, num_kv_heads) float32, on the CPU.
    """
    table = known_need(decoder, fingerprint)
    if table is None:
        table = _KNOWN[decoder] = _measured(decoder, tokenizer)
        with suppress(OSError, ModelError):  # then it is measured again the next time
            _store(fingerprint, table)
    # Between two rows of the table in proportion to the logarithm of the part.
    at = min(max(-2 * math.log2(part) - 1, 0.0), len(_PARTS) - 1.0)
    below = min(int(at), len(_PARTS) - 2)
    need = torch.lerp(table[below], table[below + 1], at - below)
    shares = (need / need.mean()).clamp_min(_LEAST)
    return shares / shares.mean()


def known_need(decoder: Decoder, fingerprint: str) -> Tensor | None:
    """What was measured for `head_need` before, (parts, num_layers, num_kv_heads) float32; None: nothing was."""
    if decoder not in _KNOWN:
        try:
            stored = torch.tensor(json.loads(_path(fingerprint).read_text(encoding="utf-8")), dtype=torch.float32)
        except (OSError, ValueError, TypeError, ModelError):
            return None
        size = len(_PARTS), len(decoder.parts.layers), decoder.parts.num_kv_heads
        if stored.shape != size or not bool((stored >= 0).all()) or not bool(stored.mean(dim=(1, 2)).all()):
            return None
        _KNOWN[decoder] = stored
    return _KNOWN[decoder]


def _measured(decoder: Decoder, tokenizer: Tokenizer) -> Tensor:
    """The slots of each head among the best `_PARTS` of all, (parts, num_layers, num_kv_heads) float32."""
    text = (resources.files("ondevice.assets") / _TEXT).read_text(encoding="utf-8")
    ids = tokenizer.encode(text)[0][: min(_TOKENS, decoder.parts.max_positions // 2)]
    pot = decoder.new_pot(len(ids) + _ROOM)
    for start in range(0, len(ids), _PASS):
        decoder.forward(decoder.ids(ids[start : start + _PASS]), pot)
    peaks = torch.stack(repeat_peaks(decoder, pot, ids, tokenizer))[:, 0].cpu()
    best_first = peaks.flatten().argsort(descending=True, stable=True)
    counts = []
    for part in _PARTS:
        is_kept = torch.zeros(peaks.numel())
        is_kept[best_first[: max(round(part * peaks.numel()), 1)]] = 1.0
        counts.append(is_kept.view_as(peaks).sum(dim=-1))
    return torch.stack(counts)


def _store(fingerprint: str, table: Tensor) -> None:
    with replacing(_path(fingerprint), mode=READABLE, is_synced=False) as temporary:
        temporary.write_text(json.dumps(table.int().tolist()), encoding="utf-8")


def _path(fingerprint: str) -> Path:
    return _folder() / f"{fingerprint}.json"


def _folder() -> Path:
    return cache_dir() / "head-need"


def share_out(need: Sequence[float], num_slots: int, low: int, high: int) -> tuple[int, ...]:
    """Whole numbers in proportion to `need`, each between two bounds, `num_slots` together.

    The bounds leave room for that: low * n <= num_slots <= high * n.
    """
    assert low * len(need) <= num_slots <= high * len(need)
    scale_low, scale_high = 0.0, num_slots / min(need) + high / min(need)
    for _ in range(100):  # the sum grows with the scale
        scale = (scale_low + scale_high) / 2
        if sum(_bounded(one * scale, low, high) for one in need) <= num_slots:
            scale_low = scale
        else:
            scale_high = scale
    shares = [_bounded(one * scale_low, low, high) for one in need]
    # What rounding leaves goes to those that need most and have room for it.
    for index in sorted(range(len(need)), key=need.__getitem__, reverse=True):
        more = min(num_slots - sum(shares), high - shares[index])
        shares[index] += more
    return tuple(shares)


def _bounded(number: float, low: int, high: int) -> int:
    return int(min(max(number + 1e-6, low), high))
