"""Notices that an answer repeats itself: small models write one sentence again and again until the longest length."""

from __future__ import annotations

import numpy as np

_LONGEST = 160  # tokens of a sentence whose repetition is noticed
_SHORT = 16  # below this many tokens a repetition may be a list, a rule or a number
_SHORT_RUN = 32  # tokens that go on in a short period
_BEGINS_AGAIN = 8  # tokens of the third copy


class LoopGuard:
    """Follows the tokens of one answer.

    A period of p tokens counts as a loop when it has been written twice and begins a third time; one of fewer than 16
    tokens, when 32 tokens have gone on in it.
    """

    def __init__(self) -> None:
        self._ids = np.full(_LONGEST + 1, -1, np.int64)  # the newest first
        self._runs = np.zeros(_LONGEST, np.int64)  # tokens in a row that equal the one `index + 1` before them
        periods = np.arange(1, _LONGEST + 1)
        self._limits = np.where(periods < _SHORT, _SHORT_RUN, periods + _BEGINS_AGAIN)

    def push(self, token: int) -> bool:
        """Take the next token; whether the answer goes in a loop now."""
        self._ids[1:] = self._ids[:-1]
        self._ids[0] = token
        self._runs = np.where(self._ids[1:] == token, self._runs + 1, 0)
        return bool((self._runs >= self._limits).any())
