"""The prompt of a question: the last questions and answers before it, as far as there is room for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ondevice.decode.denial import NO_SENTENCE, NOT_THERE, NOT_YET
from ondevice.events import History
from ondevice.model.chat import ChatParts
from ondevice.search.tables import Row

_FEWEST = 16  # tokens of an answer that are worth keeping of it


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and the answer that it got; "" for one that no later answer may follow."""

    question: str
    answer: str

    @classmethod
    def of(cls, question: str, answer: str, num_unread: int, evasion: str = "") -> Turn:
        """With an answer from all of the document, and with something found; else without.

        Where any other stands before the same question, a model says it again, whatever it has read since.
        """
        is_found = not evasion and not answer.startswith((NOT_THERE, NOT_YET, NO_SENTENCE))
        is_remembered = is_found and not num_unread
        return cls(question, answer if is_remembered else "")


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids that go into the pot for one answer.

    Attributes:
        ids: everything after the document, up to the head of the answer.
        begun: tokens of the answer that are written already; it goes on after them.
        history: how much of the conversation is in it.
        told: a sentence before the question, of what is known of the file; "" if none.
        rows: of tables, that are told before the question.
        earlier: the questions before it that it may speak of; "" if none.
        lacking: what the question names and the document lacks.
    """

    ids: list[int]
    begun: tuple[int, ...] = ()
    history: History = field(default_factory=History)
    told: str = ""
    rows: Sequence[Row] = ()
    earlier: str = ""
    lacking: tuple[str, ...] = ()


def with_history(parts: ChatParts, question: str, turns: Sequence[Turn], max_tokens: int) -> Prompt:
    """A question after as many of the last turns, all answered, as fit into `max_tokens` with it, the newest first.

    Where not even the newest has room, its answer is shortened. The question itself is never cut.
    """
    last = parts.follow_up(question)
    later: list[int] = []  # turns after the one at hand
    prompt = Prompt(parts.question(question), history=History(num_forgotten=len(turns)))
    for number, turn in enumerate(reversed(turns), 1):
        first = parts.question(turn.question)
        answer = parts.tokenizer.encode(turn.answer)[0].tolist()  # hostile text: no control token comes of it
        room = max_tokens - len(last) - len(first) - len(later)
        is_shortened = len(answer) > room
        if is_shortened and (number > 1 or room < _FEWEST):
            break
        ids = [*first, *answer[:room], *later, *last]
        prompt = Prompt(ids, history=History(number, len(turns) - number, is_shortened))
        if is_shortened:
            break
        later = [*parts.follow_up(turn.question), *answer, *later]
    return prompt
