"""The reading of one document, kept on disk while it goes on, and taken up again by the same command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ondevice import words
from ondevice.cli.terminal import say
from ondevice.errors import NotResumable, OndeviceError, PotError
from ondevice.events import Event

if TYPE_CHECKING:
    from ondevice.documents import Document
    from ondevice.session.checkpoints import Checkpoints
    from ondevice.session.engine import Engine, Session


class Keeper:
    """Keeps one reading. Where not `is_on` nothing is kept or taken up, and what was kept of this document goes."""

    def __init__(self, engine: Engine, document: Document, *, is_on: bool = True) -> None:
        from ondevice.session.checkpoints import Checkpoints, Pace

        self._engine = engine
        self._checkpoints: Checkpoints = Checkpoints()
        self._place: Path | None = None
        if document.num_pages is not None:  # a stream is gone once it is read
            self._place = self._checkpoints.place(engine, document)
        self._refusal = ""
        if not is_on:
            self.remove()
            self._place = None
        self._pace = Pace()

    @property
    def is_on(self) -> bool:
        """True if it can keep anything."""
        return self._place is not None

    def open(self) -> Session | None:
        """The session that an earlier command was stopped in, and a line that says so; None: there is none.

        Raises:
            PotError: there is no room for it; it stays.
        """
        from ondevice.session.saving import load_reading

        if self._place is None or not self._place.is_file():
            return None
        try:
            session = load_reading(self._engine, self._place)
        except PotError as error:
            if type(error) is PotError and error.__cause__ is None:  # no room for it just now
                raise
            say(f"What was kept of an earlier reading is of no use, and it begins again: {error.what}.", "yellow")
            self.remove()
            return None
        context = session.context
        read = f"{words.count(context.num_read)} of {words.plural(context.tokens.num_tokens, 'token')}"
        say(f"Going on where reading was broken off: {read} were read before (--no-resume begins again).")
        return session

    def keep_if_due(self, session: Session) -> list[Event]:
        """Keep the session between two passes, where it is time for that again."""
        if self._place is None or not self._pace.is_due or not session.context.spans:
            return []
        return self._write(session, self._place)

    def keep(self, session: Session) -> str:
        """Keep the session now; returns a sentence for the user, "" where nothing is to be kept."""
        if self._place is not None:
            self._write(session, self._place)
        if self._place is None:
            return self._refusal
        return "They are kept: the same command goes on from there."

    def remove(self) -> None:
        """Delete what is kept."""
        if self._place is not None:
            self._checkpoints.remove(self._place)

    def _write(self, session: Session, place: Path) -> list[Event]:
        began = time.monotonic()
        try:
            events = self._checkpoints.write(session, place)
        except OndeviceError as error:  # reading goes on, and what was kept before stays
            self._place, self._refusal = None, f"They could not be kept: {error.what}."
            if not isinstance(error, NotResumable):
                say(f"Reading goes on, and is not kept while it does: {error.what}.", "yellow")
            return []
        self._pace.wrote(began)
        return events
