"""The mean key of each head of a model, and its spread: measured once, on a text of our own, for quantised pots.

Some channels of the keys are large whatever the text says, in models whose projections have a bias many times the rest;
their mean and spread differ little from text to text.
"""

from __future__ import annotations

import torch

from ondevice.kernels.codes import Frame
from ondevice.model.decoder import Decoder
from ondevice.model.tokenizer import Tokenizer
from ondevice.prefill.measured_once import MeasuredOnce, first_ids

_TOKENS = 512  # a frame of 32 makes the errors of scores twice as large
_LEAST = 1e-2  # of a head's mean spread: a channel that stood still here may move elsewhere


def _measured(decoder: Decoder, tokenizer: Tokenizer) -> Frame:
    """Mean and spread of each channel of the keys before RoPE, (layers, kv_heads, dim) on the CPU."""
    ids = first_ids(decoder, tokenizer, _TOKENS)
    pot = decoder.new_pot(len(ids), key_rotation="on-read")
    decoder.forward(decoder.ids(ids), pot)
    keys = torch.stack([keys[0] for keys in pot.keys]).float().cpu()
    mean, spread = keys.mean(dim=2), keys.std(dim=2)
    least = (_LEAST * spread.mean(dim=-1, keepdim=True)).clamp_min(1e-6)
    # Rounded to few digits, so that machines that sum in another order come to the same frame.
    return Frame(*(part.bfloat16().float() for part in (mean, spread.maximum(least))))


def _suits(frame: Frame, decoder: Decoder) -> bool:
    parts = decoder.parts
    size = parts.kv_size
    is_sound = all(part.shape == size and part.dtype == torch.float32 and part.isfinite().all() for part in frame)
    return is_sound and bool((frame.spread > 0).all())


_FRAMES = MeasuredOnce("key-frame", Frame, _measured, _suits)
key_frame, known_frame = _FRAMES.take, _FRAMES.known
