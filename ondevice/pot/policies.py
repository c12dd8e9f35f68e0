"""Retention policies: which slots a distillation keeps. One small class each, one method, one table.

A policy scores the used slots, higher = keep; everything else (how many, where they land, sinks,
positions) is the same for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ondevice.config import PotConfig

Observed = Literal["catalyst", "window", "last-token", "nothing"]
WINDOW_TOKENS = 32  # of SnapKV's observation window
_POOLING = 5  # neighbouring tokens that share the highest attention among them (SnapKV, PyramidKV)
_NARROWING = 20  # PyramidKV: the last layer keeps this part of the average


@dataclass(frozen=True, slots=True)
class LayerView:
    """What a policy may look at: the used slots of some layers, each (layers, batch, num_kv_heads, num_cached).

    Attributes:
        mass: attention received from the observed queries, float32; None when the policy observes nothing.
        novelty: cross-entropy in nats at the time of reading, float32.
        positions: logical positions, int32; they rise in document order.
        num_kept: slots that will be kept.
    """

    mass: Tensor | None
    novelty: Tensor
    positions: Tensor
    num_kept: int


class RetentionPolicy(Protocol):
    """What a policy needs from the forward pass, and its scores."""

    @property
    def observes(self) -> Observed:
        """Whose attention `LayerView.mass` holds."""
        ...

    @property
    def needs_novelty(self) -> bool:
        """Whether tokens must be scored by their cross-entropy."""
        ...

    @property
    def is_per_head(self) -> bool:
        """False where all heads of a layer keep the same tokens; they then share their layout too."""
        ...

    def scores(self, view: LayerView) -> Tensor:
        """Return (layers, batch, num_kv_heads, num_cached) float32, higher = keep."""
        ...


@dataclass(frozen=True)
class InfiniPot:
    """Catalyst prompt and novelty under compression (arXiv 2410.01518, section 3.3.3 and code 1).

    The `novelty_share` of the kept slots goes to the most novel tokens; the rest is filled by the attention that
    the catalyst pays, head by head. Raising the novel ones above every mass does both in one top-k.
    """

    novelty_share: float

    observes: Observed = "catalyst"
    is_per_head: bool = True

    @property
    def needs_novelty(self) -> bool:
        return self.novelty_share > 0

    def scores(self, view: LayerView) -> Tensor:
        assert view.mass is not None
        num_novel = round(self.novelty_share * view.num_kept)
        if num_novel == 0:
            return view.mass
        novel = view.novelty.topk(num_novel, dim=-1).indices
        bonus = view.mass.amax(dim=-1, keepdim=True) + 1.0
        return view.mass.scatter_add(-1, novel, bonus.expand_as(novel))


@dataclass(frozen=True)
class StreamingLLM:
    """Sinks and the most recent tokens (arXiv 2309.17453); the sinks are kept by the distillation itself."""

    observes: Observed = "nothing"
    needs_novelty: bool = False
    is_per_head: bool = False

    def scores(self, view: LayerView) -> Tensor:
        return view.positions.float()


@dataclass(frozen=True)
class SnapKV:
    """Attention of the last tokens of a pass, spread over neighbours (arXiv 2404.14469); those tokens stay.

    PyramidKV (arXiv 2406.02069) scores alike and shares the slots out among layers otherwise: see `layer_budgets`.
    """

    observes: Observed = "window"
    needs_novelty: bool = False
    is_per_head: bool = True

    def scores(self, view: LayerView) -> Tensor:
        assert view.mass is not None
        in_order = view.positions.argsort(dim=-1)
        mass = view.mass.gather(-1, in_order).flatten(0, 2)
        pooled = F.max_pool1d(mass[:, None], _POOLING, stride=1, padding=_POOLING // 2).view(view.mass.shape)
        pooled[..., -min(WINDOW_TOKENS, view.num_kept) :] = pooled.amax() + 1.0
        return torch.empty_like(pooled).scatter_(-1, in_order, pooled)


@dataclass(frozen=True)
class TOVA:
    """Attention of the last token, averaged over the heads of a layer (arXiv 2401.06104)."""

    observes: Observed = "last-token"
    needs_novelty: bool = False
    is_per_head: bool = False

    def scores(self, view: LayerView) -> Tensor:
        assert view.mass is not None
        # Heads hold the same tokens in the same slots here: `is_per_head` is False.
        return view.mass.mean(dim=-2, keepdim=True).expand_as(view.mass)


@dataclass(frozen=True)
class SirLLM:
    """Token entropy alone (ACL 2024, arXiv 2405.12528): every head keeps the same tokens."""

    observes: Observed = "nothing"
    needs_novelty: bool = True
    is_per_head: bool = False

    def scores(self, view: LayerView) -> Tensor:
        return view.novelty


class Random:
    """Uniform scores: the floor that a policy has to beat."""

    observes: Observed = "nothing"
    needs_novelty = False
    is_per_head = True

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def scores(self, view: LayerView) -> Tensor:
        return torch.rand(view.novelty.shape, generator=self.generator).to(view.novelty.device)


def num_observed(policy: RetentionPolicy, num_catalyst: int, num_queries: int) -> int:
    """Last queries of a pass whose attention a policy looks at, of `num_queries`, with the catalyst at their end."""
    wished = {"catalyst": num_catalyst, "window": WINDOW_TOKENS, "last-token": 1, "nothing": 0}
    return min(wished[policy.observes], num_queries)


def make_policy(config: PotConfig, seed: int) -> RetentionPolicy:
    """The policy named in the settings; `full` and `truncate` never distill, so any will do."""
    if config.policy == "streaming-llm":
        return StreamingLLM()
    if config.policy in ("snapkv", "pyramidkv"):
        return SnapKV()
    if config.policy == "tova":
        return TOVA()
    if config.policy == "sirllm":
        return SirLLM()
    if config.policy == "random":
        return Random(seed)
    return InfiniPot(config.novelty)


def layer_budgets(config: PotConfig, num_kept: int, num_layers: int, num_protected: int) -> list[int]:
    """Slots that each layer keeps, `num_kept` on average; only PyramidKV's differ, falling evenly with depth.

    In a stream the first layer also has to leave room for what comes: half of what the average leaves.
    """
    if config.policy != "pyramidkv" or num_layers < 2:
        return [num_kept] * num_layers
    widest = min(num_kept - num_kept // _NARROWING, (config.capacity - config.reserve - num_kept) // 2)
    fewest = max(num_kept - widest, num_protected + WINDOW_TOKENS)
    widest = max(num_kept - fewest, 0)
    return [num_kept + round(widest * (1 - 2 * layer / (num_layers - 1))) for layer in range(num_layers)]
