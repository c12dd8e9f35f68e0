"""Forecasts of reading time and of the speed of answers, by the roofline of the machine: the stages that
`Reader` goes through, each at its measured rate.

Told for plain reading only. What pruning, a speculator or a text repeated at each distillation gain or cost depends on
the text, and is known once something was read.
"""

from __future__ import annotations

from dataclasses import dataclass

from ondevice.model.families.parts import ModelParts
from ondevice.prefill.reader import catalyst_ids
from ondevice.session.plan import Plan
from ondevice_bench.speed.rates import Rates

_NEED_TOKENS = 2100  # read where the needs of the heads are measured first: a text and its repetition


@dataclass(frozen=True, slots=True)
class Speed:
    """A forecast.

    Attributes:
        num_tokens: of the document.
        seconds: that reading all of it takes.
        measuring: seconds before, where the needs of the model's heads are not known yet.
        reading: document tokens a second.
        answering: tokens of an answer a second, over what the pot holds then.
    """

    num_tokens: int
    seconds: float
    measuring: float
    reading: float
    answering: float


def foreseen_speed(plan: Plan, rates: Rates, num_tokens: int | None = None) -> Speed | None:
    """The forecast for a document of so many tokens; None, for them: two and a half pots.

    Args:
        plan: sized.

    Returns:
        None: these settings do more than read plainly.
    """
    config = plan.config
    if plan.slim_steps or config.spec.skips:
        return None
    num_tokens = num_tokens or int(2.5 * config.pot.capacity)
    walk = _Walk(plan, rates, num_tokens)
    return Speed(num_tokens, walk.seconds, walk.measuring, num_tokens / walk.seconds, 1.0 / walk.step())


class _Walk:
    """The chunks of one reading.

    Attributes:
        seconds: that they take.
        measuring: seconds before the first.
        slots: that are used in the end.
    """

    def __init__(self, plan: Plan, rates: Rates, num_tokens: int) -> None:
        self._plan, self._rates = plan, rates
        self._parts: ModelParts = plan.decoder.parts
        pot = plan.config.pot
        self._num_catalyst = len(catalyst_ids(plan.config, plan.slim_steps, plan.loaded.tokenizer.encode))
        self.slots, kept = len(plan.chat.prefix), pot.num_kept
        self.seconds = self._read(self.slots, 0)
        self.measuring = self._chunk(_NEED_TOKENS, is_distilled=False) if plan.must_measure(num_tokens) else 0.0
        left = num_tokens
        capacity = plan.foreseen_shape(num_tokens).mean_capacity
        while left:
            room = capacity - self.slots - pot.reserve
            size = min(left, room) if pot.method.distills and room > 0 else left
            left -= size
            self.seconds += self._chunk(size, is_distilled=left > 0)
            self.slots = kept if left else self.slots + size
            if left > (step := capacity - kept - pot.reserve):  # all further chunks but the last are alike
                cycles = (left - 1) // step
                self.seconds += cycles * self._chunk(step, is_distilled=True)
                left -= cycles * step

    def step(self) -> float:
        """Seconds of an answer token."""
        rates, layers = self._rates, len(self._parts.layers)
        return layers * (rates.per_step + rates.per_slot * self.slots) + rates.per_word

    def _chunk(self, num_tokens: int, *, is_distilled: bool) -> float:
        """Passes of even size over what is in the pot; then the surprise of all their tokens, and a distillation."""
        rates, config = self._rates, self._plan.config.pot
        num_passes = -(-num_tokens // config.pass_size("cpu"))
        size = num_tokens / num_passes
        seconds = sum(self._read(size, self.slots + index * size) for index in range(num_passes))
        if is_distilled:
            used = self.slots + num_tokens
            seconds += self._read(self._num_catalyst, used) - len(self._parts.layers) * rates.per_pass
            seconds += (rates.per_distillation + rates.per_distilled * used) * len(self._parts.layers)
            seconds += rates.per_novel * num_tokens if config.needs_novelty else 0.0
        return seconds

    def _read(self, num_tokens: float, num_slots: float) -> float:
        rates = self._rates
        pairs = num_tokens * (num_slots + num_tokens / 2)
        return len(self._parts.layers) * (rates.per_pass + rates.per_token * num_tokens + rates.per_pair * pairs)
