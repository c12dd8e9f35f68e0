"""From logits to the next token: greedy, or temperature with nucleus (top-p) sampling."""

import torch
from torch import Tensor


def sample(logits: Tensor, *, temperature: float, top_p: float, generator: torch.Generator) -> Tensor:
    """Choose one token per row.

    Args:
        logits: (batch, vocab_size).
        temperature: 0 is greedy.
        top_p: the smallest set of tokens whose probabilities reach this share takes part; at least one does.
        generator: on the device of `logits`.

    Returns:
        (batch,), int64.
    """
    if temperature == 0:
        return logits.argmax(dim=-1)
    chances = probabilities(logits, temperature=temperature, top_p=top_p)
    return torch.multinomial(chances, 1, generator=generator).squeeze(-1)


def probabilities(logits: Tensor, *, temperature: float, top_p: float) -> Tensor:
    """The distribution (..., vocab_size) float32 that `sample` draws from; arguments as there, temperature above 0.

    With `top_p` below 1 it need not sum to 1.
    """
    chances = (logits.float() / temperature).softmax(dim=-1)
    if top_p < 1:
        ranked, order = chances.sort(dim=-1, descending=True)
        before = ranked.cumsum(dim=-1) - ranked
        ranked = ranked.masked_fill(before >= top_p, 0.0)
        chances = torch.zeros_like(chances).scatter(-1, order, ranked)
    return chances


def accept_or_replace(target: Tensor, draft: Tensor, token: int, *, generator: torch.Generator) -> int:
    """One step of rejection sampling (arXiv 2211.17192): the result is distributed as `target`, whatever the draft.

    Args:
        target, draft: distributions (vocab_size,) float32; `token` was drawn from `draft`.

    Returns:
        `token` with probability min(1, target / draft); else one drawn from what the draft gives too little.
    """
    target, draft = target / target.sum(), draft / draft.sum()
    chance = float(torch.rand(1, generator=generator, device=target.device))
    if chance * float(draft[token]) < float(target[token]):
        return token
    left = (target - draft).clamp_(min=0.0)
    if float(left.sum()) == 0.0:  # they are equal up to rounding
        left = target
    return int(torch.multinomial(left, 1, generator=generator))
