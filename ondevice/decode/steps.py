"""Steps of an answer: each object has one `next(token)`, the state after one more token; and the choice of that token.

`PlainStep` runs the model. `OverwritingStep` makes room for its token first, `SwappingStep` looks now and then whether
other blocks should be in the pot; each of them goes around another step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ondevice.config import GenerationConfig
from ondevice.decode.host_recall import RECENT_TOKENS, HostRecall
from ondevice.decode.termination import RunTimeTermination
from ondevice.events import TokensRecalled
from ondevice.model.decoder import Decoder
from ondevice.model.passes import Pass
from ondevice.pot.eviction import Eviction
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.undo import UndoLog
from ondevice.stage_clock import StageClock

IsStopped = Callable[[], bool]


class Step(Protocol):
    """One way to go on."""

    def next(self, token: int) -> Pass:
        """The state after one more token of the answer.

        Raises:
            PassStopped: the answer is stopped.
        """
        ...


class PlainStep:
    """One forward pass a token.

    Args:
        attention: decode attention that may end early; None: every slot is read.

    Attributes:
        keeps_queries: of the next passes, as `Decoder.forward`.
    """

    def __init__(
        self,
        decoder: Decoder,
        pot: MemoryPot,
        generation: GenerationConfig,
        generator: torch.Generator,
        attention: RunTimeTermination | None,
        is_stopped: IsStopped,
    ) -> None:
        self.decoder, self.pot, self.attention = decoder, pot, attention
        self.generation, self.generator, self._is_stopped = generation, generator, is_stopped
        self.keeps_queries = False

    def choose(self, last: Tensor, barred: Sequence[int] = ()) -> int:
        """The next token of the answer, none of `barred`, from the last state (1, hidden_size)."""
        temperature, top_p, head = self.generation.temperature, self.generation.top_p, self.decoder.head
        if temperature == 0 and not barred:
            return head.likeliest(last)
        logits = head.logits(last)
        if barred:
            logits = logits.index_fill(1, self.decoder.ids(barred)[0], -torch.inf)
        return int(sample(logits, temperature=temperature, top_p=top_p, generator=self.generator))

    def next(self, token: int, *, ends_early: bool = True) -> Pass:
        """As of every step; reads all slots where it is not to end early."""
        out = self.decoder.forward(
            self.decoder.ids([token]),
            self.pot,
            keeps_queries=self.keeps_queries,
            attention=self.attention if ends_early else None,
            is_stopped=self._is_stopped,
        )
        if self.attention is not None:
            self.attention.end_step()
        return out


class OverwritingStep:
    """Once a layer is full, every token overwrites the slot of an evicted one there.

    Args:
        eviction: the rule.

    Attributes:
        num_overwritten: tokens that did.
    """

    def __init__(self, plain: PlainStep, eviction: Eviction) -> None:
        self.num_overwritten = 0
        self._plain = plain
        self.begin(eviction)

    def begin(self, eviction: Eviction) -> None:
        """Go on by this rule in a pot whose newest tokens lie in free slots."""
        self.eviction, self.is_overwriting = eviction, False

    def next(self, token: int) -> Pass:
        if self._plain.pot.num_free == 0:
            self.eviction.make_room()
            self.num_overwritten += 1
            self.is_overwriting = True
        # Where slots were overwritten the newest tokens lie anywhere, and all slots are read.
        return self._plain.next(token, ends_early=not self.is_overwriting)


class SwappingStep:
    """Every few tokens the last ones of the answer are asked which blocks they look for; those take their place.

    A swap takes the pot back to the document, recalls the other blocks and reads question and answer again. Where the
    answer has overwritten slots, the recall leaves so much room that it overwrites none again until the next look.

    Args:
        ids: the question with its template.
        inner: goes on between two looks.
        plain: what `inner` runs the model by.
        undo: takes the pot back to the document.
        clock: of the answer.
        is_overwriting: whether tokens of the answer lie in slots of the document.
        read_again: reads ids into the pot after a swap, and prepares what depends on its slots.

    Attributes:
        recalled: the last event of a swap that was not reported yet.
    """

    def __init__(
        self,
        recall: HostRecall,
        inner: Step,
        plain: PlainStep,
        undo: UndoLog,
        clock: StageClock,
        ids: list[int],
        *,
        every: int,
        is_overwriting: Callable[[], bool],
        read_again: Callable[[list[int]], Pass],
    ) -> None:
        self.recalled: TokensRecalled | None = None
        self._recall, self._inner, self._plain, self._undo, self._ids = recall, inner, plain, undo, ids
        self._clock = clock
        self._every, self._is_overwriting, self._read_again = every, is_overwriting, read_again
        self._written: list[int] = []
        self._recent: deque[Sequence[Tensor]] = deque(maxlen=RECENT_TOKENS)

    def next(self, token: int) -> Pass:
        self._written.append(token)
        num_left = -len(self._written) % self._every
        if self._is_overwriting() or not self._plain.pot.num_free:  # this token will, if none did before
            return self._next_watched(token, num_left)
        if num_left:
            return self._inner.next(token)
        self._clock.book("write")
        out = self._recall.look_back(self._written[-RECENT_TOKENS:])
        return self._swapped(out.queries) or out

    def _next_watched(self, token: int, num_left: int) -> Pass:
        """As `next`, where the last tokens cannot be read again at once: they are asked as they are written."""
        self._plain.keeps_queries = num_left < RECENT_TOKENS
        out = self._inner.next(token)
        self._plain.keeps_queries = False
        if out.queries:
            self._recent.append(out.queries)
        if num_left:
            return out
        self._clock.book("write")
        recent = [torch.cat(layer, dim=2) for layer in zip(*self._recent, strict=True)]
        self._recent.clear()
        return self._swapped(recent) or out

    def _swapped(self, queries: Sequence[Tensor]) -> Pass | None:
        """The state after the last token with other blocks in the pot; None where those that are there stay."""
        num_tokens = len(self._ids) + len(self._written) + self._every  # none is overwritten before the next look
        recent = self._written[-RECENT_TOKENS:]
        wants_others = self._recall.has_room_for(num_tokens) and self._recall.wants_others(queries, recent)
        self._clock.book("look")
        if not wants_others:
            return None
        self._undo.rewind()
        self.recalled = self._recall.recall(self._undo)
        out = self._read_again([*self._ids, *self._written])
        self._clock.book("revival")
        return out


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
