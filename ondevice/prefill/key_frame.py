"""The mean key of each head of a model, and its spread: measured once, on a text of our own, for quantised pots.

Some channels of the keys are large whatever the text says, in models whose projections have a bias many times the rest;
their mean and spread differ little from text to text. What was measured is kept beside the converted weights.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import resources
from pathlib import Path
from weakref import WeakKeyDictionary

import safetensors
import torch
from safetensors.torch import load_file, save_file

from ondevice.errors import ModelError
from ondevice.files import READABLE, replacing
from ondevice.kernels.codes import Frame
from ondevice.model.decoder import Decoder
from ondevice.model.loading.cache_folder import cache_dir
from ondevice.model.tokenizer import Tokenizer

_TEXT = "lighthouse.md"
_TOKENS = 512  # a frame of 32 makes the errors of scores twice as large
_LEAST = 1e-2  # of a head's mean spread: a channel that stood still here may move elsewhere
_KNOWN: WeakKeyDictionary[Decoder, Frame] = WeakKeyDictionary()


def key_frame(decoder: Decoder, tokenizer: Tokenizer, fingerprint: str) -> Frame:
    """Mean and spread of each channel of the keys before RoPE, (num_layers, num_kv_heads, head_dim) on the CPU.

    Where it is not known, it is measured: that reads some 500 tokens in a pot of its own.

    Args:
        fingerprint: of the model.
    """
    frame = known_frame(decoder, fingerprint)
    if frame is None:
        frame = _KNOWN[decoder] = _measured(decoder, tokenizer)
        with suppress(OSError, ModelError, safetensors.SafetensorError):  # then it is measured again the next time
            _store(fingerprint, frame)
    return frame


def known_frame(decoder: Decoder, fingerprint: str) -> Frame | None:
    """The result of `key_frame`, if that was measured before; None elsewhere."""
    if decoder not in _KNOWN:
        try:
            stored = Frame(**load_file(_path(fingerprint)))
        except (OSError, TypeError, ModelError, safetensors.SafetensorError):
            return None
        parts = decoder.parts
        size = (len(parts.layers), parts.num_kv_heads, parts.head_dim)
        if any(part.shape != size or part.dtype != torch.float32 or not part.isfinite().all() for part in stored):
            return None
        if not bool((stored.spread > 0).all()):
            return None
        _KNOWN[decoder] = stored
    return _KNOWN[decoder]


def _measured(decoder: Decoder, tokenizer: Tokenizer) -> Frame:
    text = (resources.files("ondevice.assets") / _TEXT).read_text(encoding="utf-8")
    ids = tokenizer.encode(text)[0][: min(_TOKENS, decoder.parts.max_positions // 2)]
    pot = decoder.new_pot(len(ids), key_rotation="on-read")
    decoder.forward(decoder.ids(ids), pot)
    keys = torch.stack([keys[0] for keys in pot.keys]).float().cpu()
    mean, spread = keys.mean(dim=2), keys.std(dim=2)
    least = (_LEAST * spread.mean(dim=-1, keepdim=True)).clamp_min(1e-6)
    # Rounded to few digits, so that machines that sum in another order come to the same frame.
    return Frame(*(part.bfloat16().float() for part in (mean, spread.maximum(least))))


def _store(fingerprint: str, frame: Frame) -> None:
    with replacing(_path(fingerprint), mode=READABLE, is_synced=False) as temporary:
        save_file(frame._asdict(), temporary)


def _path(fingerprint: str) -> Path:
    return cache_dir() / "key-frame" / f"{fingerprint}.safetensors"
