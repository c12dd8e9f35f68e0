"""Retention policies: which slots a distillation keeps. One small class each, one method, one row of `config.POLICIES`.

A policy scores the used slots, higher = keep; everything else (how many, where they land, sinks,
positions) is the same for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ondevice.config import Policy, PotConfig
from ondevice.pot.shape import UNKNOWN, PotShape

WINDOW_TOKENS = 32  # of SnapKV's observation window
_POOLING = 5  # neighbouring tokens that share the highest attention among them (SnapKV)


@dataclass(frozen=True, slots=True)
class LayerView:
    """Used slots of some layers, as a policy sees them, each (layers, batch, num_kv_heads, num_cached).

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
        """Return (layers, batch, num_kv_heads, num_cached) float32, higher = keep."""


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


class StreamingLLM(RetentionPolicy):
    """Sinks and the most recent tokens (arXiv 2309.17453); the sinks are kept by the distillation itself."""

    def scores(self, view: LayerView) -> Tensor:
        return view.positions.float()


class SnapKV(RetentionPolicy):
    """Attention of the last tokens of a pass, spread over neighbours (arXiv 2404.14469); those tokens stay."""

    def scores(self, view: LayerView) -> Tensor:
        assert view.mass is not None
        in_order = view.positions.argsort(dim=-1)
        mass = view.mass.gather(-1, in_order).flatten(0, 2)
        pooled = F.max_pool1d(mass[:, None], _POOLING, stride=1, padding=_POOLING // 2).view(view.mass.shape)
        pooled[..., -min(WINDOW_TOKENS, view.num_kept) :] = pooled.amax() + 1.0
        return torch.empty_like(pooled).scatter_(-1, in_order, pooled)


class TOVA(RetentionPolicy):
    """Attention of the last token, averaged over the heads of a layer (arXiv 2401.06104)."""

    def scores(self, view: LayerView) -> Tensor:
        assert view.mass is not None
        # Heads hold the same tokens in the same slots here: the row says that it does not keep per head.
        return view.mass.mean(dim=-2, keepdim=True).expand_as(view.mass)


class H2O(RetentionPolicy):
    """Half of the slots for the latest tokens, half for those that all tokens read so far attended to most
    (arXiv 2306.14048): the mass is the sum over all passes.
    """

    def scores(self, view: LayerView) -> Tensor:
        assert view.mass is not None
        latest = view.positions.topk(view.num_kept // 2, dim=-1).indices
        return view.mass.scatter(-1, latest, torch.inf)


class Repeat(RetentionPolicy):
    """The use of a token when a chunk is repeated: given once more after it was read (KVzip, arXiv 2505.23416).

    The mass is the most attention that any repeated token ever paid to a slot. Those are probabilities, so that the
    score from a chunk long past holds its own against those from the last.
    """

    def scores(self, view: LayerView) -> Tensor:
        assert view.mass is not None
        return view.mass


class LearnedScore(RetentionPolicy):
    """Attention predicted from a token's key and value, learned from a text repeated (KVzap, arXiv 2601.07891).

    The mass is that prediction. It depends on the token alone, so that what is kept step by step is what would be kept
    of all at once.
    """

    def scores(self, view: LayerView) -> Tensor:
        assert view.mass is not None
        return view.mass


class ExpectedAttention(RetentionPolicy):
    """The attention expected of queries to come, times the length of the value (Expected Attention, arXiv 2510.00636).

    The mass is that expectation, from the mean and the covariance of late queries; every slot has a new one each time.
    """

    def scores(self, view: LayerView) -> Tensor:
        assert view.mass is not None
        return view.mass


class SirLLM(RetentionPolicy):
    """Token entropy alone (ACL 2024, arXiv 2405.12528): every head keeps the same tokens."""

    def scores(self, view: LayerView) -> Tensor:
        return view.novelty


class Random(RetentionPolicy):
    """Uniform scores: the floor that a policy has to beat."""

    def __init__(self, config: PotConfig, seed: int) -> None:
        super().__init__(config, seed)
        self.generator = torch.Generator().manual_seed(seed)

    def scores(self, view: LayerView) -> Tensor:
        return torch.rand(view.novelty.shape, generator=self.generator).to(view.novelty.device)


def num_observed(policy: Policy, num_catalyst: int, num_queries: int) -> int:
    """Last queries of a pass whose attention a policy uses, of `num_queries`, with the catalyst at their end."""
    observed = {
        "catalyst": num_catalyst,
        "window": WINDOW_TOKENS,
        "last-token": 1,
        "all": num_queries,
        "repetition": 0,  # in passes of their own
        "predicted": 0,  # from keys and values alone
        "queries": 0,  # from those alone, without the attention that they pay
        "nothing": 0,
    }
    return min(observed[policy.observes], num_queries)


def make_policy(config: PotConfig, seed: int) -> RetentionPolicy | None:
    """The policy of the settings; None where a pot is never distilled."""
    if config.method.scorer is None:
        return None
    policy: RetentionPolicy = globals()[config.method.scorer](config, seed)
    return policy


def layer_budgets(config: PotConfig, num_kept: int, num_protected: int, shape: PotShape) -> list[int]:
    """Slots that each layer keeps, `num_kept` on average; layers of different sizes leave the same room."""
    if shape.capacities is not None:
        share = num_kept / config.num_kept
        return [max(round((slots - config.room) * share), num_protected + 1) for slots in shape.capacities]
    return [num_kept] * shape.num_layers
