"""The novelty of what was read: each token's cross-entropy under the model, known only where its predecessor got to
the last layer.

The computation waits until a distillation asks for it, because the last chunk of a document never needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ondevice.pot.shape import UNKNOWN

TokenLoss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One pass: ids (1, n) of the document tokens from `first` on, states (1, m, hidden_size) of the tokens `offsets`
    (m,) among them, None: of all, and what stands in for the others."""

    first: int
    ids: Tensor
    states: Tensor
    offsets: Tensor | None
    early_states: Tensor | None
    stand_in: Tensor | None


class Novelty:
    """Collects final hidden states pass by pass, and turns them into cross-entropies at once.

    Args:
        token_loss: states (1, n, hidden_size) and the ids that they predict (1, n) -> nats (1, n) float32.
    """

    def __init__(self, token_loss: TokenLoss) -> None:
        self._token_loss = token_loss
        self._state_before: Tensor | None = None  # of the token before the first that waits; None: not known
        self._waiting: list[_Waiting] = []

    def begin(self, state: Tensor) -> None:
        """The state (1, 1, hidden_size) of the token before the document: the last of the prompt."""
        self._state_before = state

    def add(
        self,
        first: int,
        ids: Tensor,
        states: Tensor,
        offsets: Tensor | None = None,
        *,
        early_states: Tensor | None = None,
        stand_in: Tensor | None = None,
    ) -> None:
        """Take in one pass.

        Args:
            first: document token at which the pass begins.
            ids: (1, n) int64.
            states: (1, m, hidden_size) after the final norm, of the tokens that got there.
            offsets: (m,) int64, which of the n those are; None: all.
            early_states: (1, n, hidden_size), or `stand_in` (n,) float32: where the novelty of tokens after a pruned
                or skipped one comes from; neither: it is `UNKNOWN`.
        """
        self._waiting.append(_Waiting(first, ids, states, offsets, early_states, stand_in))

    def take(self) -> tuple[Tensor, Tensor] | None:
        """The document tokens (n,) int32 added since the last call and their novelty (1, n) float32; None if none.

        The first token of all has no predecessor and stays `UNKNOWN`; it is a sink anyway.
        """
        if not self._waiting:
            return None
        ids = torch.cat([one.ids for one in self._waiting], dim=1)
        states = [one.states for one in self._waiting]
        known, novelty, start = [], [], 0
        for one in self._waiting:
            size = one.ids.shape[1]
            known.append(
                torch.arange(start, start + size, device=ids.device) if one.offsets is None else one.offsets + start
            )
            novelty.append(self._stand_in(one))
            start += size
        predictors, hidden = torch.cat(known), torch.cat(states, dim=1)
        if self._state_before is not None:
            predictors = torch.cat((predictors.new_full((1,), -1), predictors))
            hidden = torch.cat((self._state_before, hidden), dim=1)
        got_last = self._waiting[-1].offsets is None or int(predictors[-1]) == start - 1
        state = hidden[:, -1:].clone() if got_last else None
        if got_last:  # what it predicts has not been read yet
            predictors, hidden = predictors[:-1], hidden[:, :-1]
        result = torch.cat(novelty)[None]
        result[:, predictors + 1] = self._nats(hidden, ids[:, predictors + 1])
        tokens = [
            torch.arange(one.first, one.first + one.ids.shape[1], dtype=torch.int32, device=ids.device)
            for one in self._waiting
        ]
        self._state_before, self._waiting = state, []
        return torch.cat(tokens), result

    def copy(self) -> Novelty:
        """An independent copy; the tensors are never changed and are shared."""
        other = Novelty(self._token_loss)
        other._state_before, other._waiting = self._state_before, list(self._waiting)
        return other

    def _stand_in(self, one: _Waiting) -> Tensor:
        """(n,) float32 for tokens whose predecessor did not get to the last layer."""
        if one.stand_in is not None:
            return one.stand_in.clone()
        novelty = torch.full((one.ids.shape[1],), UNKNOWN, device=one.ids.device)
        if one.early_states is not None:
            novelty[1:] = self._nats(one.early_states[:, :-1], one.ids[:, 1:])[0]
        return novelty

    def _nats(self, states: Tensor, ids: Tensor) -> Tensor:
        # Rounding may take the cross-entropy of a certain token a little below 0.
        return self._token_loss(states, ids).clamp(min=0.0)


class WordCounts:
    """Rarity of each token's word in the document so far: its surprise under the counts, in nats.

    It costs no forward pass, and a table of the size of the vocabulary.
    """

    def __init__(self, vocab_size: int) -> None:
        self._counts = torch.ones(vocab_size)  # every word once, so that none is impossible
        self._total = float(vocab_size)

    def rarity(self, ids: Tensor) -> Tensor:
        """Count ids (n,) int64 and return their rarity (n,) float32, this occurrence included; same device."""
        at = ids.cpu()
        self._counts.index_add_(0, at, torch.ones(at.shape))
        self._total += at.numel()
        return -torch.log(self._counts[at] / self._total).to(ids.device)

    def copy(self) -> WordCounts:
        other = WordCounts(0)
        other._counts, other._total = self._counts.clone(), self._total
        return other
