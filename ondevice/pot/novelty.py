"""The novelty of what was read: each token's cross-entropy under the model, known only where its predecessor got to
the last layer.

The computation waits until a distillation asks for it, because the last chunk of a document never needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ondevice.errors import DamagedPot
from ondevice.pot.saved_state import LARGEST, check_finite, check_names, check_within, take, take_counts
from ondevice.pot.shape import UNKNOWN

TokenLoss = Callable[[Tensor, Tensor], Tensor]
IdsOf = Callable[[int, int], Tensor]
_STARTS, _BEFORE = "starts", "before"
_PARTS = ("states", "offsets")


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One pass: ids (1, n) of the document tokens from `first` on, states (1, m, hidden_size) of the tokens `offsets`
    (m,) among them, None: of all."""

    first: int
    ids: Tensor
    states: Tensor
    offsets: Tensor | None


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

    def add(self, first: int, ids: Tensor, states: Tensor, offsets: Tensor | None = None) -> None:
        """Take in one pass.

        Args:
            first: document token at which the pass begins.
            ids: (1, n) int64.
            states: (1, m, hidden_size) after the final norm, of the tokens that got there.
            offsets: (m,) int64, which of the n those are; None: all.
        """
        self._waiting.append(_Waiting(first, ids, states, offsets))

    def take(self) -> tuple[Tensor, Tensor] | None:
        """The document tokens (n,) int32 added since the last call and their novelty (1, n) float32; None if none.

        The first token of all has no predecessor and stays `UNKNOWN`; it is a sink anyway.
        """
        if not self._waiting:
            return None
        ids = torch.cat([one.ids for one in self._waiting], dim=1)
        known, start = [], 0
        for one in self._waiting:
            size = one.ids.shape[1]
            offsets = torch.arange(size, device=ids.device) if one.offsets is None else one.offsets
            known.append(offsets + start)
            start += size
        predictors, hidden = torch.cat(known), torch.cat([one.states for one in self._waiting], dim=1)
        if self._state_before is not None:
            predictors = torch.cat((predictors.new_full((1,), -1), predictors))
            hidden = torch.cat((self._state_before, hidden), dim=1)
        got_last = self._waiting[-1].offsets is None or int(predictors[-1]) == start - 1
        state = hidden[:, -1:].clone() if got_last else None
        if got_last:  # what it predicts has not been read yet
            predictors, hidden = predictors[:-1], hidden[:, :-1]
        result = torch.full((1, start), UNKNOWN, device=ids.device)  # that of tokens after a pruned or skipped one
        # Rounding may take the cross-entropy of a certain token a little below 0.
        result[:, predictors + 1] = self._token_loss(hidden, ids[:, predictors + 1]).clamp(min=0.0)
        tokens = [
            torch.arange(one.first, one.first + one.ids.shape[1], dtype=torch.int32, device=ids.device)
            for one in self._waiting
        ]
        self._state_before, self._waiting = state, []
        return torch.cat(tokens), result

    def state(self) -> dict[str, Tensor]:
        """The waiting tensors, by name, without ids; with `restore` another one goes on from here."""
        starts = [(one.first, one.ids.shape[1]) for one in self._waiting]
        state = {_STARTS: torch.tensor(starts, dtype=torch.int64).reshape(-1, 2)}
        if self._state_before is not None:
            state[_BEFORE] = self._state_before.clone()
        for index, one in enumerate(self._waiting):
            parts = {name: getattr(one, name) for name in _PARTS}
            state |= {f"{name}.{index}": part.clone() for name, part in parts.items() if part is not None}
        return state

    def restore(self, state: Mapping[str, Tensor], ids: IdsOf, cursor: int, size: int, dtype: torch.dtype) -> None:
        """Take over what `state` of another one gave.

        Args:
            ids: document tokens [start, stop) -> their ids (1, n).
            cursor: document tokens below this were read.
            size: of the model's hidden states.
            dtype: of those.

        Raises:
            DamagedPot: no reading up to there leaves that state.
        """
        starts = take(state, _STARTS, torch.int64, (None, 2)).tolist()
        names, stop, waiting = {_STARTS, _BEFORE}, 0, []
        for index, (first, count) in enumerate(starts):
            if first < stop or count < 1 or first + count > cursor:
                raise DamagedPot("what waits for its novelty is not what was read")
            stop = first + count
            own = {name: state.get(f"{name}.{index}") for name in _PARTS}
            names |= {f"{name}.{index}" for name in _PARTS}
            _check_waiting(own, count, size, dtype)
            device = ids(0, 1).device
            parts = {name: None if part is None else part.to(device) for name, part in own.items()}
            waiting.append(_Waiting(first=first, ids=ids(first, stop), **parts))  # type: ignore[arg-type]
        check_names(state, names)
        before = take(state, _BEFORE, dtype, (1, 1, size)) if _BEFORE in state else None
        if before is not None:
            check_finite(_BEFORE, before)
            before = before.to(ids(0, 1).device)
        self._state_before, self._waiting = before, waiting


def _check_waiting(parts: Mapping[str, Tensor | None], count: int, size: int, dtype: torch.dtype) -> None:
    """Refuse parts of one pass of `count` tokens that no pass has; raises DamagedPot."""
    there = {name: part for name, part in parts.items() if part is not None}
    states = take(there, "states", dtype, (1, None, size))
    num_states = count
    if "offsets" in there:
        offsets = take(there, "offsets", torch.int64, (None,))
        check_within("offsets", offsets, 0, count)
        num_states = offsets.shape[0]
        if not num_states or bool((offsets.diff() < 1).any()):
            raise DamagedPot("offsets do not rise")
    if states.shape[1] != num_states:
        raise DamagedPot("states are not one for each token")
    check_finite("states", states)


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

    def state(self) -> dict[str, Tensor]:
        """The counts, by name; with `restore` another one goes on from here."""
        return {"counts": self._counts.clone(), "total": torch.tensor([int(self._total)])}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state` of another one gave; raises DamagedPot where it cannot be."""
        check_names(state, {"counts", "total"})
        counts = take(state, "counts", torch.float32, self._counts.shape)
        [total] = take_counts(state, "total", 1, int(LARGEST))
        check_finite("counts", counts)
        if float(counts.min()) < 1 or total < counts.numel():
            raise DamagedPot("a word was counted less than never")
        self._counts, self._total = counts.clone(), float(total)
