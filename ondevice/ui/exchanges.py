"""Questions with their answers as records: for the list of sources, for follow-up questions, for a file to keep."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ondevice.events import Source
from ondevice.history import Turn

if TYPE_CHECKING:
    from ondevice.ui.workspace import Workspace

_SHOWN = 8  # answers whose sources are listed


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer.

    Attributes:
        question, text: as they were asked and given.
        account: what stands under the answer.
        record: the same in numbers; JSON.
        sources: where the answer looked; `note` says from how much of it.
    """

    question: str
    text: str
    account: str
    record: dict[str, Any] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    note: str = ""

    @classmethod
    def of(cls, saved: Any) -> Exchange | None:
        """From what `asdict` has made of one; None for anything else, as it comes from a file."""
        if not isinstance(saved, dict) or set(saved) != {field.name for field in fields(cls)}:
            return None
        texts = [saved["question"], saved["text"], saved["account"], saved["note"]]
        is_whole = all(isinstance(text, str) for text in texts) and isinstance(saved["record"], dict)
        if not is_whole or not isinstance(saved["sources"], list):
            return None
        sources = [_source_of(source) for source in saved["sources"]]
        if None in sources:
            return None
        return cls(**saved | {"sources": tuple(sources)})


def _source_of(saved: Any) -> Source | None:
    kinds: dict[str, Any] = {"text": str, "share": int | float, "attention_share": int | float}
    names = [field.name for field in fields(Source)]
    if not isinstance(saved, dict) or sorted(saved) != sorted(names):
        return None
    if not all(isinstance(saved[name], kinds.get(name, int)) for name in names):
        return None
    return Source(**saved)


def turns(workspace: Workspace) -> list[Turn]:
    """The conversation so far, for a follow-up question; answers without a word say nothing."""
    return [Turn(exchange.question, exchange.text) for exchange in workspace.exchanges if exchange.text]


def sources_panel(workspace: Workspace) -> dict[str, Any]:
    """The latest answers, the last one first, with their sources and what is copied of them."""
    unit = workspace.document.unit if workspace.document is not None else "page"
    return {
        "answers": [
            {
                "question": exchange.question,
                "note": exchange.note,
                "copy": _markdown_of(exchange, unit),
                "sources": [
                    {
                        "text": source.text,
                        "where": f"{unit.capitalize()} {source.page}",
                        "start": source.start_token,
                        "stop": source.stop_token,
                        "share": f"{100 * source.share:.1f} %",
                        "bar": source.share,
                    }
                    for source in exchange.sources
                ],
            }
            for exchange in reversed(workspace.exchanges[-_SHOWN:])
        ]
    }


def as_markdown(workspace: Workspace) -> str:
    """The whole conversation with its accounts, sources and settings."""
    about, unit = _about(workspace), workspace.document.unit if workspace.document is not None else "page"
    document = about["document"]
    lines = [
        f"# Questions about {one_line(document['name'])}",
        "",
        f"- Document: {one_line(document['name'])}, {document['pages']:,} {unit}s, {document['tokens']:,} tokens",
        f"- Model: {about['model']}",
        f"- Pot: {about['pot']['slots']:,} slots a layer, {about['pot']['bytes']:,} bytes",
        f"- Seed: {about['seed']}",
    ]
    for exchange in workspace.exchanges:
        lines += ["", _markdown_of(exchange, unit)]
    settings = json.dumps(about["settings"], indent=1)
    return "\n".join([*lines, "", "## Settings", "", "```json", settings, "```", ""])


def as_json(workspace: Workspace) -> str:
    """The same as one JSON document."""
    exchanges = [
        {
            "question": exchange.question,
            "answer": exchange.text,
            "account": exchange.account,
            **exchange.record,
            "sources": [asdict(source) for source in exchange.sources],
        }
        for exchange in workspace.exchanges
    ]
    return json.dumps({"schema": 1, **_about(workspace), "conversation": exchanges}, indent=1, ensure_ascii=False)


def _about(workspace: Workspace) -> dict[str, Any]:
    session, document, layout = workspace.session, workspace.document, workspace.layout
    assert session is not None, "a conversation is had over a pot"
    assert document is not None
    pot = session.used_pot()
    return {
        "document": {
            "name": document.name,
            "kind": document.kind,
            "sha256": document.sha256,
            "pages": document.num_pages or 0,
            "tokens": layout.num_tokens if layout is not None else 0,
        },
        "model": session.loaded.name,
        "pot": {"slots": pot.shape.capacity, "bytes": pot.nbytes, "speculator_bytes": session.speculator_bytes},
        "seed": session.config.seed,
        "settings": session.config.to_dict(),
    }


def _markdown_of(exchange: Exchange, unit: str) -> str:
    """Question, answer, account and sources; whatever others wrote is quoted, so that it heads and links nothing."""
    lines = [f"## {one_line(exchange.question)}", "", _quoted(exchange.text), "", f"*{one_line(exchange.account)}*"]
    if exchange.sources:
        lines += ["", f"Where the answer looked{exchange.note and ', ' + exchange.note} (attention is no proof):", ""]
        lines += [
            f"{i}. {unit.capitalize()} {source.page}, tokens {source.start_token + 1:,} to {source.stop_token:,}, "
            f"{source.share:.1%} of its extra attention:\n" + _quoted(source.text, indent="   ")
            for i, source in enumerate(exchange.sources, 1)
        ]
    return "\n".join(lines)


def _quoted(text: str, indent: str = "") -> str:
    return "\n".join(f"{indent}> {line}".rstrip() for line in (text or "(no word)").splitlines())


def one_line(text: str) -> str:
    """One line."""
    return " ".join(text.split())
