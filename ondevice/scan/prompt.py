"""The two questions that a scan puts to a model, each after worked examples, which are read once.

The first asks for what a chunk has; the second, about one sentence and one thing, whether that is what was asked for.
Small models name something of nearly every chunk, and are better at judging it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ondevice.model.chat import ChatParts

_NAME = "{text}\n\n{question} Copy each from the text above, one a line. If there is none: - none"
_JUDGE = "Text: {text}\nQuestion: {question}\nProposed answer: {thing}\nIs that right by the text? Answer yes or no."
YES, NO = "yes", "no"
_TIMES = re.compile(r"(?i)^\s*(?:how many times|how often)\b")
_COUNTING = re.compile(r"(?i)^\s*(?:how many|(?:what is|give|count|name)?\s*(?:the\s+)?number of)\b")
# For the screen, too: Python's and the browser's regular expressions read it alike; case does not count.
ASKS_FOR_ALL = (
    r"^\s*(?:please\s+|(?:can|could) you\s+)*"
    r"(?:list\b|count\b|how many\b|how often\b|(?:what is\s+)?the number of\b"
    r"|(?:name|give|find|show|tell|mention|what|who|which)\b.*\b(?:all|every|each)\b)"
)
_ASKS_FOR_ALL = re.compile(ASKS_FOR_ALL, re.IGNORECASE)
# Of several kinds, so that none is copied: what is asked for beside its like, a row, and nothing at all.
_CHUNKS = (
    (
        "The harbour master was in a poor temper. A boat called Sea Pink lay at the mole, and beside her the Morning "
        "Star, a boat of nine tons. Nobody spoke of the ferry Hilda.",
        "Which boats lay at the mole?",
        "- Sea Pink\n- Morning Star",
    ),
    (
        "It rained for most of the night, and Mrs. Hale would not go out. My aunt had written twice from Leeds.",
        "List all paintings that were sold.",
        "- none",
    ),
    (
        "In the end Mr. Doyle bought the clock for £14. Dinner was at eight, and the lamp went to him for £3.",
        "List all prices that Mr. Doyle paid.",
        "- £14\n- £3",
    ),
    (
        "Colonel Reed spoke of the war, and the talk went on until the fire was out.",
        "Which guests came from Cork?",
        "- none",
    ),
    (
        "The bell rang at seven, to nobody's joy, and they sat down to dinner at eight.",
        "When did the bell ring?",
        "- seven",
    ),
)
_SENTENCES = (
    ("A boat called Sea Pink lay at the mole, in a poor state.", "List all boats at the mole.", "Sea Pink", YES),
    ("Nobody spoke of the ferry Hilda that day.", "List all boats at the mole.", "Hilda", NO),
    ("Mr. Doyle bought the clock for £14.", "Which things did Mr. Doyle buy?", "the clock", YES),
    ("The vase was bought by his sister, who paid £3.", "Which things did Mr. Doyle buy?", "the vase", NO),
    ("Dinner was at eight.", "When did the bell ring?", "eight", NO),
    ("The bell rang at seven, to nobody's joy.", "When did the bell ring?", "seven", YES),
)


def asks_for_all(question: str) -> bool:
    """True if a question looks as if its answer were spread over the whole text, so that a scan may be offered."""
    return _ASKS_FOR_ALL.match(question) is not None


def for_each(question: str) -> str:
    """The question as it is put to a chunk: one that asks how many there are would be answered with a number."""
    return _COUNTING.sub("Which", _TIMES.sub("When", question))


def naming_examples(chat: ChatParts) -> list[int]:
    """Ids of the worked examples of the first question."""
    return _turns(chat, [(_NAME.format(text=text, question=asked), answer) for text, asked, answer in _CHUNKS])


def judging_examples(chat: ChatParts) -> list[int]:
    """Ids of the worked examples of the second question."""
    return _turns(
        chat,
        [(_JUDGE.format(text=text, question=asked, thing=thing), answer) for text, asked, thing, answer in _SENTENCES],
    )


def naming(chat: ChatParts, text: str, question: str) -> list[int]:
    """Ids of the first question about a chunk, after the examples."""
    return chat.follow_up(_NAME.format(text=text, question=question))


def judging(chat: ChatParts, text: str, question: str, thing: str) -> list[int]:
    """Ids of the second question about a thing in a passage, after the examples."""
    return chat.follow_up(_JUDGE.format(text=text, question=question, thing=thing))


def _turns(chat: ChatParts, turns: Sequence[tuple[str, str]]) -> list[int]:
    """A conversation up to its last answer."""
    encode, ids = chat.tokenizer.encode, list(chat.prefix)
    for number, (asked, answer) in enumerate(turns):
        if number:
            ids += chat.follow_up(asked)
        else:  # no document comes first
            ids += [*encode(asked)[0].tolist(), *chat.tokenizer.encode_prompt(chat.after_question)]
        ids += encode(answer)[0].tolist()
    return ids
