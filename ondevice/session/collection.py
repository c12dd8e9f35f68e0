"""A collection: the texts of several documents, asked together from the passages that a search finds in all of them.

Nothing of it need be read: passages are read for their question, in a context of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from ondevice.config import PotConfig
from ondevice.documents.tokens import DocumentTokens
from ondevice.documents.types import Document
from ondevice.errors import PotError
from ondevice.events import PageNote
from ondevice.session.engine import Engine
from ondevice.session.session import Session


def collect(engine: Engine, texts: Sequence[DocumentTokens]) -> Session:
    """A session to be asked, whose document has the pages of all texts, numbered through; those given stay as they are.

    Args:
        texts: of the engine's tokenizer, each to its end.

    Raises:
        PotError: there is none, or one of them is a stream; says which.
    """
    if not texts:
        raise PotError("There is no document in the collection", fix="Name one or more.")
    for tokens in texts:
        if not tokens.keeps_text:
            where, fix = tokens.document.name, "Save it to a file, and name that."
            raise PotError("A stream has no text to be found again", where=where, fix=fix)
    session = Session(engine.plan(replace(engine.config, pot=PotConfig())))
    joined, pages = _joined(engine, texts)
    documents = list(_apart([tokens.document for tokens in texts]))
    session.context.tokens, session.context.spans = joined, [(0, joined.num_tokens)]
    joined.places = tuple(f"{documents[which].name}, {documents[which].unit} {number}" for which, number in pages)
    joined.firsts = tuple(accumulate((tokens.num_tokens for tokens in texts[:-1]), initial=0))
    return session


def _joined(engine: Engine, texts: Sequence[DocumentTokens]) -> tuple[DocumentTokens, list[tuple[int, int]]]:
    """The tokens of all documents as those of one, and of each page its document, an index, and its number there."""
    states, pages, notes = [], list[tuple[int, int]](), list[PageNote]()
    first_token = 0
    for which, tokens in enumerate(texts):
        state, first_page = tokens.state(), len(pages)
        numbers = state["page_numbers"].tolist()
        at = {number: first_page + index + 1 for index, number in enumerate(numbers)}
        notes += [replace(note, page=at[note.page]) for note in tokens.notes]
        pages += [(which, number) for number in numbers]
        states.append(state | {"page_starts": state["page_starts"] + np.int32(first_token)})
        first_token += tokens.num_tokens
    joined = {name: np.concatenate([state[name] for state in states]) for name in states[0]}
    joined["page_numbers"] = np.arange(1, len(pages) + 1, dtype=np.int32)
    joined["num_tokens"] = np.array([first_token])
    name = "1 document" if len(texts) == 1 else f"{len(texts)} documents"
    document = Document(name, "collection", "page", (), num_pages=len(pages))
    encode, vocab_size = engine.loaded.tokenizer.encode, engine.decoder.parts.vocab_size
    return DocumentTokens.restore(document, encode, joined, notes, vocab_size), pages


def _apart(documents: Sequence[Document]) -> Iterator[Document]:
    """The documents, those of equal names with a number."""
    number, times = Counter[str](), Counter(document.name for document in documents)
    for document in documents:
        number[name := document.name] += 1
        yield replace(document, name=f"{name} ({number[name]})") if times[name] > 1 else document
