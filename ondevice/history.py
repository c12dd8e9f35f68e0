"""What a follow-up question stands behind: the last questions and answers, as far as there is room for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ondevice.model.chat import ChatParts

_FEWEST = 16  # tokens of an answer that are worth keeping of it


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and the answer that it got."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What goes into the pot for one answer.

    Attributes:
        ids: everything behind the document, up to the head of the answer.
        num_remembered: earlier turns in it.
        num_forgotten: earlier turns that had no room.
        is_shortened: of the oldest turn in it only the beginning of the answer is there.
    """

    ids: list[int]
    num_remembered: int = 0
    num_forgotten: int = 0
    is_shortened: bool = False


def with_history(parts: ChatParts, question: str, turns: Sequence[Turn], max_tokens: int) -> Prompt:
    """A question behind as many of the last turns as fit into `max_tokens` with it, the newest first.

    Where not even the newest has room, its answer is shortened. The question itself is never cut.
    """
    alone, behind = parts.question(question), parts.follow_up(question)
    asked = [_Asked.of(parts, turn) for turn in turns]
    for num_turns in range(len(asked), 0, -1):
        kept = asked[-num_turns:]
        room = max_tokens - len(behind) - len(kept[0].first) - sum(len(turn.later) for turn in kept[1:])
        num_answers = sum(len(turn.answer) for turn in kept)
        is_shortened = num_answers > room
        if not is_shortened or (num_turns == 1 and room >= _FEWEST):
            ids = [*kept[0].first, *kept[0].answer[: room if is_shortened else None]]
            for turn in kept[1:]:
                ids += [*turn.later, *turn.answer]
            return Prompt([*ids, *behind], num_turns, len(turns) - num_turns, is_shortened)
    return Prompt(alone, num_forgotten=len(turns))


@dataclass(frozen=True, slots=True)
class _Asked:
    """Ids of one turn: its question as the first and as a later one, and its answer."""

    first: list[int]
    later: list[int]
    answer: list[int]

    @classmethod
    def of(cls, parts: ChatParts, turn: Turn) -> _Asked:
        answer = parts.tokenizer.encode(turn.answer)[0].tolist()  # hostile text: no control token comes of it
        return cls(parts.question(turn.question), parts.follow_up(turn.question), answer)
