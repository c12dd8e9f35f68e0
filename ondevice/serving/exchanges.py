"""Questions with their answers as records: for the list of sources and for follow-up questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ondevice import words
from ondevice.decode.prompt import Turn
from ondevice.documents.shown import passage
from ondevice.events import WITHOUT_MODEL, Citation, Source
from ondevice.schema import SchemaError, parse

SHOWN = 8  # answers whose sources are listed
_CUT = ("length", "cancelled", "turn")  # reasons for the end of an answer that could go on


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer.

    Attributes:
        question, text: as they were asked and given.
        account: all that is told of the answer, in one line.
        summary: the line under the answer; `rows` are the account behind it, by name.
        record: the same in numbers; JSON.
        sources: where the answer looked; `note` says from how much of it.
        ids: the tokens of the answer, so that it can go on.
        attempt: which one at this answer it was.
        citations: passages that support its sentences, or say otherwise.
    """

    question: str
    text: str
    account: str
    record: dict[str, Any] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    note: str = ""
    ids: tuple[int, ...] = ()
    attempt: int = 0
    citations: tuple[Citation, ...] = ()
    summary: str = ""
    rows: tuple[tuple[str, str], ...] = ()

    @property
    def is_cut(self) -> bool:
        """True if the answer ended before the model ended it, and can go on."""
        return bool(self.ids) and self.record.get("stop_reason") in _CUT

    @property
    def num_unread(self) -> int:
        """Tokens of the document that were not read yet."""
        ledger = self.record.get("ledger")
        number = ledger.get("tokens_unread") if isinstance(ledger, dict) else 0
        return number if isinstance(number, int) else 0

    @property
    def unfounded(self) -> list[str]:
        """Claims of the answer that the document lacks; the record of a saved conversation may hold anything."""
        named = self.record.get("unfounded")
        return [one for one in named if isinstance(one, str)] if isinstance(named, list | tuple) else []

    @property
    def evasion(self) -> str:
        """Words for the part that the answer lacks and each one to its question has; "" if none."""
        return words.EVASIONS.get(str(self.record.get("evasion")), "")

    @property
    def cited(self) -> list[Citation]:
        """Citations of passages that are among its sources."""
        return [one for one in self.citations if 0 <= one.passage < len(self.sources)]

    @property
    def marks(self) -> list[tuple[str, str, int | None]]:
        """Marks above an answer: the name of each, its text in one line, and the passage that it is from."""
        said = [("The document says", f"“{one_line(one.text)}”", one.passage) for one in self.cited if not one.agrees]
        lacks = ", ".join(map(one_line, self.unfounded))
        marks = [*said, ("Not in the document", lacks, None), ("May not answer the question", self.evasion, None)]
        return [mark for mark in marks if mark[1]]

    @property
    def remembers(self) -> bool:
        """True if questions before it were known to it."""
        return bool(self.record.get("num_remembered"))

    @property
    def is_found(self) -> bool:
        """True if no model gave it: it is from the headings, or sentences of the text."""
        return self.record.get("stop_reason") in WITHOUT_MODEL

    @property
    def evidence(self) -> str:
        """The sentence above its sources."""
        return words.evidence(self.record.get("stop_reason"), self.note, len(self.sources))

    @classmethod
    def of(cls, saved: Any) -> Exchange | None:
        """From what `asdict` has made of one; None for anything else, as it comes from a file."""
        try:
            return parse(cls, saved)
        except SchemaError:
            return None


def turns(exchanges: Sequence[Exchange]) -> list[Turn]:
    """The conversation so far, for a follow-up question: what is worth remembering of it."""
    return [Turn.of(one.question, one.text, one.num_unread, one.evasion) for one in exchanges]


def sources_panel(exchanges: Sequence[Exchange], heading: Callable[[int], str], kind: str = "") -> dict[str, Any]:
    """The latest answers, the last one first, with their sources and what is copied of them.

    Args:
        heading: what a page of the document is called.
        kind: of document; what its text is shown without goes from the passages, too.
    """

    def shown(source: Source) -> dict[str, Any]:
        told = {"text": passage(source.text, kind), "where": heading(source.page), "bar": source.share}
        return told | {"start": source.start_token, "stop": source.stop_token}

    answers = [
        {"at": at, "question": one.question, "about": one.evidence, "copy": markdown_of(one, heading)}
        | {"sources": [shown(source) for source in one.sources]}
        for at, one in list(enumerate(exchanges))[: -SHOWN - 1 : -1]
    ]
    return {"answers": answers}


def markdown_of(exchange: Exchange, heading: Callable[[int], str]) -> str:
    """Question, answer, account and sources; whatever others wrote is quoted, so that it heads and links nothing."""
    lines = [f"## {one_line(exchange.question)}", "", _quoted(exchange.text), "", f"*{one_line(exchange.account)}*"]
    if exchange.sources:
        is_found = exchange.is_found
        where = "Sentences" if is_found else "Where the answer looked"
        doubt = "" if is_found else " (attention is no proof)"
        lines += ["", f"{where}{exchange.note and ', ' + exchange.note}{doubt}:", ""]
        for i, source in enumerate(exchange.sources, 1):
            tokens = f"tokens {source.start_token + 1:,} to {source.stop_token:,}"
            part = "" if is_found else f", {source.share:.1%} of its extra attention"
            lines.append(f"{i}. {heading(source.page)}, {tokens}{part}:\n" + _quoted(source.text, indent="   "))
    return "\n".join(lines)


def _quoted(text: str, indent: str = "") -> str:
    return "\n".join(f"{indent}> {line}".rstrip() for line in (text or "(no word)").splitlines())


def one_line(text: str) -> str:
    """One line."""
    return " ".join(text.split())
