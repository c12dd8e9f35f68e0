"""The two questions that a scan puts to a model, each after worked examples, which are read once.

The first asks for what a chunk has; the second, about one sentence and one thing, whether that is what was asked for.
Small models name something of nearly every chunk, and are better at judging it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from ondevice.files import asset
from ondevice.model.chat import ChatParts

_NAME = "{text}\n\n{question} Copy each from the text above, one a line. If there is none: - none"
_JUDGE = "Text: {text}\nQuestion: {question}\nProposed answer: {thing}\nIs that right by the text? Answer yes or no."
YES, NO = "yes", "no"
# A question for a number, and what asks each chunk instead.
_COUNTING = (
    (re.compile(r"(?i)^\s*(?:how many times|how often)\b"), "When"),
    (re.compile(r"(?i)^\s*(?:how many|(?:what is|give|count|name)?\s*(?:the\s+)?number of)\b"), "Which"),
    (re.compile(r"(?i)^\s*wie oft\b"), "Wann"),
    (re.compile(r"(?i)^\s*wie viele\b"), "Welche"),
)
# For the screen, too: Python's and the browser's regular expressions read it alike; case does not count.
ASKS_FOR_ALL = (
    r"^\s*(?:please\s+|bitte\s+|(?:can|could) you\s+)*"
    r"(?:list\b|count\b|how many\b|how often\b|(?:what is\s+)?the number of\b"
    r"|(?:name|give|find|show|tell|mention|what|who|which)\b.*\b(?:all|every|each)\b"
    r"|liste\b|zähle\b|wie viele\b|wie oft\b|(?:nenne|gib|finde|zeige?|was|wer|welche)\b.*\b(?:alles?|jede[nrs]?)\b)"
)
_ASKS_FOR_ALL = re.compile(ASKS_FOR_ALL, re.IGNORECASE)
# Of several kinds, so that none is copied: what is asked for beside its like, a row, and nothing at all.
_EXAMPLES = json.loads(asset("scan_examples.json"))


def asks_for_all(question: str) -> bool:
    """True if a question looks as if its answer were spread over the whole text, so that a scan may be offered."""
    return _ASKS_FOR_ALL.match(question) is not None


def for_each(question: str) -> str:
    """The question as it is put to a chunk: one that asks how many there are would be answered with a number."""
    for pattern, instead in _COUNTING:
        question = pattern.sub(instead, question)
    return question


def naming_examples(chat: ChatParts) -> list[int]:
    """Ids of the worked examples of the first question."""
    return _turns(chat, [(_NAME.format(**one), one["answer"]) for one in _EXAMPLES["chunks"]])


def judging_examples(chat: ChatParts) -> list[int]:
    """Ids of the worked examples of the second question."""
    return _turns(chat, [(_JUDGE.format(**one), one["answer"]) for one in _EXAMPLES["sentences"]])


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
