"""A question to the whole library: which of its documents to open, by the signatures of what each model has read."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

from ondevice.errors import NotInLibrary
from ondevice.library.library import INDEX, Entry, Library, fingerprints_of
from ondevice.library.signature_index import SignatureIndex
from ondevice.library.signatures import dimensions_of, signature_of, signature_of_question
from ondevice.session.engine import Engine, Session

CLOSEST = 5  # documents that are opened for a question; which of them lie side by side, their words say


class LibraryIndex:
    """The index of a library for one model.

    Args:
        engine: of the model.
    """

    def __init__(self, library: Library, engine: Engine) -> None:
        self._library, self._engine = library, engine
        name = sha256("\0".join(fingerprints_of(engine.loaded)).encode()).hexdigest()[:32]
        self._index = SignatureIndex(library.folder / INDEX / name, dimensions_of(engine.decoder))

    def __len__(self) -> int:
        """Documents that are in it."""
        return len(self._index)

    def missing(self) -> list[Entry]:
        """Entries of this model that are not in it, because another version saved them."""
        known = set(self._index.ids())
        loaded = self._engine.loaded
        return [one for one in self._library.entries() if one.id not in known and not one.misfit(loaded)]

    def add(self, session: Session, entry: Entry) -> None:
        """Add an entry by the keys of its open session.

        Raises:
            LibraryError: the index cannot be written.
            PotError: there is no room to make the signature.
        """
        self._index.add([(entry.id, signature_of(self._engine, session))])

    def closest(self, question: str, most: int) -> list[Entry]:
        """The entries whose keys are closest to a question's, the closest first.

        Raises:
            PotError: there is no room for the question.
        """
        found = list[Entry]()
        for entry_id, _ in self._index.search(signature_of_question(self._engine, question), len(self)):
            with suppress(NotInLibrary):  # deleted by hand
                entry = self._library.find(entry_id)
                if not entry.misfit(self._engine.loaded):
                    found.append(entry)
            if len(found) == most:
                break
        return found
