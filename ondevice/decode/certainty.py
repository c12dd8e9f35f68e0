"""The decision that an answer is not in the document: the model is unsure of its words, or has them from elsewhere.

Asked to say so itself, a small model denies what stands before its eyes. Its probabilities know better: over passages
that hold no answer the tokens that it writes are on the mean half as likely as over passages that do.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ondevice.decode.unfounded import are_all_unfounded

NOT_THERE = "That is not in the document."
NOT_YET = "A search of the text has not found that. Not all of it is read yet."
MOST_TOKENS = 24  # of an answer, until which it is judged, and held back
# Mean log probability. The 1.5B: of 20 questions put to another document 17 lie below, of 10 whose passages hold the
# answer none.
LEAST = -0.38


class Certainty:
    """Judge of one answer by its first tokens.

    Args:
        question: with what is told beside it.
        texts: the document's, page by page.
        refusal: what is said in place of an answer that it fails.
    """

    def __init__(self, question: str, texts: Sequence[str], refusal: str) -> None:
        self.refusal = refusal
        self._question, self._texts = question, texts
        self._sum, self._num_tokens = 0.0, 0

    def note(self, logits: Tensor, token: int) -> None:
        """Count the next token, chosen from logits (1, vocab_size), the end of the answer as one."""
        if self._num_tokens < MOST_TOKENS:
            self._sum += float(logits[0].float().log_softmax(-1)[token])
            self._num_tokens += 1

    @property
    def is_settled(self) -> bool:
        """True once no further token can change the judgement."""
        return self._num_tokens == MOST_TOKENS

    def fails(self, text: str) -> bool:
        """True for an answer, as far as it is written, that the document does not give."""
        is_unsure = self._sum < LEAST * self._num_tokens
        return is_unsure or not text.strip() or are_all_unfounded(text, self._question, self._texts)
