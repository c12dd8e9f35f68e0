"""The library: read documents kept on disk with their pots, to be asked again without reading, also after a restart.

A folder for each, under a random name: the pot, the document's text and tokens (`saving`), what the list shows
(`entry.json`), and whatever else the caller wants back (`record.json`). An entry is complete or not there. Text and
tokens that entries have in common are on the disk once (`shared_files`); the words of all are in one `index`. Nothing
is written here unless it is asked for, and only this user may read it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from ondevice.config import EngineConfig
from ondevice.documents.tokens import DocumentTokens
from ondevice.documents.types import Document
from ondevice.errors import LibraryError, NotInLibrary, OndeviceError, PotError, PotMismatch
from ondevice.files import data_dir, replacing, sync_folder
from ondevice.library.index import LibraryIndex
from ondevice.library.shared_files import bytes_on_disk, share
from ondevice.model.loading.load import LoadedModel
from ondevice.pot.saving import BESIDE
from ondevice.schema import SchemaError, loads, parse
from ondevice.session.content_address import content_address
from ondevice.session.engine import Engine, Session
from ondevice.session.saving import load_session, reopened_as_chosen, save_session, saved_config, saved_tokens

FORMAT = 3
_POT, _ENTRY, _RECORD, _INDEX = "pot.safetensors", "entry.json", "record.json", "index"
_ID = re.compile(r"[0-9a-f]{32}")
_UNFINISHED = re.compile(r"\.[0-9a-f]{32}-(\d+-\d+)")  # being written or deleted, by that process
_FREE_BYTES_LEFT = 200_000_000  # what must stay free on the disk beside an entry
_TITLE_LENGTH = 200
_NOT_WRITTEN = {"id", "size_bytes", "problem"}  # of an entry, into its file
_MAX_VALUES = 20_000_000  # in a file: a record has the tokens of all answers
_OTHER_VERSION = "It was saved by another version of this program"


@dataclass(frozen=True, slots=True)
class Entry:
    """One saved document, as the list shows it.

    Attributes:
        id: name of its folder.
        title: what the user calls it; at first the document's name.
        saved: when, ISO 8601, UTC.
        document: name of the file it was read from.
        kind, unit: as in `Document`.
        num_pages: of the document.
        num_tokens: of the document.
        model: name of the model whose pot it is.
        fingerprints: of that model, its tokenizer and its data type.
        config: the settings it was read with; None where this version does not understand them.
        pot_bytes: memory of the pot once it is open, with the small model's where there is one.
        address: of its content, see `content_address`; "" where it is not known.
        size_bytes: of all its files, those that it has in common with other entries among them.
        problem: why it cannot be opened whatever the model; "" where it can.
    """

    id: str
    title: str
    saved: str = ""
    document: str = ""
    kind: str = ""
    unit: str = "page"
    num_pages: int = 0
    num_tokens: int = 0
    model: str = ""
    fingerprints: tuple[str, str, str] = ("", "", "")
    config: EngineConfig | None = None
    pot_bytes: int = 0
    address: str = ""
    size_bytes: int = 0
    problem: str = ""

    def misfit(self, loaded: LoadedModel) -> str:
        """Why it cannot be opened with this model; "" where it can."""
        if self.problem:
            return self.problem
        ours = fingerprints_of(loaded)
        if self.fingerprints[0] != ours[0]:
            same = " (or other weights or data type of it)" if self.model == loaded.name else ""
            return f"It was read with the model {self.model}{same}; the one loaded is {loaded.name}"
        if self.fingerprints != ours:
            return "It was read with another tokenizer or data type than those loaded"
        return ""


class Library:
    """The saved documents in a folder, made when the first one is saved; default: `library` in `data_dir()`."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or data_dir() / "library"
        self._index = LibraryIndex(self.folder / _INDEX)

    def require_readable(self) -> None:
        """Raises LibraryError where its folder is there and cannot be read, or something else is in its place."""
        try:
            os.scandir(self.folder).close()
        except FileNotFoundError:  # nothing was saved yet
            pass
        except OSError as error:
            what = f"The library cannot be read: {error.strerror}"
            fix = "Check the folder, or name another one with the environment variable ONDEVICE_DATA."
            raise LibraryError(what, where=str(self.folder), fix=fix) from error

    def entries(self) -> list[Entry]:
        """All that is saved, the newest first; a damaged entry is there too, and says so."""
        self._remove_unfinished()
        read = [(path, _read_entry(path)) for path in self._entry_folders()]
        # What another app has deleted meanwhile is gone, and not damaged.
        found = [entry for path, entry in read if not entry.problem or path.is_dir()]
        return sorted(found, key=lambda entry: (entry.saved, entry.id), reverse=True)

    def size_bytes(self) -> int:
        """Bytes of all entries on the disk: what several have in common counts once."""
        return bytes_on_disk(self._entry_folders())

    def find(self, entry_id: object) -> Entry:
        """One entry; raises NotInLibrary where there is none of that id."""
        return _read_entry(self._path(entry_id))

    def read_alike(self, loaded: LoadedModel, document: Document, config: EngineConfig) -> Entry | None:
        """The newest entry with just this text, read with these settings; None: there is none."""
        address = content_address(loaded, document, config)
        return next((one for one in self.entries() if one.address == address and not one.misfit(loaded)), None)

    def save(
        self, session: Session, record: dict[str, Any], *, replaces: str | None = None, address: str = ""
    ) -> Entry:
        """Keep a session that has read its document, with a `record` that is JSON.

        Args:
            replaces: an entry that goes once the new one is there; its title stays, and its address without another.
            address: of the content.

        Raises:
            PotError: the document is not read to its end.
            LibraryError: the disk has no room, or the folder cannot be written.
        """
        tokens, pot = session.context.tokens, session.context.pot
        old = None
        with suppress(NotInLibrary):
            old = self.find(replaces)
        entry = Entry(
            id=secrets.token_hex(16),
            title=old.title if old is not None and old.document else clean_title(tokens.document.name),
            saved=datetime.now(UTC).isoformat(timespec="seconds"),
            document=tokens.document.name,
            kind=tokens.document.kind,
            unit=tokens.document.unit,
            num_pages=tokens.num_pages,
            num_tokens=tokens.num_tokens,
            model=session.context.loaded.name,
            fingerprints=fingerprints_of(session.context.loaded),
            config=session.context.config,
            pot_bytes=pot.nbytes + session.context.speculator_bytes,
            address=address or (old.address if old is not None else ""),
        )
        with self._failing_as("saved", entry.title):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            self._require_room(entry.pot_bytes + session.context.host_bytes)
            partial = self.folder / f".{entry.id}-{_process(os.getpid())}"
            try:
                partial.mkdir(mode=0o700)
                save_session(session, partial / _POT, apart=True)
                share(partial.glob(f"*{BESIDE}"), self._entry_folders())
                _write_json(partial / _RECORD, record)
                _write_json(partial / _ENTRY, _entry_json(entry))
                sync_folder(partial)
                os.replace(partial, self.folder / entry.id)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
            sync_folder(self.folder)
        self._note_words(entry.id, tokens)
        if old is not None:
            with suppress(LibraryError):  # the new one is there, whatever becomes of the old one
                self.delete(old.id)
        return _read_entry(self.folder / entry.id)

    def open(self, engine: Engine, entry_id: object) -> tuple[Session, dict[str, Any]]:
        """A session with the pot and the document of an entry, and its record.

        Settings of reading are those it was saved with; device, seed and how answers are given are the engine's.

        Raises:
            LibraryError: there is no such entry.
            PotMismatch: it belongs to another model.
            PotError: it is damaged.
        """
        path = self._fitting(engine, entry_id)
        config = reopened_as_chosen(saved_config(path / _POT), engine.config)
        session, record = load_session(engine, path / _POT, config), _read_json(path / _RECORD)
        self._note_words(path.name, session.context.tokens)
        return session, record

    def text(self, engine: Engine, entry_id: object) -> DocumentTokens:
        """The document of an entry without its pot; raises as `open`."""
        path = self._fitting(engine, entry_id)
        tokens = saved_tokens(engine, path / _POT)
        self._note_words(path.name, tokens)
        return tokens

    def rename(self, entry_id: object, title: str) -> Entry:
        """Give an entry another title; raises LibraryError where either is missing, or it cannot be written."""
        path, title = self._path(entry_id), clean_title(title)
        if not title:
            raise LibraryError("The new name is empty", fix="Type a name.")
        entry = _read_entry(path)
        if entry.problem:
            raise LibraryError("A damaged entry cannot be renamed", where=entry.title, fix="Delete it.")
        with self._failing_as("renamed", entry.title):
            _write_json(path / _ENTRY, _read_json(path / _ENTRY) | {"title": title})
        return _read_entry(path)

    def delete(self, entry_id: object) -> str:
        """Delete an entry with all its files; raises LibraryError where there is none, or it cannot be deleted.

        Returns:
            A sentence on what is left of it in the index, for it could not be written; "": nothing.
        """
        path = self._path(entry_id)
        with self._failing_as("deleted", path.name):
            going = self.folder / f".{path.name}-{_process(os.getpid())}"
            os.replace(path, going)  # from here on it is not listed, however far deleting gets
            shutil.rmtree(going)
        try:  # last: a full disk has room again, and an index that cannot be used keeps nothing from being deleted
            self._clean_index()
        except (LibraryError, OSError) as error:
            if (self.folder / _INDEX).exists():  # else it was damaged, and begins again
                return f"It is deleted, but its words are in the index until another is saved or deleted: {error}"
        return ""

    def indexed(self, loaded: LoadedModel) -> tuple[list[Entry], int]:
        """The entries of a model that the index has, and the number of those that it has not: another version saved
        them, and they were not opened since.

        Raises:
            LibraryError: the index cannot be used.
        """
        known, ours = self._index.ids(), [one for one in self.entries() if not one.misfit(loaded)]
        found = [one for one in ours if one.id in known]
        return found, len(ours) - len(found)

    def closest(self, question: str, most: int, loaded: LoadedModel) -> list[Entry]:
        """The entries of a model that a question is about by its words, at most so many, the best first; the newest
        where it has no word of any.

        Raises:
            LibraryError: the index cannot be used.
        """
        found = list[Entry]()
        for entry_id in self._index.closest(question):
            with suppress(NotInLibrary):  # deleted by hand
                entry = self.find(entry_id)
                if not entry.misfit(loaded):
                    found.append(entry)
            if len(found) == most:
                break
        return found or self.indexed(loaded)[0][:most]

    def _note_words(self, entry_id: str, tokens: DocumentTokens) -> None:
        with suppress(LibraryError, OSError):  # whether the whole library can be asked for it or not, it is there
            if entry_id not in self._index.ids():
                self._index.add({entry_id: tokens.texts})
            self._clean_index()  # another app may have deleted it meanwhile

    def _clean_index(self) -> None:
        """Remove from the index what has no folder any more; raises LibraryError and OSError."""
        known = self._index.ids()  # first: what is saved meanwhile is in neither, or in the folder alone
        for entry_id in known.difference(os.listdir(self.folder)):
            self._index.remove(entry_id)

    def _fitting(self, engine: Engine, entry_id: object) -> Path:
        """The folder of an entry that the engine's model can open."""
        path = self._path(entry_id)
        reason = _read_entry(path).misfit(engine.loaded)
        if reason:
            raise PotMismatch(reason, fix="Start the app with that model, or read the document again.")
        return path

    def _path(self, entry_id: object) -> Path:
        """The folder of an entry. Only ids of our own making become paths."""
        if isinstance(entry_id, str) and _ID.fullmatch(entry_id):
            path = self.folder / entry_id
            if path.is_dir() and not path.is_symlink():
                return path
        raise NotInLibrary("There is no such document in the library", fix="It may have been deleted elsewhere.")

    def _folders(self) -> list[Path]:
        with suppress(OSError):
            return [path for path in self.folder.iterdir() if path.is_dir() and not path.is_symlink()]
        return []

    def _entry_folders(self) -> list[Path]:
        return [path for path in self._folders() if _ID.fullmatch(path.name)]

    def _require_room(self, num_bytes: int) -> None:
        free = shutil.disk_usage(self.folder).free
        if free < num_bytes + _FREE_BYTES_LEFT:
            what = f"The disk is nearly full: {free / 1e6:,.0f} MB are free, and this takes {num_bytes / 1e6:,.0f} MB"
            raise LibraryError(what, fix="Delete something from the library, or make room elsewhere.")

    def _remove_unfinished(self) -> None:
        """Remove what a killed process has left half written or half deleted."""
        for path in self._folders():
            match = _UNFINISHED.fullmatch(path.name)
            if match is not None and match[1] != _process(int(match[1].partition("-")[0])):
                shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _failing_as(self, done: str, title: str) -> Iterator[None]:
        try:
            yield
        except (OSError, PotError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if cause is None:  # not the disk: the session cannot be saved
                raise
            what = f"It cannot be {done}: {getattr(cause, 'strerror', None) or cause}"
            raise LibraryError(what, where=title, fix="Check the disk and its permissions.") from error


def clean_title(text: str) -> str:
    """A title on one line, without control characters, of a length that a list can show."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_TITLE_LENGTH]


def _process(pid: int) -> str:
    """A running process by its number and its beginning, for numbers come again; "" where there is none."""
    try:
        return f"{pid}-{int(psutil.Process(pid).create_time())}"
    except psutil.Error:
        return ""


def fingerprints_of(loaded: LoadedModel) -> tuple[str, str, str]:
    """Those of a model, its tokenizer and its data type."""
    return loaded.fingerprint, loaded.tokenizer.fingerprint, str(loaded.dtype)


def _entry_json(entry: Entry) -> dict[str, Any]:
    data = {name: value for name, value in asdict(replace(entry, config=None)).items() if name not in _NOT_WRITTEN}
    return {"format": FORMAT, **data, "config": entry.config.to_dict() if entry.config is not None else None}


def _read_entry(path: Path) -> Entry:
    try:
        size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
        has_pot = (path / _POT).is_file()
    except OSError:  # it is being deleted, or is not ours to read
        size, has_pot = 0, False
    damaged = Entry(path.name, "Damaged entry", size_bytes=size, problem="It is damaged")
    try:
        data = _read_json(path / _ENTRY)
        found, config, title = data.pop("format", None), data.pop("config", None), data.get("title")
        if found != FORMAT and isinstance(title, str):
            return replace(damaged, title=clean_title(title), problem=_OTHER_VERSION)
        if found != FORMAT or data.keys() & _NOT_WRITTEN:
            return damaged
        entry = parse(Entry, {**data, "id": path.name, "size_bytes": size})
    except (OndeviceError, SchemaError):
        return damaged
    entry = replace(entry, title=clean_title(entry.title))
    if min(entry.num_pages, entry.num_tokens, entry.pot_bytes) < 0:
        return damaged
    if not has_pot:
        return replace(entry, problem="Its pot is missing")
    try:
        return replace(entry, config=parse(EngineConfig, config))
    except (OndeviceError, SchemaError):
        return replace(entry, problem=_OTHER_VERSION)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = loads(path.read_bytes(), _MAX_VALUES)
        if not isinstance(data, dict):
            raise SchemaError("it is no object")
    except (OSError, SchemaError) as error:
        raise LibraryError("The entry is damaged", where=path.name, fix="Delete it.") from error
    return data


def _write_json(path: Path, data: dict[str, Any]) -> None:
    """Write a file that only this user may read, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
