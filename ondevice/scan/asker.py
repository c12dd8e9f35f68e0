"""Short questions to a model, each after the same beginning, which is read once and stays in a pot of fixed size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ondevice.decode.loop_guard import LoopGuard
from ondevice.model.decoder import Decoder
from ondevice.model.tokenizer import Tokenizer
from ondevice.pot.memory_pot import MemoryPot


class Asker:
    """One beginning.

    Args:
        prefix: ids that come before every question.
        num_tokens: the most that a question and its answer have together.
        is_stopped: polled between layers.

    Attributes:
        num_passed: tokens that went through the model so far.

    Raises:
        PotError: there is no room for the pot.
    """

    def __init__(
        self, decoder: Decoder, tokenizer: Tokenizer, prefix: list[int], num_tokens: int, is_stopped: Callable[[], bool]
    ) -> None:
        self._decoder, self._tokenizer, self._is_stopped = decoder, tokenizer, is_stopped
        self.num_passed = 0
        self.pot: MemoryPot = decoder.new_pot(len(prefix) + num_tokens)
        self.pot.expect(len(prefix) + num_tokens)
        self._read(prefix)

    def answer(self, question: Sequence[int], most: int) -> tuple[str, bool]:
        """The likeliest answer of at most so many tokens, and whether the model ended it; raises PassStopped."""
        written, guard = list[int](), LoopGuard()
        with self.pot.savepoint():
            last = self._read(question)
            while len(written) < most:
                token = self._decoder.head.likeliest(last)
                if token in self._tokenizer.eos_ids:
                    return self._tokenizer.decode(written), True
                written.append(token)
                if guard.push(token):
                    break
                last = self._read([token])
        return self._tokenizer.decode(written), False

    def leaning(self, question: Sequence[int], one: int, other: int) -> float:
        """The difference of two tokens' logits at the first place of the answer; raises PassStopped."""
        with self.pot.savepoint():
            logits = self._decoder.head.logits(self._read(question))[0]
        return float(logits[one] - logits[other])

    @torch.inference_mode()
    def _read(self, ids: Sequence[int]) -> Tensor:
        """The last state (1, hidden_size) after some more ids."""
        decoder = self._decoder
        out = decoder.forward(decoder.ids(list(ids)), self.pot, is_stopped=self._is_stopped)
        self.num_passed += len(ids)
        return out.hidden_states[:, -1]
