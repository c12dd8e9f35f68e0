"""A conversation as a file to keep, with its sources and all that it depends on."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ondevice.config import FIELDS, value_of
from ondevice.serving.exchanges import markdown_of, one_line
from ondevice.serving.workspace import Workspace
from ondevice.session.session import Session


def as_markdown(workspace: Workspace) -> str:
    """The whole conversation with its accounts and sources, and the settings that differ from the defaults."""
    about, unit = _about(workspace), workspace.document.unit if workspace.document is not None else "page"
    document = about["document"]
    lines = [
        f"# Questions about {one_line(document['name'])}",
        "",
        f"- Document: {one_line(document['name'])}, {document['pages']:,} {unit}s, {document['tokens']:,} tokens",
    ]
    if workspace.session is not None:
        pot = about["pot"]
        lines += [
            f"- Model: {about['model']}",
            *([f"- Pot: {pot['slots']:,} slots a layer, {pot['bytes']:,} bytes"] if pot else []),
            f"- Seed: {about['seed']}",
            f"- Settings other than the defaults: {_changed(workspace.session)}",
        ]
    for exchange in workspace.exchanges:
        lines += ["", markdown_of(exchange, workspace.heading)]
    return "\n".join([*lines, ""])


def as_json(workspace: Workspace) -> str:
    """The same as one JSON document."""
    exchanges = [
        {"question": one.question, "answer": one.text, "account": one.account}
        | one.record
        | {"sources": [asdict(source) for source in one.sources]}
        for one in workspace.exchanges
    ]
    return json.dumps({"schema": 1, **_about(workspace), "conversation": exchanges}, indent=1, ensure_ascii=False)


def _changed(session: Session) -> str:
    """Settings that differ from the defaults, as the command line has them."""
    values = {path: value_of(session.context.config, path) for path in FIELDS}
    changed = [f"`{one.option_name} {values[path]}`" for path, one in FIELDS.items() if values[path] != one.default]
    return ", ".join(changed) or "none"


def _about(workspace: Workspace) -> dict[str, Any]:
    """The subject of a conversation; of a document that waits for another model, without how it was read."""
    session, document = workspace.session, workspace.document
    assert document is not None
    about: dict[str, Any] = {"name": document.name, "kind": document.kind, "sha256": document.sha256}
    about = {"document": about | {"pages": document.num_pages or 0, "tokens": workspace.num_tokens}}
    if session is None:
        return about
    context, pot = session.context, None
    if context.has_pot:
        pot = {"slots": context.pot.shape.capacity, "bytes": context.pot.nbytes}
        pot |= {"speculator_bytes": context.speculator_bytes}
    return about | {
        "model": context.loaded.name,
        "pot": pot,
        "seed": context.config.seed,
        "settings": context.config.to_dict(),
    }
