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
    chances = (logits.float() / temperature).softmax(dim=-1)
    if top_p < 1:
        ranked, order = chances.sort(dim=-1, descending=True)
        before = ranked.cumsum(dim=-1) - ranked
        ranked = ranked.masked_fill(before >= top_p, 0.0)
        chances = torch.zeros_like(chances).scatter(-1, order, ranked)
    return torch.multinomial(chances, 1, generator=generator).squeeze(-1)
