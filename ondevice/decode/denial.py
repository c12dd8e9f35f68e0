"""The decision that an answer is not in the document, before its first word.

Asked to say so where the document does not, a small model denies what stands before its eyes. It is not asked, then,
but its own probability of the sentence tells, together with the question's words: are they in one passage, and are its
names in the text at all?
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ondevice.model.decoder import Decoder
from ondevice.pot.memory_pot import MemoryPot

NOT_THERE = "That is not in the document."
NO_SENTENCE = "No sentence of the document has these words together:"
NOT_YET = "A search of the text has not found that. Not all of it is read yet."
FEWEST_TOKENS = 1000  # of a text; a shorter one lacks most words of any question
SMALLEST = 800  # hidden size; models of fewer than some 400 million parameters, whose states are narrower, know nothing
# Chosen for the 0.5B and the 1.5B with 1,024 tokens of passages; `ondevice eval answers` tells what they deny, rightly
# and wrongly.
_LEAST, _BY_COVERAGE, _BY_NAME = -28.0, 40.0, 20.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """Terms on which an answer is denied.

    Attributes:
        refusal: what is said then.
        coverage: largest share of the question's words that stand in one passage, 0 to 1.
        lacks: True if the document nowhere has a name or a number of the question.
    """

    refusal: str
    coverage: float
    lacks: bool = False

    def denies(self, log_probability: float) -> bool:
        """True if `NOT_THERE` has this log probability; the more words stand together, the likelier it has to be."""
        return log_probability > _LEAST + _BY_COVERAGE * self.coverage - _BY_NAME * self.lacks


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
