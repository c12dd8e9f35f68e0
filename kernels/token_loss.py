"""Cross-entropy of tokens under the model's own logits, in slices that never hold the whole logits matrix."""

from collections.abc import Callable

import torch
from torch import Tensor


def token_loss(
    hidden_states: Tensor, targets: Tensor, lm_head: Callable[[Tensor], Tensor], *, slice_size: int = 64
) -> Tensor:
    """Negative log-likelihood of each target token: eq. 3 of InfiniPot (arXiv 2410.01518).

    Args:
        hidden_states: (batch, num_tokens, hidden_size), after the final norm; position i predicts target i.
        targets: (batch, num_tokens), int64.
        lm_head: (batch, n, hidden_size) -> logits (batch, n, vocab_size).
        slice_size: tokens whose logits are held at once; 64 of a 49,152-word vocabulary are 12.6 MB in float32.

    Returns:
        (batch, num_tokens), float32, in nats.
    """
    loss = torch.empty(targets.shape, dtype=torch.float32, device=targets.device)
    for start in range(0, targets.shape[1], slice_size):
        span = slice(start, start + slice_size)
        logits = lm_head(hidden_states[:, span]).float()
        chosen = logits.gather(-1, targets[:, span, None]).squeeze(-1)
        loss[:, span] = logits.logsumexp(dim=-1) - chosen
    return loss


def token_loss_ref(hidden_states: Tensor, targets: Tensor, lm_head: Callable[[Tensor], Tensor]) -> Tensor:
    """Reference for `token_loss`: all logits at once, torch's own cross-entropy."""
    logits = lm_head(hidden_states).float()
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
