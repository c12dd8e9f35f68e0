"""A document that lies in the library, read with the same model and settings: opened instead of read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ondevice import words
from ondevice.cli.terminal import printable, say
from ondevice.errors import OndeviceError

if TYPE_CHECKING:
    from ondevice.config import EngineConfig
    from ondevice.library.library import Entry
    from ondevice.planning.load_rate import LoadRule
    from ondevice.session.engine import Engine, Session

ReadAgain = Annotated[
    bool,
    typer.Option(
        "--read-again",
        hidden=True,
        help="Read the document also where the library of the app holds it, read with these settings.",
    ),
]


def from_library(engine: Engine, session: Session, *configs: EngineConfig) -> Session | None:
    """The library's own reading of the document that a session has open, and a line that says so.

    Args:
        configs: the settings of readings that would do, the best first.

    Returns:
        None: there is none, or reading the document again is faster here.
    """
    from ondevice.library.content_address import entry_with
    from ondevice.library.library import Library

    tokens, library = session.context.tokens, Library()
    if not tokens.keeps_text:
        return None
    found = (entry_with(library, engine.loaded, tokens, config) for config in configs)
    if (entry := next((one for one in found if one is not None), None)) is None:
        return None
    rule, named = _rule(engine, entry), f"The library holds this document, read with these settings ({_named(entry)})"
    if rule.pays_from is not None and tokens.num_tokens < rule.pays_from:
        say(f"{named}; reading it again is faster than opening that.")
        return None
    try:
        opened, _ = library.open(engine, entry.id)
    except OndeviceError as error:
        say(f"{named}; it cannot be opened, and is read again: {error.what}.", "yellow")
        return None
    read = words.plural(opened.context.num_read, "token")
    say(f"{named}: opened, {read}, none read again (--read-again reads it).")
    return opened


def _rule(engine: Engine, entry: Entry) -> LoadRule:
    """The time to open an entry here, beside reading, as fast as this model was last time."""
    from ondevice.files import data_dir
    from ondevice.planning.load_rate import LoadRule, load_rate
    from ondevice.serving.forecast import ReadingSpeeds

    known = ReadingSpeeds(data_dir() / "speeds.json").of_model(engine.loaded.source)
    return LoadRule(entry.size_bytes, load_rate(), known)


def _named(entry: Entry) -> str:
    return f"“{printable(entry.title)}”, saved {entry.saved[:10]}"
