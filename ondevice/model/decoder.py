"""Our own loop over the layers of a loaded model, reading from and writing to a memory pot.

Every pass appends keys and values to the pot in place. With nothing switched on its logits equal those of
transformers' own forward pass to float tolerance: that is the first test of the project.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ondevice.kernels.attention import attention, attention_mass
from ondevice.kernels.rope import rotate, signed_sine
from ondevice.model.families import LayerParts, ModelParts, model_parts
from ondevice.pot.memory_pot import PROMPT, MemoryPot, PotShape


@dataclass(frozen=True, slots=True)
class Pass:
    """What one forward pass gives back.

    Attributes:
        hidden_states: (batch, n, hidden_size) after the final norm, for every token of the pass.
        mass: for each layer (batch, num_kv_heads, num_cached), float32: the attention that the observed queries
            paid to each slot that stays; empty when nothing was observed.
    """

    hidden_states: Tensor
    mass: list[Tensor]


class Decoder:
    """Forward passes of one model over memory pots.

    Args:
        model: a transformers causal language model of a supported family, in eval mode.
    """

    def __init__(self, model: nn.Module) -> None:
        self.parts: ModelParts = model_parts(model)
        parameter = next(model.parameters())
        self.device = parameter.device
        self.dtype = model.model.norm.weight.dtype  # quantised weights have integer types; the norms never do

    def new_pot(self, capacity: int, batch: int = 1) -> MemoryPot:
        """Allocate an empty pot that fits this model."""
        parts = self.parts
        shape = PotShape(len(parts.layers), parts.num_kv_heads, parts.head_dim, capacity, batch)
        return MemoryPot(shape, dtype=self.dtype, device=self.device)

    @torch.inference_mode()
    def forward(
        self,
        input_ids: Tensor,
        pot: MemoryPot,
        *,
        origin: Tensor | int = PROMPT,
        num_transient: int = 0,
        num_observed: int = 0,
    ) -> Pass:
        """Run tokens through the model: attend to [pot ; tokens], store their keys and values in the pot.

        Args:
            input_ids: (batch, n) int64.
            pot: takes the tokens; needs n free slots.
            origin: document tokens (n - num_transient,) int32 of what stays, or `PROMPT`.
            num_transient: last tokens that are computed but do not stay in the pot (the catalyst).
            num_observed: last queries whose attention is summed into `Pass.mass`.
        """
        num_tokens = input_ids.shape[1]
        hidden = self.parts.embed(input_ids)
        angles = _Angles(self.parts, hidden, num_tokens)
        masks = _Masks(num_tokens, self.parts.num_heads // self.parts.num_kv_heads, pot, self.dtype, self.device)
        mass: list[Tensor] = []
        for index, layer in enumerate(self.parts.layers):
            cos, sin = angles.at(pot.next_position[index])
            query, keys, rotated, values = self._project(layer, hidden, cos, sin)
            seen_keys, seen_values = pot.append(index, keys, rotated, values)
            mask = masks.at(index, layer.sliding_window)
            out = attention(
                query,
                seen_keys,
                seen_values,
                mask=mask,
                scale=self.parts.scale,
                softcap=self.parts.attention_softcap,
            )
            if num_observed:
                mass.append(self._observe(query, seen_keys, mask, num_observed, num_transient))
            hidden = self._finish(layer, hidden, out)
        pot.commit(num_tokens - num_transient, origin, num_transient)
        return Pass(self.parts.norm(hidden), mass)

    def logits(self, hidden_states: Tensor) -> Tensor:
        """(..., hidden_size) after the final norm -> (..., vocab_size)."""
        return self.parts.lm_head(hidden_states)

    def rotate_keys(self, keys: Tensor, positions: Tensor) -> Tensor:
        """Apply RoPE to keys (batch, num_kv_heads, n, head_dim) at their own positions (batch, num_kv_heads, n)."""
        batch, num_heads, n = positions.shape
        cos, sin = self.parts.rotary(keys, positions.reshape(batch * num_heads, n).long())
        shape = (batch, num_heads, n, cos.shape[-1])
        return rotate(keys, cos.view(shape), signed_sine(sin).view(shape))

    def _project(self, layer: LayerParts, hidden: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        """Hidden states -> query after RoPE, keys before and after RoPE, values; each (batch, heads, n, head_dim)."""
        parts = self.parts
        batch, num_tokens, _ = hidden.shape
        num_heads, num_kv_heads = parts.num_heads, parts.num_kv_heads
        qkv = layer.qkv(layer.input_norm(hidden)).view(batch, num_tokens, -1, parts.head_dim).transpose(1, 2)
        query_keys, values = qkv.split((num_heads + num_kv_heads, num_kv_heads), dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            query, keys = query_keys.split((num_heads, num_kv_heads), dim=1)
            query_keys = torch.cat((layer.q_norm(query), layer.k_norm(keys)), dim=1)
        query, rotated = rotate(query_keys, cos, sin).split((num_heads, num_kv_heads), dim=1)
        return query, query_keys[:, num_heads:], rotated, values

    def _finish(self, layer: LayerParts, hidden: Tensor, out: Tensor) -> Tensor:
        """Output projection and feed-forward network with their residuals."""
        out = layer.out(out.transpose(1, 2).flatten(2))
        if layer.post_attention_norm is not None:
            out = layer.post_attention_norm(out)
        hidden = out.add_(hidden)
        gate, up = layer.gate_up(layer.mlp_norm(hidden)).chunk(2, dim=-1)
        out = layer.down(layer.activation(gate).mul_(up))
        if layer.post_mlp_norm is not None:
            out = layer.post_mlp_norm(out)
        return out.add_(hidden)

    def _observe(
        self, query: Tensor, keys: Tensor, mask: Tensor | None, num_observed: int, num_transient: int
    ) -> Tensor:
        batch, num_heads, num_queries, _ = query.shape
        groups = num_heads // keys.shape[1]
        if mask is not None:
            heads = mask.shape[1]
            mask = mask.view(mask.shape[0], heads, groups, num_queries, -1)[:, :, :, -num_observed:].flatten(2, 3)
        mass = attention_mass(
            query[:, :, -num_observed:],
            keys,
            mask=mask,
            scale=self.parts.scale,
            softcap=self.parts.attention_softcap,
        )
        return mass[..., : keys.shape[2] - num_transient]


class _Angles:
    """Cosines and signed sines of the new tokens' positions, computed once per distinct first position."""

    def __init__(self, parts: ModelParts, hidden: Tensor, num_tokens: int) -> None:
        self.parts, self.hidden, self.num_tokens = parts, hidden, num_tokens
        self.known: dict[int, tuple[Tensor, Tensor]] = {}

    def at(self, first: int) -> tuple[Tensor, Tensor]:
        if first not in self.known:
            positions = torch.arange(first, first + self.num_tokens, device=self.hidden.device)
            cos, sin = self.parts.rotary(self.hidden, positions[None])
            self.known[first] = (cos[:, None], signed_sine(sin)[:, None])
        return self.known[first]


class _Masks:
    """Additive masks for n new tokens behind the used slots, computed once per distinct layout.

    Shape (batch or 1, num_kv_heads or 1, groups * n, num_cached + n).
    """

    def __init__(self, num_tokens: int, groups: int, pot: MemoryPot, dtype: torch.dtype, device: torch.device) -> None:
        self.num_tokens, self.groups, self.pot = num_tokens, groups, pot
        self.dtype, self.device = dtype, device
        self.causal: dict[int, Tensor] = {}

    def at(self, layer: int, window: int | None) -> Tensor | None:
        num_cached = self.pot.num_cached[layer]
        if window is not None and self.pot.next_position[layer] + self.num_tokens > window:
            return self._windowed(layer, window)
        if self.num_tokens == 1:
            return None
        if num_cached not in self.causal:
            visible = torch.ones(self.num_tokens, num_cached + self.num_tokens, dtype=torch.bool, device=self.device)
            self.causal[num_cached] = self._additive(visible.tril(num_cached)[None, None])
        return self.causal[num_cached]

    def _windowed(self, layer: int, window: int) -> Tensor:
        """Causal, and only the last `window` logical positions: heads differ in what they hold."""
        num_cached, first = self.pot.num_cached[layer], self.pot.next_position[layer]
        new = torch.arange(first, first + self.num_tokens, dtype=torch.int32, device=self.device)
        slots = self.pot.positions[layer][:, :, :num_cached]
        if self.pot.victims is not None:
            slots = slots.scatter(-1, self.pot.victims[layer], first)
        else:
            slots = torch.cat((slots, new.expand(*slots.shape[:2], -1)), dim=-1)
        distance = new[:, None] - slots[:, :, None]
        return self._additive((distance >= 0) & (distance < window))

    def _additive(self, visible: Tensor) -> Tensor:
        mask = torch.zeros(visible.shape, dtype=self.dtype, device=self.device)
        mask.masked_fill_(~visible, torch.finfo(self.dtype).min)
        return mask.repeat(1, 1, self.groups, 1)
