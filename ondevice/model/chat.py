"""A model's chat template cut into pieces: before the document, after it, and for follow-up questions.

The document is read once and questions come later, so a rendered conversation is of no use as a whole.
Placeholders are rendered in place of document, question and answer, and the text between them is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ondevice.errors import ModelError

# Plain letters: no template trims, escapes or splits them, and no document's text is ever rendered.
_DOCUMENT, _QUESTION, _ANSWER, _NEXT = "qzdocumentzq", "qzquestionzq", "qzanswerzq", "qznextzq"
_GAP = "\n\n"  # between a document and its question
# Not "say so if it is not there": a small model then denies what stands before its eyes. `decode.denial` judges that.
_GROUND = "Answer the question from the document above.\n\n"

# gpt-oss thinks in a channel of its own unless it is given that of the answer; no switch of its template does that.
_HARMONY, _TO_READER = "<|start|>assistant", "<|channel|>final<|message|>"


class Encoder(Protocol):
    """The tokenizer that the pieces need; `Tokenizer` is one, and says what each part means."""

    def encode(self, text: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]: ...

    def encode_prompt(self, text: str) -> list[int]: ...

    def leading_ids(self) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class ChatParts:
    """Ids for `[prefix] document [question(q)] answer [follow_up(q)] answer ...`.

    Attributes:
        tokenizer: encodes the questions, as hostile text.
        prefix: ids before the document.
        before_question, after_question: template text around the first question.
        before_next, after_next: template text from the end of an answer to the next answer. The end
            token that the model generated is part of it: leave that token out of the cache.
    """

    tokenizer: Encoder
    prefix: tuple[int, ...]
    before_question: str
    after_question: str
    before_next: str
    after_next: str

    def question(self, text: str) -> list[int]:
        """Ids that follow the document: the question, the end of the turn, the head of the answer."""
        return self._turn(self.before_question, text, self.after_question)

    def follow_up(self, text: str) -> list[int]:
        """Ids that follow an answer: the end of its turn, a further question, the head of the next answer."""
        return self._turn(self.before_next, text, self.after_next)

    def _turn(self, before: str, text: str, after: str) -> list[int]:
        # Blank space before the question is encoded with it, as tokenizers join the two.
        head = before.rstrip()
        body, _ = self.tokenizer.encode(before[len(head) :] + text.strip())
        return [*self.tokenizer.encode_prompt(head), *body.tolist(), *self.tokenizer.encode_prompt(after)]


def chat_parts(tokenizer: Encoder, hf: Any | None, *, grounded: bool = False) -> ChatParts:
    """Split the template of `hf`; None gives plain completion.

    Args:
        grounded: each question asks for an answer from the document; plain completion does without.

    Raises:
        ModelError: the template fails, or does not show its messages in order.
    """
    if hf is None:
        ask, reply = f"{_GAP}Question: ", "\nAnswer:"
        return ChatParts(tokenizer, tuple(tokenizer.leading_ids()), ask, reply, ask, reply)
    first, later = rendered(hf)
    head, before, after = _split(first, _DOCUMENT, _QUESTION)
    _, before_next, after_next = _split(later, _ANSWER, _NEXT)
    ground, prefix = _GROUND if grounded else "", tuple(tokenizer.encode_prompt(head))
    return ChatParts(tokenizer, prefix, before + ground, after, before_next + ground, after_next)


def rendered(hf: Any) -> tuple[str, str]:
    """The two conversations that are split, by the template of `hf`; raises ModelError where it fails."""
    first = {"role": "user", "content": f"{_DOCUMENT}{_GAP}{_QUESTION}"}
    later = [first, {"role": "assistant", "content": _ANSWER}, {"role": "user", "content": _NEXT}]
    return _render(hf, [first]), _render(hf, later)


def _render(hf: Any, messages: list[dict[str, str]]) -> str:
    try:
        # Templates without a thinking mode ignore the switch; with one, an answer starts at once.
        text = hf.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    except Exception as error:  # the template is a program of the model's author: anything can come out
        raise _template_error(str(error)) from error
    return f"{text}{_TO_READER}" if text.endswith(_HARMONY) else text


def _split(text: str, first: str, second: str) -> tuple[str, str, str]:
    if text.count(first) != 1 or text.count(second) != 1 or text.index(first) > text.index(second):
        raise _template_error("it does not show its messages once and in order")
    head, rest = text.split(first)
    between, tail = rest.split(second)
    return head, between, tail


def _template_error(why: str) -> ModelError:
    return ModelError(f"The model's chat template cannot be used: {why}", fix="Ask without the chat template.")
