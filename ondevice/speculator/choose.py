"""Selection of the tokens of a stretch that go on to the main model, by the speculator's scores.

Section 3.2.3 of SpecPrefill (arXiv 2502.02789). Scores only: nothing here knows a model.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ondevice.config import SpecConfig


def importance(maxima: Tensor) -> Tensor:
    """(num_queries, n) attention of the last prompt token and the look-ahead tokens, already the maximum over heads
    and layers -> (n,): their mean, so that every look-ahead token counts alike (section 3.2.2)."""
    return maxima.mean(dim=0)


def chunk_scores(scores: Tensor, config: SpecConfig) -> Tensor:
    """Scores of tokens (n,) -> of chunks (num_chunks,): smoothed by a moving average, then averaged in each chunk.

    At both ends the average is of the tokens that are there; the last chunk may be short.
    """
    smooth = F.avg_pool1d(
        scores[None, None], config.pool_size, stride=1, padding=config.pool_size // 2, count_include_pad=False
    )[0, 0]
    missing = -smooth.shape[0] % config.chunk_size
    chunks = F.pad(smooth, (0, missing)).view(-1, config.chunk_size)
    sizes = torch.full((chunks.shape[0],), config.chunk_size, device=scores.device)
    sizes[-1] -= missing
    return chunks.sum(dim=1) / sizes


def choose(scores: Tensor, config: SpecConfig, *, is_first: bool) -> Tensor:
    """The tokens that go on, by top-k over chunks.

    Args:
        scores: (n,) float32, n at least 1.
        is_first: whether the stretch begins the document; its first chunk then holds the sinks and always goes on.

    Returns:
        Their places in the stretch, (m,) int64, rising; at least one chunk.
    """
    num_tokens, chunks = scores.shape[0], chunk_scores(scores, config)
    num_kept = _share_of(chunks.shape[0], config.keep)
    if is_first:
        chunks = chunks.clone()
        chunks[0] = torch.inf
    kept = chunks.topk(num_kept).indices.sort().values
    tokens = (kept[:, None] * config.chunk_size + torch.arange(config.chunk_size, device=scores.device)).flatten()
    return tokens[tokens < num_tokens]


def most_chosen(num_tokens: int, config: SpecConfig) -> int:
    """Most tokens of a stretch that `choose` lets through."""
    if not config.skips:
        return num_tokens
    return min(_share_of(-(-num_tokens // config.chunk_size), config.keep) * config.chunk_size, num_tokens)


def _share_of(num_chunks: int, share: float) -> int:
    return max(round(share * num_chunks), 1)
