"""The decision that an answer is not in the document, before its first word.

Asked to say so where the document does not, a small model denies what stands before its eyes. It is not asked, then,
but its own probability of the sentence tells: it is higher where nothing that was read answers the question.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ondevice.model.decoder import Decoder
from ondevice.pot.memory_pot import MemoryPot

NOT_THERE = "That is not in the document."
NOT_YET = "A search of the text has not found that. Not all of it is read yet."
# Log probability of `NOT_THERE` from which on it is said. The 1.5B, 1,024 tokens of passages: of 34 questions that
# another document answers 0.85 lie above, of 22 whose passages hold the answer 0.10.
LEAST = -20.7
SMALLEST = 800  # hidden size; models of fewer than some 400 million parameters, whose states are narrower, know nothing


def denial(decoder: Decoder, pot: MemoryPot, last: Tensor, ids: list[int], is_stopped: Callable[[], bool]) -> float:
    """The log probability of a sentence as the answer to a question that the pot has read; the pot stays as it is.

    Args:
        last: (1, 1, hidden_size), the state of the question's last token.
        ids: of the sentence.

    Raises:
        PassStopped: `is_stopped` returned True.
    """
    tokens = decoder.ids(ids)
    with pot.savepoint():
        out = decoder.forward(tokens[:, :-1], pot, is_stopped=is_stopped)
        return -float(decoder.head.token_loss(torch.cat((last, out.hidden_states), 1), tokens).sum())
