"""Measurements made once for a model, on a text of our own: kept in this process, and beside the converted weights."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ondevice.errors import ModelError
from ondevice.files import READABLE, asset, replacing
from ondevice.model.decoder import Decoder
from ondevice.model.loading.cache_folder import cache_dir
from ondevice.model.tokenizer import Tokenizer

_T = TypeVar("_T", bound=tuple[Any, ...])
_TEXT = "lighthouse.md"


class MeasuredOnce(Generic[_T]):
    """A measurement of models.

    Args:
        folder: of its files.
        kind: a named tuple of tensors; it is not stored where one of them is None.
        measure: reads the beginning of the text in a pot of its own.
        suits: whether one that was stored can be that of a model.
    """

    def __init__(
        self,
        folder: str,
        kind: type[_T],
        measure: Callable[[Decoder, Tokenizer], _T],
        suits: Callable[[_T, Decoder], bool],
    ) -> None:
        self._folder, self._kind, self._measure, self._suits = folder, kind, measure, suits
        self._known: WeakKeyDictionary[Decoder, _T] = WeakKeyDictionary()

    def take(self, decoder: Decoder, tokenizer: Tokenizer, fingerprint: str) -> _T:
        """The measurement of a model with that fingerprint; made now, where it is not known."""
        known = self.known(decoder, fingerprint)
        if known is None:
            known = self._known[decoder] = self._measure(decoder, tokenizer)
            if all(part is not None for part in known):
                # Where it cannot be kept it is measured again the next time.
                with (
                    suppress(OSError, ModelError, SafetensorError),
                    replacing(self._path(fingerprint), mode=READABLE, is_synced=False) as temporary,
                ):
                    save_file(known._asdict(), temporary)  # type: ignore[attr-defined]  # a named tuple
        return known

    def known(self, decoder: Decoder, fingerprint: str) -> _T | None:
        """The measurement, if it was made before; None elsewhere."""
        if decoder not in self._known:
            try:
                stored = self._kind(**load_file(self._path(fingerprint)))
            except (OSError, ValueError, TypeError, ModelError, SafetensorError):
                return None
            if not self._suits(stored, decoder):
                return None
            self._known[decoder] = stored
        return self._known[decoder]

    def _path(self, fingerprint: str) -> Path:
        return cache_dir() / self._folder / f"{fingerprint}.safetensors"


def first_ids(decoder: Decoder, tokenizer: Tokenizer, num_tokens: int) -> npt.NDArray[np.int32]:
    """Ids (n,) of the text's beginning, no more than half of the model's positions."""
    return tokenizer.encode(asset(_TEXT))[0][: min(num_tokens, decoder.parts.max_positions // 2)]
