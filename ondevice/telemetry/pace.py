"""The pace of reading, which slows down while the pot fills: every token attends to all that it holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
    """Seconds of a token, and `slowing` of them more for each slot in use, by least squares over forward passes."""

    _tokens: float = 0.0
    _seconds: float = 0.0
    _slots: float = 0.0  # sums over tokens of the slots in use, of their squares, and of seconds times slots
    _squares: float = 0.0
    _products: float = 0.0

    def note(self, num_tokens: int, seconds: float, num_cached: int) -> None:
        """Take in one pass, after which `num_cached` slots of a head were in use."""
        slots = max(num_cached - num_tokens / 2, 0.0)
        self._tokens += num_tokens
        self._seconds += seconds
        self._slots += num_tokens * slots
        self._squares += num_tokens * slots**2
        self._products += seconds * slots

    @property
    def slowing(self) -> float:
        """Seconds more of a token for each slot in use; 0.0 if that is not known."""
        spread = self._tokens * self._squares - self._slots**2
        return max((self._tokens * self._products - self._slots * self._seconds) / spread, 0.0) if spread > 0 else 0.0

    def seconds(self, num_tokens: int, num_cached: int) -> float:
        """Seconds of the next tokens, each of which takes a slot beside the `num_cached` in use."""
        mean = (self._seconds - self.slowing * self._slots) / self._tokens if self._tokens else 0.0
        return num_tokens * (max(mean, 0.0) + self.slowing * (num_cached + num_tokens / 2))
