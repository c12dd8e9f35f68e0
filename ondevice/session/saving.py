"""Sessions on disk: a pot with its document's text and provenance, to be asked again without reading."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from ondevice.config import FIELDS, EngineConfig, value_of, with_values
from ondevice.context import Context
from ondevice.documents.tokens import DocumentTokens
from ondevice.documents.types import Document, Page
from ondevice.errors import DamagedPot, NotResumable, PotError, PotMismatch
from ondevice.events import Event
from ondevice.machine.memory import memory_watched
from ondevice.model.loading.load import LoadedModel, require_local
from ondevice.pot.restoring import restore_
from ondevice.pot.saving import read_tensors, write_pot
from ondevice.pot.slots import CodedSlots
from ondevice.prefill.reader_state import reader_state, restore_reader
from ondevice.session.engine import Engine
from ondevice.session.pot_header import Counts, PotHeader
from ondevice.session.session import Session

_PREFIX = "tokens."  # of the tensors that belong to the document
_DEPTHS = "depths"  # the whole name of one tensor
_TIER = "tier."
_SPECULATOR = "speculator."
_READER = "reader."
_FRAME = "frame."
_SHARED = ("ids", "spans", "text")  # of those the large ones, which pots of one document have in common
_TOKEN_BYTES = 14  # id, characters and depth of a token in a file
# Free to differ: they do not touch what was read.
_ANSWERS = {path for path, one in FIELDS.items() if one.answers}


def save_session(session: Session, path: Path, *, apart: bool = False) -> None:
    """Write the session to one file, whole or not at all.

    Args:
        apart: the document's text and tokens lie in files beside it, which other pots of it may share.

    Raises:
        PotError: nothing has been read, reading is not finished, or the file cannot be written.
    """
    if session.context.spans:
        raise PotError("The document is not read to its end", fix="Resume the reading, then save.")
    session.reader.score_novelty()
    with memory_watched("saving", session.context.decoder.device):
        _write(session, path, {}, apart=apart)


def save_reading(session: Session, path: Path) -> list[Event]:
    """Write a session between two passes, so that `load_reading` goes on as if nothing had been written.

    Returns:
        Events of copies that were waited for.

    Raises:
        NotResumable: it reads a stream, or with a small model.
        PotError: no document is open, or the file cannot be written.
        OutOfMemory: there is no room for a copy of the pot; the session is as it was.
    """
    require_resumable(session)
    events = session.context.settle(session.clock)
    parts = {_READER + name: tensor for name, tensor in reader_state(session.reader, session.context).items()}
    with memory_watched("saving", session.context.decoder.device):
        _write(session, path, parts, is_reading=True)
    return events


def require_resumable(session: Session) -> None:
    """Refuse a reading that cannot be written in its middle; raises NotResumable."""
    if not session.context.tokens.keeps_text:
        raise NotResumable("A stream cannot be gone back to", fix="Save it to a file first.")
    if session.context.speculator is not None:
        raise NotResumable(
            "A reading that a small model takes part in cannot be kept in its middle",
            fix="Read without {spec.keep}.",
        )


def most_saved_bytes(session: Session) -> int:
    """Bytes that the session takes in a file, at most, its document read to its end."""
    context = session.context
    pot, tokens = context.pot, context.tokens
    slots = [buffer for layer in pot.slots.layers for buffer in layer[: len(pot.slots.names)]]
    buffers = sum(buffer.nbytes for buffer in (*slots, *pot.provenance(), *pot.native.buffers))
    text = sum(len(text.encode()) for text in tokens.texts) + _TOKEN_BYTES * tokens.num_tokens
    host = 0 if context.host is None else context.host.most_bytes
    return buffers + text + host + context.speculator_bytes


def require_place(path: Path, num_bytes: int = 0) -> None:
    """Refuse a place where a file of so many bytes could not be written; its folder is made where it is missing.

    Raises:
        PotError: it cannot be written, or the disk has no room.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=path.parent):
            free = shutil.disk_usage(path.parent).free
    except OSError as error:
        reason = error.strerror or error
        raise PotError(f"The pot cannot be saved: {reason}", where=str(path), fix="Choose another place.") from error
    if free < num_bytes:
        raise PotError(
            f"The pot cannot be saved: it takes up to {num_bytes / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free",
            where=str(path),
            fix="Make room, or choose another place.",
        )


def _write(
    session: Session, path: Path, parts: dict[str, Tensor], *, apart: bool = False, is_reading: bool = False
) -> None:
    """Write a session, with what there is of a reading in its middle; raises as `write_pot`."""
    session.require_whole()
    tokens, pot, spans = session.context.tokens, session.context.pot, session.context.spans
    names = [field.name for field in fields(Document) if field.name != "pages"]
    # What settings left open is settled now; another tier beside the pot does not change it.
    config = with_values(session.context.config, {"pot.slot_shares": session.plan.shares})
    header = _fingerprints(session) | {
        "config": config.to_dict(),
        "document": {name: getattr(tokens.document, name) for name in names},
        "notes": [asdict(note) for note in tokens.notes],
        "counts": asdict(Counts(session.context.num_read, session.context.num_skipped, session.context.num_cycles)),
        "capacity": pot.shape.capacity,
        "capacities": pot.shape.capacities,
        "saved": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    arrays = {_PREFIX + name: torch.from_numpy(array.copy()) for name, array in tokens.state().items()}
    arrays[_DEPTHS] = torch.from_numpy(session.context.depths.state.copy())
    if (host := session.context.host) is not None:
        arrays |= {_TIER + name: tensor for name, tensor in host.state(as_it_lies=is_reading).items()}
    if pot.frame is not None:
        arrays |= {_FRAME + name: part.clone() for name, part in pot.frame._asdict().items()}
    if session.context.speculator is not None:
        arrays |= {_SPECULATOR + name: tensor for name, tensor in session.context.speculator.state().items()}
    beside = [_PREFIX + name for name in _SHARED] if apart else []
    write_pot(path, {**pot.state(), **arrays, **parts}, header | ({"spans": spans} if spans else {}), beside)


def load_session(engine: Engine, path: Path, config: EngineConfig | None = None) -> Session:
    """Open a saved session. Its settings must be those of `config`, or of the engine: see `saved_config`.

    Raises:
        PotError: the file is missing or damaged.
        PotMismatch: it belongs to another model, tokenizer or method; says which.
    """
    header = PotHeader.read(path)
    if header.spans:
        raise PotError("The document is not read to its end", where=str(path), fix="Read the document again.")
    return _load(engine, path, header, config)


def load_reading(engine: Engine, path: Path, config: EngineConfig | None = None) -> Session:
    """Open what `save_reading` wrote; `resume` goes on.

    Args:
        config: default: the engine's settings wherever they do not touch what was read.

    Raises:
        PotError, PotMismatch: as `load_session`.
    """
    header = PotHeader.read(path)
    return _load(engine, path, header, config or reopened(header.config, engine.config), is_reading=True)


def _load(
    engine: Engine, path: Path, header: PotHeader, config: EngineConfig | None, *, is_reading: bool = False
) -> Session:
    session = engine.session(config)
    header.check_match(path, _fingerprints(session))
    tensors = read_tensors(path, header.sha256)
    try:
        _fill(session, header, tensors, is_reading=is_reading)
    except PotError as error:
        error.where = error.where or str(path)
        raise
    return session


def _fill(session: Session, header: PotHeader, tensors: dict[str, Tensor], *, is_reading: bool) -> None:
    """Put what was saved into a new session; each part checks its own, and after an error the session is of no use.

    Raises:
        DamagedPot: something of it cannot be.
        PotError: there is no room for it.
    """
    arrays, tier, speculated, depths, reader, frame = (
        _parts(tensors, prefix) for prefix in (_PREFIX, _TIER, _SPECULATOR, _DEPTHS, _READER, _FRAME)
    )
    context, saved, counts = session.context, header.config, header.counts
    context.tokens = tokens = _tokens(header, arrays, context.loaded, context.decoder.parts.vocab_size)
    context.spans = _spans(tokens.num_tokens, header.spans)
    context.depths.restore(depths, context.num_positions)
    context.num_read, context.num_skipped, context.num_cycles = counts.num_read, counts.num_skipped, counts.num_cycles
    _check_counts(context)
    if context.speculator is not None:
        context.speculator.restore(speculated, tokens.num_tokens)
    if not context.has_pot:
        whole = replace(session.plan, config=replace(session.plan.config, spec=saved.spec))
        context.pot = whole.new_pot(tokens.num_tokens, header.capacities)
        context.host = whole.new_host(context)
    shape = context.pot.shape
    if (header.capacity, header.capacities) != (shape.capacity, shape.capacities):
        raise DamagedPot("its pot has another size than its settings give it")
    if isinstance(context.pot.slots, CodedSlots):
        context.pot.slots.restore_frame_(frame)
    if context.host is not None and is_reading:
        context.host.expect(tokens.num_tokens)
    if context.host is not None and (tier or saved.tier.budget_bytes):
        context.host.restore(tier, context.extent, as_it_lies=is_reading)
    context.pot.expect(session.plan.num_positions(tokens.num_tokens))
    restore_(context.pot, tensors, context.extent)
    if is_reading:
        restore_reader(session.reader, context, reader)


def saved_tokens(engine: Engine, path: Path) -> DocumentTokens:
    """The document of a saved session without its pot.

    Raises:
        PotError: the file is missing or damaged.
        PotMismatch: it belongs to another tokenizer.
    """
    header, loaded = PotHeader.read(path), engine.loaded
    if header.tokenizer != loaded.tokenizer.fingerprint:
        raise PotMismatch("It was read with another tokenizer", where=str(path), fix="Read the document again.")
    arrays = _parts(read_tensors(path, header.sha256, _PREFIX), _PREFIX)
    return _tokens(header, arrays, loaded, engine.decoder.parts.vocab_size)


def _tokens(header: PotHeader, arrays: dict[str, Tensor], loaded: LoadedModel, vocab_size: int) -> DocumentTokens:
    state = {name: _array(name, tensor) for name, tensor in arrays.items()}
    encode = loaded.tokenizer.encode
    tokens = DocumentTokens.restore(header.document, encode, state, list(header.notes), vocab_size)
    tokens.document = replace(header.document, pages=_pages(tokens))
    return tokens


def _spans(num_tokens: int, saved: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """Spans of the document that are still to be read; raises DamagedPot if that is no end of its plan."""
    if len(saved) > 1 or any(not 0 <= first <= last == num_tokens for first, last in saved):
        raise DamagedPot("its cursor is not in its document")
    return list(saved)


def _check_counts(context: Context) -> None:
    """Refuse counts that are not those of the document; raises DamagedPot."""
    num_skipped = len(context.depths.skipped) if context.config.spec.skips else 0
    num_unread = sum(last - first for first, last in context.spans)
    if context.num_skipped != num_skipped or context.num_read + num_skipped + num_unread != context.tokens.num_tokens:
        raise DamagedPot("its counts are not those of its document")


def _array(name: str, tensor: Tensor) -> npt.NDArray:
    if tensor.dtype == torch.bfloat16:  # which no array has
        raise DamagedPot(f"{name} is of a wrong type")
    return tensor.numpy()


def _parts(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Take out the tensors whose names begin so, under what follows there."""
    names = [name for name in tensors if name.startswith(prefix)]
    return {name.removeprefix(prefix): tensors.pop(name) for name in names}


def saved_config(path: Path) -> EngineConfig:
    """The settings with which a saved session was made.

    Raises:
        PotError: the file is missing or not a saved pot.
    """
    return PotHeader.read(path).config


def reopened(saved: EngineConfig, asked: EngineConfig) -> EngineConfig:
    """The settings in which a session that was made with `saved` is opened and asked: those of `asked` wherever they
    do not touch what was read.

    Where files go, and where the speculator's weights lie if they moved, is for `asked` to say, too.

    Raises:
        ModelError: only the file names the speculator, and it is not on this machine.
    """
    answers = {path: value_of(asked, path) for path in _ANSWERS}
    config = with_values(saved, {**answers, "spec.model": asked.spec.model or saved.spec.model})
    if config.spec.skips and config.spec.model and not asked.spec.model:
        require_local(config.spec.model)
    return config


def reopened_as_chosen(saved: EngineConfig, ours: EngineConfig) -> EngineConfig:
    """As `reopened`, where one engine has documents with settings of their own: what was chosen for this one stays, for
    its memory is counted with that; device, seed and how answers are given are the engine's.
    """
    spec = replace(saved.spec, model=saved.spec.model and ours.spec.model)
    config = reopened(saved, replace(ours, pot=saved.pot, spec=spec))
    return replace(config, model=ours.model, dtype=ours.dtype, quantization=ours.quantization)


def _pages(tokens: DocumentTokens) -> tuple[Page, ...]:
    """The pages that the tokens were made from; none of a stream, whose text was not kept."""
    notes = {note.page: note for note in tokens.notes}
    pages = []
    for index, text in enumerate(tokens.texts):
        number = tokens.page_numbers[index]
        note = notes.get(number)
        pages.append(Page(number, text, note.code, note.message) if note is not None else Page(number, text))
    return tuple(pages)


def _fingerprints(session: Session) -> dict[str, Any]:
    pot = asdict(session.context.config.pot)
    method = {name: value for name, value in pot.items() if f"pot.{name}" not in _ANSWERS}
    method["slot_shares"] = session.plan.shares
    method["chat"] = session.context.config.generation.chat
    steps = [asdict(step) for step in session.context.slim_steps]
    method["slim"] = asdict(session.context.config.slim) | {"schedule": steps} if steps else None
    if session.context.config.spec.skips:  # what was read also lies in the speculator's own pot
        # A name is a place, not what lies there.
        method["spec"] = asdict(session.context.config.spec) | {"model": session.plan.speculator_fingerprint}
    return {
        "model": session.context.loaded.fingerprint,
        "tokenizer": session.context.loaded.tokenizer.fingerprint,
        "dtype": str(session.context.loaded.dtype),
        "method": method,
    }
