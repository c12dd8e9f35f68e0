"""Conversations about a document: each has its own questions and answers, and remembers nothing of another one."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ondevice.documents.tokens import DocumentTokens
from ondevice.events import Source
from ondevice.schema import SchemaError, parse
from ondevice.serving.exchanges import Exchange, one_line

_LONG = 80  # characters of a first question that is a title as it is
MAX_NAME = 200  # characters


@dataclass(slots=True, eq=False)
class Conversation:
    """A conversation about a document.

    Attributes:
        id: random, and the same after a restart.
        name: as its user has called it; "": its first question is its title.
        exchanges: its questions with their answers, the oldest first.
        writing: the question whose answer is being written, and the answer so far; None at rest.
    """

    id: str = field(default_factory=lambda: secrets.token_hex(16))
    name: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    writing: tuple[str, str] | None = None

    @property
    def title(self) -> str:
        """Its name, or else its first question, shortened."""
        questions = (*(one.question for one in self.exchanges[:1]), *(self.writing or ())[:1], "New conversation")
        first = one_line(questions[0])
        return self.name or (first if len(first) <= _LONG else f"{first[: _LONG - 1].rstrip()}…")

    def has(self, words: str) -> bool:
        """True if each of the words stands in its title, a question or an answer, in any case of letters."""
        texts = (text for one in self.exchanges for text in (one.question, one.text))
        all_of_it = "\n".join((self.title, *texts)).casefold()
        return all(word in all_of_it for word in words.casefold().split())

    def to_dict(self) -> dict[str, Any]:
        """The conversation as JSON; `of` takes it."""
        return {"id": self.id, "name": self.name, "exchanges": [asdict(one) for one in self.exchanges]}

    def retell(self, tokens: DocumentTokens) -> None:
        """Follow its document to the tokens of another model: passages are where they were, and no answer goes on."""
        self.exchanges[:] = [
            replace(one, ids=(), sources=tuple(_moved(source, tokens) for source in one.sources))
            for one in self.exchanges
        ]

    def drop_sources(self) -> None:
        """Drop where its answers looked: that is not there any more, and no answer goes on."""
        self.exchanges[:] = [replace(one, ids=(), sources=(), citations=()) for one in self.exchanges]

    @classmethod
    def of(cls, saved: Any) -> Conversation | None:
        """From what `to_dict` has made of one; None for anything else, as it comes from a file."""
        try:
            one = parse(_Saved, saved)
        except SchemaError:
            return None
        return cls(one.id, one.name[:MAX_NAME], list(filter(None, map(Exchange.of, one.exchanges))))


@dataclass(frozen=True, slots=True)
class _Saved:
    """Fields of a conversation in a file; of its exchanges each is read by itself."""

    id: str
    name: str = ""
    exchanges: tuple[Any, ...] = ()


def _moved(source: Source, tokens: DocumentTokens) -> Source:
    """A passage with the numbers of the tokens that hold its characters now."""
    if source.page not in tokens.page_numbers:  # a file may hold any number
        return source
    index = tokens.page_numbers.index(source.page)
    first, spans = tokens.page_tokens(index)[0], tokens.page_spans(index)
    start, stop = (
        np.searchsorted(spans[:, 1], source.start_char, "right"),
        np.searchsorted(spans[:, 0], source.stop_char),
    )
    return replace(source, start_token=first + int(start), stop_token=first + int(stop))
