"""How many of a pot's slots each layer of a model needs, and each head: measured once, on a text of our own.

Heads differ much in how many tokens they look at, and little from text to text: what a head would need to repeat one
text it needs for another. So the slots are shared out before a document is read, and stay. What was measured is kept
beside the converted weights.
"""

from __future__ import annotations

import json
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
_KEPT = 1 / 6  # of all slots: those whose heads are counted
_LEAST = 0.05  # of an even share, so that no head is left with nothing
_KNOWN: WeakKeyDictionary[Decoder, Tensor] = WeakKeyDictionary()


def head_need(decoder: Decoder, tokenizer: Tokenizer, fingerprint: str) -> Tensor:
    """The share of each KV head among the slots that a text is repeated from, 1 on average.

    Where it is not known, it is measured: that reads and repeats some 1,000 tokens in a pot of its own.

    Args:
        fingerprint: of the model.

    Returns:
        (num_layers, num_kv_heads) float32, on the CPU.
    """
    need = known_need(decoder, fingerprint)
    if need is None:
        need = _KNOWN[decoder] = _measured(decoder, tokenizer)
        with suppress(OSError, ModelError):  # then it is measured again the next time
            _store(fingerprint, need)
    return need


def known_need(decoder: Decoder, fingerprint: str) -> Tensor | None:
    """What `head_need` gives, where that was measured before; None elsewhere."""
    if decoder not in _KNOWN:
        try:
            stored = torch.tensor(json.loads(_path(fingerprint).read_text(encoding="utf-8")), dtype=torch.float32)
        except (OSError, ValueError, TypeError, ModelError):
            return None
        if stored.shape != (len(decoder.parts.layers), decoder.parts.num_kv_heads) or not bool((stored > 0).all()):
            return None
        _KNOWN[decoder] = stored / stored.mean()
    return _KNOWN[decoder]


def _measured(decoder: Decoder, tokenizer: Tokenizer) -> Tensor:
    text = (resources.files("ondevice.assets") / _TEXT).read_text(encoding="utf-8")
    ids = tokenizer.encode(text)[0][: min(_TOKENS, decoder.parts.max_positions // 2)]
    pot = decoder.new_pot(len(ids) + _ROOM)
    for start in range(0, len(ids), _PASS):
        decoder.forward(decoder.ids(ids[start : start + _PASS]), pot)
    peaks = torch.stack(repeat_peaks(decoder, pot, ids, tokenizer))[:, 0].cpu()
    is_best = torch.zeros(peaks.numel(), dtype=torch.bool)
    is_best[peaks.flatten().topk(round(_KEPT * peaks.numel())).indices] = True
    counts = is_best.view_as(peaks).sum(dim=-1).float()
    shares = (counts / counts.mean()).clamp_min(_LEAST)
    return shares / shares.mean()


def _store(fingerprint: str, need: Tensor) -> None:
    with replacing(_path(fingerprint), mode=READABLE, is_synced=False) as temporary:
        temporary.write_text(json.dumps(need.tolist()), encoding="utf-8")


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
