"""Speculative decoding (arXiv 2211.17192): the speculator drafts some tokens, the main model checks all in one pass.

A draft goes into free slots of both pots, and what is not accepted leaves them as it came, in place. The answer does
not know of drafts: it asks for the state after each token, and some states are there already.

Greedy answers are those of decoding one by one. A pass over several tokens rounds otherwise than one over a single
token, in the last digits of the logits and of the keys and values it stores. Where the two best tokens lie closer
together than that could decide, the tokens since the last exact one are read again one by one, which gives exactly
the state that plain decoding has.

Some things look at every single token, and there are no drafts with them: answers that swap blocks with the host
tier, and evictions by what the answer attends to. Once the reserve is used up every token overwrites a slot, and
drafts end: of several that overwrite together the first would not see what plain decoding still shows it. A pass over
drafts reads the whole pot, run-time termination or not; with it an answer is that of plain decoding without it until
drafting is given up.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ondevice.config import SpecConfig
from ondevice.context import Context
from ondevice.decode.sampling import accept_or_replace, probabilities
from ondevice.decode.steps import PlainStep, Step
from ondevice.events import DraftCount
from ondevice.model.passes import Pass
from ondevice.pot.memory_pot import MemoryPot
from ondevice.speculator.speculator import Speculator

_PLAIN_STEPS = 3  # decoded one by one first, to know what a draft has to beat
_TRIAL_ROUNDS = 4  # drafts before the first judgement; half as many where none of them was accepted
ANSWERS_AT_REST = 8  # that go without drafts after one in which they did not pay
# A tie is nearer than so many units in the last place of the largest logit. In half precision that is a guess until
# `gpu_check --parts drafts` has measured on a GPU how far the two ways differ. It is careful: so many tokens are near
# ties, and read again, that drafts hardly pay.
_TIE_UNITS = {torch.float32: 256.0}
_TIE_UNITS_HALF = 8.0


class DraftedStep:
    """The drafts of one answer.

    Args:
        plain: of the main model; its pot holds the document and the question.
        inner: goes on where drafts cannot.
        speculator: has read the same document, up to the same token.
        config: how many tokens are drafted, and whether that is given up where it does not pay.
        is_stopped: polled between layers.

    Attributes:
        count: so far.
    """

    def __init__(
        self,
        plain: PlainStep,
        inner: Step,
        speculator: Speculator,
        config: SpecConfig,
        is_stopped: Callable[[], bool] | None = None,
    ) -> None:
        self.count = DraftCount()
        self._inner, self._decoder, self._pot = inner, plain.decoder, plain.pot
        self._speculator, self._config, self._is_stopped = speculator, config, is_stopped
        self._generation, self._generator = plain.generation, plain.generator
        self._main = _Written(self._pot)
        small = speculator.opened_pot()
        self._before = list(small.num_cached), list(small.next_position)
        self._small: _Written | None = None
        self._drafts: list[int] = []  # in the main pot after what is accepted
        self._chances: list[Tensor] = []  # that each was drawn from; empty where the answer is greedy
        self._states = torch.empty(0)  # (1, len(drafts) + 1, hidden_size) of the pass over the drafts
        self._at = 0  # drafts accepted of those
        self._num_exact = 0  # answer tokens in the main pot that were read one by one, from the first on
        self._is_over = False
        self._plain_seconds: list[float] = []
        self._seconds, self._num_gained = 0.0, 0

    def begin(self, ids: Tensor) -> None:
        """Let the speculator read the question (1, n) int64, too; without room for it there are no drafts.

        Raises:
            PassStopped: the answer is stopped.
        """
        small = self._speculator.opened_pot()
        if small.num_free <= ids.shape[1] + self._config.num_draft:
            self._is_over = True
            return
        self._speculator.decoder.forward(ids, small, is_stopped=self._is_stopped)
        self._small = _Written(small)

    def end(self) -> None:
        """Take everything out of the speculator's pot; the undo log of the answer does so for the main one."""
        self._speculator.opened_pot().rewind_to_(*self._before)

    def choose(self, logits: Tensor) -> int:
        """The next token of the answer, from logits (1, vocab_size) of the state that came last."""
        generation = self._generation
        if generation.temperature == 0:
            if self._is_near_tie(logits):
                logits = self._decoder.head.logits(self._read_again()[:, -1])
            return int(logits.argmax(dim=-1))
        if self._at < len(self._drafts):
            target = probabilities(logits[0], temperature=generation.temperature, top_p=generation.top_p)
            return accept_or_replace(target, self._chances[self._at], self._drafts[self._at], generator=self._generator)
        return self._inner.choose(logits)

    def next(self, token: int) -> Pass:
        """The state after one more token of the answer.

        Raises:
            PassStopped: the answer is stopped.
        """
        ahead = None if self._is_over else self._ahead(token)
        return self._inner.next(token) if ahead is None else ahead

    def _ahead(self, token: int) -> Pass | None:
        """That state from a pass over drafts; None once drafting is over."""
        if self._at < len(self._drafts):
            if token == self._drafts[self._at]:
                self.count.num_accepted += 1
                self._num_gained += 1
                self._at += 1
                self._main.tokens.append(token)
                return Pass(self._states[:, self._at : self._at + 1], [])
            self._drop_drafts()
        num_draft = min(self._config.num_draft, self._pot.num_free - 1, self._room_for_drafts())
        if num_draft < 1 or self._does_not_pay():
            self._hand_over()
            return None
        if self._config.falls_back and len(self._plain_seconds) < _PLAIN_STEPS:
            began = time.perf_counter()
            out = self._read([token])
            self._decoder.synchronize()
            self._plain_seconds.append(time.perf_counter() - began)
            return out
        began = time.perf_counter()
        drafts, chances = self._draft(token, num_draft)
        out = self._read([token, *drafts])
        self._main.tokens = self._main.tokens[: len(self._main.tokens) - num_draft]  # not accepted yet
        self._drafts, self._chances, self._states, self._at = drafts, chances, out.hidden_states, 0
        self.count.num_drafted += num_draft
        self.count.num_rounds += 1
        self._num_gained += 1
        self._decoder.synchronize()
        self._seconds += time.perf_counter() - began
        return Pass(self._states[:, :1], [])

    # -- the main model --------------------------------------------------------------------------

    def _read(self, tokens: list[int]) -> Pass:
        """Read tokens of the answer into the main pot."""
        is_exact = len(tokens) == 1 and self._num_exact == len(self._main.tokens)
        out = self._decoder.forward(self._decoder.ids(tokens), self._pot, is_stopped=self._is_stopped)
        self._main.tokens += tokens
        self._num_exact += is_exact
        return out

    def _is_near_tie(self, logits: Tensor) -> bool:
        """True if rounding could have decided between the two best; never where it was plain decoding's own."""
        if self._is_over or self._num_exact == len(self._main.tokens):
            return False
        best = logits[0].float().topk(2).values
        units = _TIE_UNITS.get(logits.dtype, _TIE_UNITS_HALF)
        return float(best[0] - best[1]) < units * torch.finfo(logits.dtype).eps * float(logits.abs().max())

    def _read_again(self) -> Tensor:
        """Read the inexact tokens one by one; the state (1, 1, hidden_size) after the last of all."""
        began = time.perf_counter()
        self._forget_drafts()
        tokens = self._main.tokens
        again = tokens[self._num_exact :]
        self._main.rewind_to_(self._num_exact)
        self.count.num_read_again += len(again)
        out = [self._read([token]) for token in again][-1]
        self._decoder.synchronize()
        self._seconds += time.perf_counter() - began  # plain decoding would not have to
        return out.hidden_states

    def _drop_drafts(self) -> None:
        """Take the drafts that are not accepted out of the main pot."""
        self._main.rewind_to_(len(self._main.tokens))
        self._forget_drafts()

    def _forget_drafts(self) -> None:
        self._drafts, self._chances, self._at = [], [], 0

    def _hand_over(self) -> None:
        """From now on the caller decodes; a greedy answer has to find what plain decoding would have left."""
        if self._generation.temperature == 0 and self._num_exact < len(self._main.tokens):
            self._read_again()
        self._is_over = True

    def _does_not_pay(self) -> bool:
        """True if a token has cost more than one decoded alone: acceptance against the cost of drafts and passes."""
        num_trials = _TRIAL_ROUNDS if self.count.num_accepted else _TRIAL_ROUNDS // 2
        if not self._config.falls_back or self.count.num_rounds < num_trials:
            return False
        self.count.fell_back = self._seconds / self._num_gained > min(self._plain_seconds)
        return self.count.fell_back

    # -- the speculator --------------------------------------------------------------------------

    def _room_for_drafts(self) -> int:
        """Drafts for which the speculator's pot has slots: it holds as much of the answer as the main one, or less."""
        assert self._small is not None
        missing = len(self._main.tokens) + 1 - len(self._small.tokens)
        return self._speculator.opened_pot().num_free - max(missing, 0)

    def _draft(self, token: int, num_draft: int) -> tuple[list[int], list[Tensor]]:
        """Draft after `token`: the tokens, and the distribution (vocab_size,) that each was drawn from.

        Two models of one vocabulary may fill it up to different sizes: ids of the filling that only the main model has
        are never drafted, and the speculator reads its own last one for them; those that only it has are cut off.
        """
        assert self._small is not None
        num_missing = self._decoder.parts.vocab_size - self._speculator.decoder.parts.vocab_size
        decoder, generation, small = self._speculator.decoder, self._generation, self._speculator.opened_pot()
        answer = [*self._main.tokens, token]
        held = self._small.tokens
        common = next((i for i, (a, b) in enumerate(zip(held, answer, strict=False)) if a != b), None)
        common = min(len(held), len(answer) - 1) if common is None else min(common, len(answer) - 1)
        self._small.rewind_to_(common)
        drafts: list[int] = []
        chances: list[Tensor] = []
        feed = answer[common:]
        while len(drafts) < num_draft:
            ids = decoder.ids(feed).clamp(max=decoder.parts.vocab_size - 1)
            out = decoder.forward(ids, small, is_stopped=self._is_stopped)
            self._small.tokens += feed
            logits = F.pad(decoder.head.logits(out.hidden_states[:, -1]), (0, num_missing), value=-torch.inf)
            if generation.temperature == 0:
                feed = [int(logits.argmax(dim=-1))]
            else:
                chance = probabilities(logits[0], temperature=generation.temperature, top_p=generation.top_p)
                feed = [int(torch.multinomial(chance, 1, generator=self._generator))]
                chances.append(chance)
            drafts += feed
        return drafts, chances


class _Written:
    """Tokens of an answer in a pot, after what it held when this was made."""

    def __init__(self, pot: MemoryPot) -> None:
        self._pot, self._num_cached, self._next_position = pot, list(pot.num_cached), list(pot.next_position)
        self.tokens: list[int] = []

    def rewind_to_(self, num_tokens: int) -> None:
        """Keep the first tokens, and free the slots of all that follow."""
        self.tokens = self.tokens[:num_tokens]
        self._pot.rewind_to_([n + num_tokens for n in self._num_cached], [n + num_tokens for n in self._next_position])


class Drafts:
    """The drafts of a session, answer after answer."""

    def __init__(self) -> None:
        self._last = DraftCount()
        self._num_at_rest = 0  # answers that go without, after one in which drafts were given up

    def begin(
        self, context: Context, plain: PlainStep, inner: Step, ids: Tensor, is_stopped: Callable[[], bool]
    ) -> DraftedStep | None:
        """The step that drafts an answer to the question ids (1, n) that the pot has just read.

        None without a speculator, and for some answers after one in which drafts were given up.

        Raises:
            PassStopped: the answer is stopped.
        """
        config = context.config.spec
        if self._last.fell_back:
            self._num_at_rest, self._last = ANSWERS_AT_REST, DraftCount()
        if self._num_at_rest and config.falls_back:
            self._num_at_rest -= 1
            return None
        if context.speculator is None:
            return None
        step = DraftedStep(plain, inner, context.speculator, config, is_stopped)
        try:
            step.begin(ids)
        except BaseException:
            step.end()
            raise
        self._last = step.count
        return step
