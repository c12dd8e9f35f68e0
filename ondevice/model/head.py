"""The language-model head, after the last norm: logits of every token of the vocabulary, and losses under them."""

from __future__ import annotations

import torch
from torch import Tensor

from ondevice.kernels.likeliest import likeliest
from ondevice.kernels.packed import PackedWeight
from ondevice.kernels.projection import project
from ondevice.kernels.token_loss import token_loss


class Head:
    """The head of one model; decoders over its first layers share it.

    Args:
        weight: (vocab_size, hidden_size).
        softcap: logits are bent below it; None: they are not.
        scale: of the hidden states (Granite).
    """

    def __init__(self, weight: Tensor | PackedWeight, softcap: float | None, scale: float = 1.0) -> None:
        self._weight, self._softcap, self._scale = weight, softcap, scale

    def logits(self, hidden_states: Tensor) -> Tensor:
        """(..., hidden_size) after the final norm -> (..., vocab_size)."""
        logits = project(self._scaled(hidden_states), self._weight)
        return logits if self._softcap is None else self._softcap * torch.tanh(logits / self._softcap)

    def likeliest(self, hidden_states: Tensor) -> int:
        """The token with the largest logit; (1, hidden_size) after the final norm."""
        return likeliest(self._scaled(hidden_states), self._weight)

    @torch.inference_mode()
    def token_loss(self, hidden_states: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy (batch, n) float32 of targets (batch, n) int64 under the states that predict them."""
        return token_loss(self._scaled(hidden_states), targets, self._weight, softcap=self._softcap)

    def _scaled(self, hidden_states: Tensor) -> Tensor:
        return hidden_states if self._scale == 1.0 else hidden_states * self._scale
