"""The retention policies of others, which a pot is compared with: one small class each, as in `pot.policies`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ondevice.config import PotConfig
from ondevice.pot.policies import WINDOW_TOKENS, LayerView, RetentionPolicy

_POOLING = 5  # neighbouring tokens that share the highest attention among them (SnapKV)


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
