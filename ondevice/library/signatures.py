"""Signatures: one int8 vector for every 64 tokens of a document, by which an index finds the document of a question.

A vector is the mean of the keys that one layer made of those tokens, from the pot and from its host tier, so that
nothing is read again for it. Keys of all tokens have much in common; what they have is taken away, as measured once
for a model on a text of our own. Which layer: see `DEPTH`.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import resources
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ondevice.context import Context
from ondevice.errors import ModelError
from ondevice.files import READABLE, replacing
from ondevice.model.decoder import Decoder
from ondevice.model.loading.cache_folder import cache_dir
from ondevice.session.engine import Engine, Session

BLOCK = 64  # tokens of a vector
DEPTH = 0.17  # of the layers: layer 5 of SmolLM2-135M's 30 found most in a probe of 12 questions, made once
_TEXT, _TOKENS, _PASS = "lighthouse.md", 2048, 512
_SCALE = 320.0  # of a number of a vector of length 1 as int8; the few beyond 0.4 are cut
_KNOWN: WeakKeyDictionary[Decoder, tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]] = WeakKeyDictionary()


def dimensions_of(decoder: Decoder) -> int:
    """Numbers of a vector."""
    return decoder.parts.num_kv_heads * decoder.parts.head_dim


def layer_of(decoder: Decoder) -> int:
    """The layer whose keys are taken."""
    return round(DEPTH * (len(decoder.parts.layers) - 1))


def signature_of(engine: Engine, session: Session) -> npt.NDArray[np.int8]:
    """Vectors of a document that was read, (num_blocks, dimensions); zeros where nothing of a block was kept."""
    sums, counts = _sums(session.context, layer_of(engine.decoder))
    means = sums / counts.clamp_min(1)[..., None]
    is_there = (counts > 0).all(dim=-1)
    found = _packed(engine, means.flatten(1).numpy())
    found[~is_there.numpy()] = 0
    return found


def signature_of_question(engine: Engine, question: str) -> npt.NDArray[np.int8]:
    """The vector of a question, (dimensions,): it goes through the first layers of the model."""
    ids = engine.loaded.tokenizer.encode(question)[0]
    keys = _read_keys(engine.decoder, ids)
    return _packed(engine, keys.mean(dim=0, keepdim=True).flatten(1).numpy())[0]


def _packed(engine: Engine, means: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
    centre, spread = _frame(engine)
    vectors = (means - centre) / spread
    vectors /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)
    return np.clip(np.rint(_SCALE * vectors), -127, 127).astype(np.int8)


def _sums(context: Context, layer: int) -> tuple[Tensor, Tensor]:
    """Sums of keys before RoPE (num_blocks, num_kv_heads, head_dim), and how many (num_blocks, num_kv_heads)."""
    shape, pot = context.pot.shape, context.pot
    num_blocks = -(-context.tokens.num_tokens // BLOCK)
    sums = torch.zeros(num_blocks, shape.num_kv_heads, shape.head_dim)
    counts = torch.zeros(num_blocks, shape.num_kv_heads)
    last = -1  # token that lies in the tier: those after it lie in the pot alone, in every head
    if context.host is not None and context.host.tier.num_held(layer):
        tier = context.host.tier
        origin = tier.origin(layer).long()
        last = int(origin.max())
        keys = tier.keys(layer, slice(0, tier.num_held(layer))).transpose(0, 1)
        sums.index_add_(0, origin // BLOCK, keys)
        counts.index_add_(0, origin // BLOCK, torch.ones(origin.shape[0], shape.num_kv_heads))
    used = pot.num_cached[layer]
    keys, origins = pot.keys[layer][0, :, :used].float().cpu(), pot.origin[layer, 0, :, :used].long().cpu()
    for head in range(shape.num_kv_heads):
        at = (origins[head] > last).nonzero().squeeze(1)
        blocks = origins[head, at] // BLOCK
        sums[:, head].index_add_(0, blocks, keys[head, at])
        counts[:, head].index_add_(0, blocks, torch.ones(at.shape[0]))
    return sums, counts


@torch.inference_mode()
def _read_keys(decoder: Decoder, ids: npt.NDArray[np.int32]) -> Tensor:
    """Keys before RoPE that the layer makes of some tokens, (n, num_kv_heads, head_dim) float32."""
    layer = layer_of(decoder)
    first = decoder.first_layers(layer + 1)
    pot = first.new_pot(len(ids))
    for start in range(0, len(ids), _PASS):
        first.forward(first.ids(ids[start : start + _PASS]), pot)
    return pot.keys[layer][0, :, : len(ids)].float().cpu().transpose(0, 1)


def _frame(engine: Engine) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Mean and spread of the mean keys of a text, (dimensions,) each."""
    decoder = engine.decoder
    if decoder not in _KNOWN:
        path = _path(engine.loaded.fingerprint, layer_of(decoder))
        frame = _stored(path, dimensions_of(decoder))
        if frame is None:
            text = (resources.files("ondevice.assets") / _TEXT).read_text(encoding="utf-8")
            ids = engine.loaded.tokenizer.encode(text)[0][: min(_TOKENS, decoder.parts.max_positions // 2)]
            blocks = _read_keys(decoder, ids).flatten(1).numpy()
            means = np.stack([part.mean(axis=0) for part in np.array_split(blocks, max(len(blocks) // BLOCK, 2))])
            frame = means.mean(axis=0), np.maximum(means.std(axis=0), 1e-4)
            with (
                suppress(OSError, ModelError),  # then it is measured again the next time
                replacing(path, mode=READABLE, is_synced=False) as temporary,
                open(temporary, "wb") as file,
            ):
                np.save(file, np.stack(frame), allow_pickle=False)
        _KNOWN[decoder] = frame
    return _KNOWN[decoder]


def _stored(path: Path, dimensions: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None:
    try:
        stored = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    is_right = stored.shape == (2, dimensions) and stored.dtype == np.float32 and bool(np.isfinite(stored).all())
    return (stored[0], stored[1]) if is_right and bool((stored[1] > 0).all()) else None


def _path(fingerprint: str, layer: int) -> Path:
    return cache_dir() / "signature-frame" / f"{fingerprint}-{layer}.npy"
