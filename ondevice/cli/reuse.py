"""A document that lies in the library, read with the same model and settings: opened instead of read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ondevice import words
from ondevice.cli.terminal import printable, say
from ondevice.errors import OndeviceError

if TYPE_CHECKING:
    from ondevice.config import EngineConfig
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
        None: there is none.
    """
    from ondevice.library.library import Library

    tokens, library = session.context.tokens, Library()
    if not tokens.keeps_text:
        return None
    found = (library.read_alike(engine.loaded, tokens.document, config) for config in configs)
    if (entry := next((one for one in found if one is not None), None)) is None:
        return None
    name = f"“{printable(entry.title)}”, saved {entry.saved[:10]}"
    named = f"The library holds this document, read with these settings ({name})"
    try:
        opened, _ = library.open(engine, entry.id)
    except OndeviceError as error:
        say(f"{named}; it cannot be opened, and is read again: {error.what}.", "yellow")
        return None
    read = words.plural(opened.context.num_read, "token")
    say(f"{named}: opened, {read}, none read again (--read-again reads it).")
    return opened
