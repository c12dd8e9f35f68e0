"""Retention policies: which slots a distillation keeps. One small class each, one method, one row of `config.POLICIES`.

A policy scores the used slots, higher = keep; everything else (how many, where they land, sinks,
positions) is the same for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pkgutil import resolve_name

from torch import Tensor

from ondevice.config import Policy, PotConfig
from ondevice.pot.shape import UNKNOWN, PotShape

WINDOW_TOKENS = 32  # of SnapKV's observation window


@dataclass(frozen=True, slots=True)
class LayerView:
    """Used slots of some layers, as a policy sees them, each (layers, batch, kv_heads, num_cached).

    Attributes:
        mass: attention received from the observed queries, float32 (infinite for what is protected, where it is summed
            up over passes); None when the policy observes nothing.
        novelty: cross-entropy in nats at the time of reading, float32, or `UNKNOWN`.
        positions: logical positions, int32; they rise in document order.
        num_kept: slots that will be kept.
    """

    mass: Tensor | None
    novelty: Tensor
    positions: Tensor
    num_kept: int


class RetentionPolicy(ABC):
    """A rule for reading: one small class, one method. What it needs stands in its row of `config.POLICIES`.

    Args:
        config: of the pot that it scores.
        seed: for what is left to chance.
    """

    def __init__(self, config: PotConfig, seed: int) -> None:
        self.config = config

    @abstractmethod
    def scores(self, view: LayerView) -> Tensor:
        """Return (layers, batch, kv_heads, num_cached) float32, higher = keep."""


class InfiniPot(RetentionPolicy):
    """Catalyst prompt and novelty under compression (arXiv 2410.01518, section 3.3.3 and code 1).

    A share of the kept slots goes to the most novel tokens; the rest is filled by the attention that the catalyst
    pays, head by head. Raising the novel ones above every mass does both in one top-k. Where fewer novelties are known
    than the share has slots, the attention fills those, too.
    """

    def scores(self, view: LayerView) -> Tensor:
        assert view.mass is not None
        num_novel = round(self.config.novelty * view.num_kept)
        if num_novel == 0:
            return view.mass
        novelty, novel = view.novelty.topk(num_novel, dim=-1)
        bonus = view.mass.amax(dim=-1, keepdim=True) + 1.0
        return view.mass.scatter_add(-1, novel, bonus * (novelty != UNKNOWN))


class ByMass(RetentionPolicy):
    """The mass as it is: what a token's key and value predict, whenever it is asked (KVzap, arXiv 2601.07891)."""

    def scores(self, view: LayerView) -> Tensor:
        assert view.mass is not None
        return view.mass


def num_observed(policy: Policy, num_catalyst: int, num_queries: int) -> int:
    """Last queries of a pass whose attention a policy uses, of `num_queries`, with the catalyst at their end."""
    observed = {"catalyst": num_catalyst, "window": WINDOW_TOKENS, "last-token": 1, "all": num_queries}
    return min(observed.get(policy.observes, 0), num_queries)  # of the others no attention paid in a pass


def make_policy(config: PotConfig, seed: int) -> RetentionPolicy | None:
    """The policy of the settings; None where a pot is never distilled."""
    if config.method.scorer is None:
        return None
    policy: RetentionPolicy = resolve_name(config.method.scorer)(config, seed)
    return policy


def layer_budgets(config: PotConfig, num_protected: int, shape: PotShape) -> list[int]:
    """Slots that each layer keeps, as many as the settings say on average; layers of different sizes leave one room."""
    if shape.capacities is not None:
        return [max(slots - config.room, num_protected + 1) for slots in shape.capacities]
    return [config.num_kept] * shape.layers.stop
