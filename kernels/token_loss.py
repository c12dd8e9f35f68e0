"""Cross-entropy of tokens under the model's own logits, in slices that never hold the whole logits matrix."""

from __future__ import annotations

import torch
from ondevice.kernels.backend import uses_triton
from ondevice.kernels.packed import PackedWeight
from ondevice.kernels.projection import project
from torch import Tensor

_CPU_SLICE = 4096  # words
_CPU_LOGITS, _GPU_LOGITS = 1 << 22, 1 << 25  # numbers
_ALIGNED = 1024  # words; rows that begin anywhere in memory cost a GPU the quicker half of its products


def token_loss(
    hidden_states: Tensor,
    targets: Tensor,
    weight: Tensor | PackedWeight,
    *,
    softcap: float | None = None,
    slice_size: int | None = None,
) -> Tensor:
    """Negative log-likelihood of each target token: eq. 3 of InfiniPot (arXiv 2410.01518).

    The vocabulary is walked in slices with a running log-sum-exp: matrix products stay large, and the logits held
    at once (n x slice_size) stay in a CPU's cache, or within 128 MB on a GPU, where calls are what takes time.

    Args:
        hidden_states: (batch, n, hidden_size), after the final norm; position i predicts target i.
        targets: (batch, n), int64.
        weight: (vocab_size, hidden_size) of the language-model head; packed or not.
        softcap: logits become softcap * tanh(logits / softcap) (Gemma-2).
        slice_size: words of the vocabulary at a time; None: what suits the device.

    Returns:
        (batch, n), float32, in nats.
    """
    states = hidden_states.flatten(0, 1)
    if slice_size is None:
        slice_size = slice_words(states.shape[0], states.device.type)
    if isinstance(weight, PackedWeight):
        return _packed_loss(states, targets.flatten(), weight, softcap, slice_size).view(targets.shape)
    chosen = (states * weight[targets.flatten()]).sum(dim=-1, dtype=torch.float32)
    total = torch.full_like(chosen, -torch.inf)
    for start in range(0, weight.shape[0], slice_size):
        logits = project(states, weight[start : start + slice_size])
        total = torch.logaddexp(total, _sums(logits, softcap))
    return (total - _cap(chosen, softcap)).view(targets.shape)


def slice_words(num_tokens: int, device: str) -> int:
    """Words of the vocabulary whose logits are held at once for so many tokens on a kind of device."""
    if device == "cpu":
        return min(max(_CPU_LOGITS // num_tokens // _ALIGNED * _ALIGNED, _ALIGNED), _CPU_SLICE)
    return max(_GPU_LOGITS // num_tokens // _ALIGNED * _ALIGNED, _CPU_SLICE)


def _packed_loss(
    states: Tensor, targets: Tensor, weight: PackedWeight, softcap: float | None, slice_size: int
) -> Tensor:
    """(n,): the logits of the targets are those that are summed up, since both are rounded."""
    chosen = torch.zeros(states.shape[0])
    total = torch.full_like(chosen, -torch.inf)
    for start in range(0, weight.shape[0], slice_size):
        logits = _cap(project(states, weight.rows(start, start + slice_size)), softcap)
        total = torch.logaddexp(total, logits.logsumexp(dim=-1))
        here = ((targets >= start) & (targets < start + slice_size)).nonzero().squeeze(1)
        chosen[here] = logits[here, targets[here] - start]
    return total - chosen


def _sums(logits: Tensor, softcap: float | None) -> Tensor:
    """The logarithm of the sum of all exponential logits (n, m), (n,) float32."""
    if uses_triton(logits):
        # Imported here: Triton is not there on every machine.
        from ondevice.kernels.triton.logsumexp import logsumexp

        return logsumexp(logits, softcap)
    return _cap(logits.float(), softcap).logsumexp(dim=-1)


def _cap(logits: Tensor, softcap: float | None) -> Tensor:
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)
