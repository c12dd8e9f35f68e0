"""SlimInfer: which tokens of a forward pass go on to deeper layers.

The tokens of the document that a pass brings are cut into blocks. After the attention of each slim layer the blocks
that matter least to the last queries are dropped, hidden states and all; layers up to and including that one have
stored their keys, deeper ones never see them. In a stream the last queries are the catalyst's, and beyond the paper
a share of the places goes to the blocks with the rarest words first (`SlimConfig.rarity`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ondevice.config import SlimConfig, SlimLayer
from ondevice.errors import ConfigError
from ondevice.kernels.block_score import best_unit, block_scores

AUTO = ((1 / 3, 0.5), (2 / 3, 0.25))  # relative depth, and share of a pass that goes on


def slim_steps(config: SlimConfig, num_layers: int) -> tuple[SlimLayer, ...]:
    """The steps for a model of `num_layers` layers; none when pruning is off.

    `auto` prunes at the relative depths of the paper, by shares that lost nothing in what was measured on the default
    model; earlier layers were faster there and lost nothing either, but only that one small model was tried.

    Raises:
        ConfigError: the schedule names a layer that the model does not have.
    """
    steps = config.steps()
    if steps is None:
        return tuple(SlimLayer(max(1, round(depth * num_layers)), share=share) for depth, share in AUTO)
    if steps and steps[-1].layer >= num_layers:
        raise ConfigError(
            f"{{slim.schedule}} prunes at layer {steps[-1].layer} and the model has {num_layers}",
            fix=f"Name layers from 1 to {num_layers - 1}.",
        )
    return steps


def stored_tokens(steps: Sequence[SlimLayer], config: SlimConfig, num_tokens: int, num_layers: int) -> tuple[int, ...]:
    """Tokens of the document that each layer stores at most, of `num_tokens` in one forward pass (Table 2)."""
    stored, sizes = num_tokens, []
    for layer in range(1, num_layers + 1):
        sizes.append(stored)
        for step in steps:
            if step.layer == layer:
                stored = min(stored, _num_blocks(step.budget(num_tokens), config) * config.block_size)
    return tuple(sizes)


def _num_blocks(budget: int, config: SlimConfig) -> int:
    return max(round(budget / config.block_size), 1)


class Pruning:
    """The choices of one forward pass.

    Args:
        steps: from `slim_steps`.
        config: sizes of blocks, units and window.
        num_tokens: tokens of the document in the pass.
        num_tail: tokens after them, which always stay: the catalyst or the question.
        is_first: whether the pass begins the document; its first block then holds the sinks and always stays.
        rarity: (num_tokens,) float32, how rare each token's word is; None: the score alone decides.
    """

    def __init__(
        self,
        steps: Sequence[SlimLayer],
        config: SlimConfig,
        num_tokens: int,
        num_tail: int,
        *,
        is_first: bool,
        rarity: Tensor | None = None,
    ) -> None:
        # Without a catalyst the window is the end of the document, which has to stay for the next slim layer.
        self._num_tail = num_tail or min(config.window, num_tokens)
        self._num_tokens = num_tokens + num_tail - self._num_tail
        self._budgets = {step.layer - 1: step.budget(self._num_tokens) for step in steps}
        self._config, self._is_first = config, is_first
        self._rarity: Tensor | None = None
        if rarity is not None and config.rarity > 0 and self._num_tokens > 0:
            self._rarity = best_unit(
                rarity[None, : self._num_tokens], block_size=config.block_size, unit_size=config.unit_size
            )[0]

    def survivors(self, layer: int, query: Tensor, keys: Tensor) -> Tensor | None:
        """Indices of the tokens that go on from this layer to the next one; None: all of them.

        Args:
            layer: counted from 0.
            query: (1, heads, n, dim), after RoPE, of the tokens that reached this layer.
            keys: (1, kv_heads, n, dim), after RoPE, of the same tokens.

        Returns:
            Their indices among these n, rising, int64.
        """
        size, num_active = self._config.block_size, query.shape[2] - self._num_tail
        num_blocks = -(-num_active // size)
        num_kept = _num_blocks(self._budgets.get(layer, num_active), self._config)
        if layer not in self._budgets or num_kept >= num_blocks:
            return None
        scores = block_scores(
            query[:, :, -self._config.window :],
            keys[:, :, :num_active],
            block_size=size,
            unit_size=self._config.unit_size,
        )[0]
        if self._rarity is not None:
            # As novelty under compression does with tokens: raised above every score, the rarest fill their share.
            rarest = self._rarity.topk(round(self._config.rarity * num_kept)).indices
            scores[rarest] += scores.max() - scores.min() + 1.0
        if self._is_first:
            scores[0] = torch.inf
        kept = scores.topk(num_kept).indices.sort().values
        if self._rarity is not None:
            self._rarity = self._rarity[kept]
        tokens = (kept[:, None] * size + torch.arange(size, device=kept.device)).flatten()
        tail = torch.arange(num_active, query.shape[2], device=kept.device)
        return torch.cat((tokens[tokens < num_active], tail))
