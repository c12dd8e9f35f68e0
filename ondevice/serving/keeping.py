"""The open documents of the screen, kept on disk: after a restart they are there again, pot, cursor and conversations.

Two files a document, and a copy of a PDF that is not too large, in a folder that only this user may read: the reading,
rewritten while it goes on, and beside it what is said of it, with the hash of the visitor's id: nobody gets it who
does not know that id. They go when the document is closed, and the oldest where they take too much of the disk.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from ondevice.documents.types import Document, Page
from ondevice.errors import DamagedPot, NotResumable, OndeviceError, PotError, PotMismatch
from ondevice.files import PRIVATE, data_dir, replacing
from ondevice.library.library import fingerprints_of
from ondevice.model.loading.load import LoadedModel
from ondevice.schema import SchemaError, loads, parse
from ondevice.serving.page_file import PageFile
from ondevice.serving.record import record_of
from ondevice.serving.visitor import owner_of
from ondevice.serving.workspace import Workspace
from ondevice.session.checkpoints import Checkpoints, Pace
from ondevice.session.engine import Engine, Session
from ondevice.session.saving import load_reading, load_session, reopened_as_chosen, save_session, saved_config

_ID = re.compile(r"[0-9a-f]{32}")
_RECORD, _PAGES, _SECRET = ".json", ".pdf", "secret"
_MOST_PAGES_BYTES = 20_000_000  # of a PDF that is copied; one with a password is not, for that is never written
_LOCK_SECONDS = 30.0  # that another app may take to write a reading
_MAX_VALUES = 20_000_000  # in a file: a record has the tokens of all answers


@dataclass(frozen=True, slots=True)
class Kept:
    """One kept document.

    Attributes:
        id: of its workspace.
        owner: `owner_of` its visitor's id.
        name: of the document.
        model: name of the model whose pot it is; `fingerprint` is that of its weights.
        is_resumable: the reading can go on from it; else it was at its end.
        pot_bytes, tier_bytes: memory once it is open.
        entry_id: where in the library it has been saved; "" where it has not.
        members: of a collection, the ids of its documents: of that, conversations are kept alone.
        is_unread: nothing of it was read: its text is kept in place of a pot.
        kept: when, ISO 8601, UTC.
        record: the conversations, and the numbers of the reading.
    """

    id: str
    owner: str
    name: str
    model: str
    fingerprint: str
    is_resumable: bool
    pot_bytes: int
    tier_bytes: int
    entry_id: str = ""
    members: tuple[str, ...] = ()
    is_unread: bool = False
    kept: str = ""
    record: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Text(Document):
    """A document as a file has it."""

    pages: tuple[Page, ...] = ()


@dataclass(slots=True)
class _Going:
    """The state of a workspace's reading: when it is to be written again, whether it was, whether it can go on from
    there, and whether it cannot be written at all."""

    pace: Pace
    is_written: bool = False
    is_resumable: bool = False
    is_refused: bool = False


class Keeping:
    """The kept documents in a folder.

    Args:
        folder: made when the first one is written; default: `open` in `data_dir()`.
        is_on: False: nothing is kept, and nothing is found.
    """

    def __init__(self, folder: Path | None = None, *, is_on: bool = True) -> None:
        self.folder, self.is_on = folder or data_dir() / "open", is_on
        self._checkpoints = Checkpoints(self.folder)
        self._going: dict[str, _Going] = {}

    def secret(self) -> str | None:
        """The secret that encrypts visitors' ids: the same after a restart; None where nothing is kept, or it cannot be
        read now: another one would part all visitors from what is kept of theirs."""
        if not self.is_on:
            return None
        path = self.folder / _SECRET
        try:
            with suppress(FileNotFoundError, ValueError):
                if _ID.fullmatch(text := path.read_text(encoding="ascii")):
                    return text
            with replacing(path) as temporary:
                temporary.write_text(secrets.token_hex(16), encoding="ascii")
            self.folder.chmod(0o700)
            return path.read_text(encoding="ascii")
        except OSError:  # perhaps the disk is full, or read-only: nothing can be kept then, either
            return None

    # -- writing -------------------------------------------------------------------------------------

    def keep_text(self, workspace: Workspace, loaded: LoadedModel) -> None:
        """Keep a document that was opened, until it is read; if that cannot be, its reading says so."""
        document = workspace.document
        if self.is_on and workspace.owner and document is not None:
            with suppress(OSError, PotError), self._alone():
                with replacing(self._checkpoints.named(workspace.id)) as temporary:
                    temporary.write_text(json.dumps(asdict(document)), encoding="utf-8")
                self._write_record(workspace, loaded, is_unread=True)
                self._going[workspace.id] = _Going(Pace(), is_written=True)
                self._copy_pages(workspace)

    def begin(self, workspace: Workspace) -> None:
        """A reading begins in this workspace; what was kept of it stays until the new one is written."""
        if self.is_on and workspace.owner:
            self._going[workspace.id] = _Going(Pace())

    def keep_if_due(self, workspace: Workspace) -> str:
        """Keep a reading between two passes, where it is time for that again; returns why it cannot be, once."""
        going = self._going.get(workspace.id)
        return self.keep(workspace) if going is not None and going.pace.is_due else ""

    def keep(self, workspace: Workspace) -> str:
        """Keep a document now, read to its end or not; returns why it cannot be, once, and "" else."""
        going, session = self._going.get(workspace.id), workspace.session
        if going is None or going.is_refused or session is None or not session.context.num_read:
            return ""
        began = time.monotonic()
        try:
            with self._alone(workspace.id if going.is_written else ""):
                going.is_resumable = self._write(workspace, session)
                self._write_record(workspace, session.context.loaded, is_resumable=going.is_resumable)
                self._copy_pages(workspace)
        except NotResumable:  # it is, at its end
            return ""
        except (OndeviceError, OSError) as error:  # reading goes on, and what was kept before stays
            going.is_refused = True
            what = error.what if isinstance(error, OndeviceError) else error.strerror or str(error)
            return f"This document is not kept for a restart: {what}."
        going.is_written = True
        going.pace.wrote(began)
        if workspace.is_closed:  # meanwhile
            self.forget(workspace)
        return ""

    def has(self, workspace: Workspace) -> bool:
        """True if the document of a workspace is kept."""
        going = self._going.get(workspace.id)
        return going is not None and going.is_written

    def note(self, workspace: Workspace) -> None:
        """Keep how the conversations stand now; the pot, where there is one, is as it was."""
        going, session = self._going.get(workspace.id), workspace.session
        has_no_pot = workspace.is_collection and bool(workspace.owner) and self.is_on
        if session is not None and (has_no_pot or self.has(workspace)):
            with suppress(OSError, PotError), self._alone("" if has_no_pot else workspace.id):
                is_resumable = going is not None and going.is_resumable
                self._write_record(workspace, session.context.loaded, is_resumable=is_resumable)

    def forget(self, workspace: Workspace) -> None:
        """Delete what is kept of a workspace."""
        self._going.pop(workspace.id, None)
        self._remove(workspace.id)

    def forget_all(self, visitor_id: str) -> None:
        """Delete all that is kept of this visitor, and what a kill has left without a record, which is nobody's."""
        with suppress(OSError):
            names = [path.name for path in self.folder.iterdir()]  # once: a second look that fails would see no record
            found = {match[0] for name in names if (match := _ID.search(name))}
            gone = {one for one in found - self._going.keys() if f"{one}{_RECORD}" not in names}
            self._remove_all(gone)
        if self.is_on:
            self._remove_all({one for one in self._ids() if self._owner(one) == owner_of(visitor_id)})

    def _remove_all(self, workspace_ids: Iterable[str]) -> None:
        for workspace_id in workspace_ids:
            self._going.pop(workspace_id, None)
            self._remove(workspace_id)

    @contextmanager
    def _alone(self, rewritten: str = "") -> Iterator[None]:
        """Let no other app with this folder write or delete meanwhile; raises OSError where there can be no lock, and
        PotError where another app has deleted `rewritten`, the id of a document that is kept already."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder.with_name(f"{self.folder.name}.lock"), _LOCK_SECONDS, PRIVATE):
            if rewritten and not (self.folder / f"{rewritten}{_RECORD}").exists():
                raise PotError("Another app has deleted what was kept of it")
            yield

    def _write(self, workspace: Workspace, session: Session) -> bool:
        """Write the pot; returns whether reading can go on from it, which a small model does not allow."""
        place = self._checkpoints.named(workspace.id)
        if session.context.spans or session.context.speculator is None:
            for event in self._checkpoints.write(session, place):
                workspace.telemetry.apply(event)
            return True
        save_session(session, place)
        return False

    def _copy_pages(self, workspace: Workspace) -> None:
        """Copy the document's file, so that its pages can be shown after a restart, too."""
        file, copy = workspace.page_file, self.folder / f"{workspace.id}{_PAGES}"
        if file is None or file.password is not None or copy.exists():
            return
        if file.path.stat().st_size <= _MOST_PAGES_BYTES:
            with replacing(copy) as temporary:
                shutil.copyfile(file.path, temporary)

    def _write_record(
        self, workspace: Workspace, loaded: LoadedModel, *, is_resumable: bool = False, is_unread: bool = False
    ) -> None:
        kept = Kept(
            id=workspace.id,
            owner=workspace.owner,
            name=workspace.name,
            model=loaded.name,
            fingerprint=" ".join(fingerprints_of(loaded)),
            is_resumable=is_resumable,
            pot_bytes=workspace.pot_bytes,
            tier_bytes=workspace.tier_bytes,
            entry_id=workspace.entry_id,
            members=workspace.member_ids,
            is_unread=is_unread,
            kept=datetime.now(UTC).isoformat(timespec="microseconds"),
            record=record_of(workspace),
        )
        with replacing(self.folder / f"{workspace.id}{_RECORD}") as temporary:
            temporary.write_text(json.dumps(asdict(kept), ensure_ascii=False), encoding="utf-8")

    # -- taking up -----------------------------------------------------------------------------------

    def of(self, visitor_id: object) -> list[Kept]:
        """The kept records of this visitor, the oldest first."""
        if not self.is_on or not isinstance(visitor_id, str):
            return []
        owner = owner_of(visitor_id)
        found = [kept for kept in map(self._find, self._ids()) if kept is not None and kept.owner == owner]
        return sorted(filter(self._has_pot, found), key=lambda kept: kept.kept)

    def away(self, visitor_id: object) -> list[Workspace]:
        """Workspaces for what is kept of this visitor and waits to be taken up, the oldest first."""
        return [
            Workspace(
                kept.id,
                kept.owner,
                is_away=True,
                is_collection=bool(kept.members),
                opening_name=kept.name,
                entry_id=kept.entry_id,
            )
            for kept in self.of(visitor_id)
        ]

    def find(self, workspace: Workspace, loaded: LoadedModel) -> Kept:
        """The kept record of a workspace, for the model that is loaded; of what holds no pot, for any.

        Raises:
            PotMismatch: it was read with another model.
            PotError: it is gone, or cannot be read.
        """
        kept = self._find(workspace.id)
        if kept is None or not self._has_pot(kept):
            what = "What was kept of it is gone, or cannot be read"
            raise PotError(what, where=workspace.name, fix="Open the document again.")
        if not (kept.members or kept.is_unread) and kept.fingerprint != " ".join(fingerprints_of(loaded)):
            what = f"It was read with {kept.model}, and {loaded.name} is loaded"
            fix = "Start the app with that model, or open the document again."
            raise PotMismatch(what, where=kept.name, fix=fix)
        return kept

    def open(self, engine: Engine, kept: Kept) -> Session:
        """The session as it was kept, and is from now on; raises PotError where it is damaged, or there is no room."""
        place = self._checkpoints.named(kept.id)
        try:
            config = reopened_as_chosen(saved_config(place), engine.config)
            session = (load_reading if kept.is_resumable else load_session)(engine, place, config)
        except DamagedPot as error:
            if not isinstance(error.__cause__, OSError):  # which may pass; else it would be tried with every start
                self._remove(kept.id)
            raise
        self._going[kept.id] = _Going(Pace(), is_written=True, is_resumable=kept.is_resumable)
        return session

    def text(self, kept: Kept) -> Document:
        """The document as it was kept unread; raises PotError where it is damaged, or cannot be read."""
        try:
            document = parse(_Text, loads(self._checkpoints.named(kept.id).read_bytes(), _MAX_VALUES))
        except (OSError, SchemaError) as error:
            if isinstance(error, SchemaError):
                self._remove(kept.id)
            raise DamagedPot(str(error), where=kept.name) from error
        self._going[kept.id] = _Going(Pace(), is_written=True)
        return document

    def pages(self, workspace: Workspace) -> PageFile | None:
        """The copy of a workspace's file; None where there is none."""
        copy = self.folder / f"{workspace.id}{_PAGES}"
        return PageFile(copy) if copy.is_file() else None

    def _ids(self) -> list[str]:
        with suppress(OSError):
            return [path.stem for path in self.folder.iterdir() if path.suffix == _RECORD and _ID.fullmatch(path.stem)]
        return []

    def _find(self, workspace_id: str) -> Kept | None:
        """None where it cannot be read: what fails now, or belongs to another version, may be whole another time."""
        with suppress(OSError, SchemaError, OndeviceError):
            kept = parse(Kept, self._data(workspace_id))
            if kept.id == workspace_id:
                return kept
        return None

    def _owner(self, workspace_id: str) -> object:
        """Whose it is, also where another version has written it; None where nobody can tell."""
        with suppress(OSError, SchemaError):
            data = self._data(workspace_id)
            return data.get("owner") if isinstance(data, dict) else None
        return None

    def _data(self, workspace_id: str) -> Any:
        return loads((self.folder / f"{workspace_id}{_RECORD}").read_bytes(), _MAX_VALUES)

    def _has_pot(self, kept: Kept) -> bool:
        """False where the pot is gone, as the oldest are in time; what is left beside it is deleted then."""
        if kept.members:
            return True
        try:
            self._checkpoints.named(kept.id).stat()
        except FileNotFoundError:
            self._remove(kept.id)
            return False
        except OSError:  # it may be there
            pass
        return True

    def _remove(self, workspace_id: str) -> None:
        with ExitStack() as stack:
            with suppress(OSError):  # without a lock it goes as well
                stack.enter_context(self._alone())
            for path in self.folder.glob(f"*{workspace_id}*"):  # what a kill has left half written, too
                with suppress(OSError):
                    path.unlink(missing_ok=True)
