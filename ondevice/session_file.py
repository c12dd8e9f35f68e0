"""Sessions on disk: a pot with its document's text and provenance, to be asked again without reading."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from ondevice.config import EngineConfig, GenerationConfig, PotConfig
from ondevice.documents.tokens import DocumentTokens
from ondevice.documents.types import Document, Page
from ondevice.engine import Engine
from ondevice.errors import PotError, PotMismatch
from ondevice.events import PageNote
from ondevice.method_config import ArtConfig, SlimConfig, SpecConfig, TierConfig
from ondevice.pot.saving import check_match, read_header, read_tensors, write_pot
from ondevice.prefill.depths import Depths
from ondevice.session import Session

_PREFIX = "tokens."  # of the tensors that belong to the document
_DEPTHS = "depths"
_TIER = "tier."
_SPECULATOR = "speculator."
# Free to differ: they do not touch what was read. Where `num_restored` was 0, though, it has to stay.
_POT_ANSWERS = ("decode_policy", "key_rotation")
_SPEC_ANSWERS = ("num_draft", "falls_back", "num_restored")


def save_session(session: Session, path: Path) -> None:
    """Write the session to one file, whole or not at all.

    Raises:
        PotError: nothing has been read, reading is not finished, or the file cannot be written.
    """
    tokens, pot = session.opened_tokens(), session.used_pot()
    if session.spans:
        raise PotError("The document is not read to its end", fix="Resume the reading, then save.")
    session.score_novelty()
    document = asdict(replace(tokens.document, pages=()))
    del document["pages"]
    header = _fingerprints(session) | {
        "config": session.config.to_dict(),
        "document": document,
        "notes": [asdict(note) for note in tokens.notes],
        "counts": {name: getattr(session, name) for name in ("num_read", "num_skipped", "num_cycles")},
        "capacity": pot.shape.capacity,
        "capacities": pot.shape.capacities,
        "saved": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    arrays = {_PREFIX + name: torch.from_numpy(array.copy()) for name, array in tokens.state().items()}
    arrays[_DEPTHS] = torch.from_numpy(session.depths.state.copy())
    if session.outside is not None:
        arrays |= {_TIER + name: tensor for name, tensor in session.outside.state().items()}
    if session.skimmer is not None:
        arrays |= {_SPECULATOR + name: tensor for name, tensor in session.skimmer.speculator.state().items()}
    write_pot(path, {**pot.state(), **arrays}, header)


def load_session(engine: Engine, path: Path, config: EngineConfig | None = None) -> Session:
    """Open a saved session. Its settings must be those of `config`, or of the engine: see `saved_config`.

    Raises:
        PotError: the file is missing or damaged.
        PotMismatch: it belongs to another model, tokenizer or method; says which.
    """
    session = engine.session(config)
    header = read_header(path)
    spec = session.config.spec
    if spec.num_draft and not spec.skips and "spec" not in header.get("method", {}):
        raise PotMismatch(
            "The pot was saved without --draft, and no speculator has read the document",
            where=str(path),
            fix="Leave --draft out, or read the document again with it.",
        )
    check_match(path, header, _fingerprints(session))
    if spec.skips and spec.num_restored and not header["config"]["spec"]["num_restored"]:
        raise PotMismatch(
            "The pot was saved without --spec-restore, and what a question needs for it was not kept",
            where=str(path),
            fix="Leave --spec-restore out, or read the document again with it.",
        )
    tensors = read_tensors(path)
    try:
        names = [name for name in tensors if name.startswith(_PREFIX)]
        arrays = {name.removeprefix(_PREFIX): tensors.pop(name).numpy() for name in names}
        notes = [PageNote(**note) for note in header["notes"]]
        document = Document(pages=(), **header["document"])
        session.tokens = DocumentTokens.restore(document, session.loaded.tokenizer.encode, arrays, notes)
        session.tokens.document = replace(document, pages=_pages(session.tokens))
        if session.pot is None:
            capacities = tuple(header["capacities"]) if header["capacities"] else None
            rotation = session.config.pot.key_rotation
            session.pot = session.decoder.new_pot(header["capacity"], key_rotation=rotation, capacities=capacities)
        session.depths = Depths(session.pot.shape.num_layers, tensors.pop(_DEPTHS).numpy())
        tier = {name.removeprefix(_TIER): tensors.pop(name) for name in list(tensors) if name.startswith(_TIER)}
        if session.outside is not None and tier:
            session.outside.restore(tier)
        names = [name for name in tensors if name.startswith(_SPECULATOR)]
        speculated = {name.removeprefix(_SPECULATOR): tensors.pop(name) for name in names}
        if session.skimmer is not None:
            session.skimmer.speculator.restore(speculated)
        session.pot.restore(tensors, session.decoder.rotate_keys)
        for name, count in header["counts"].items():
            setattr(session, name, count)
    except (KeyError, TypeError, RuntimeError) as error:
        raise PotError("The saved pot is incomplete", where=str(path), fix="Read the document again.") from error
    return session


def saved_config(path: Path) -> EngineConfig:
    """The settings with which a saved session was made.

    Raises:
        PotError: the file is missing or not a saved pot.
    """
    return config_of(read_header(path)["config"])


def reopened(saved: EngineConfig, wished: EngineConfig) -> EngineConfig:
    """The settings in which a session that was made with `saved` is opened and asked: those of `wished` wherever they
    do not touch what was read.

    Where files go, and where the speculator's weights lie if they moved, is for `wished` to say, too. What the saved
    pot cannot do is refused by `load_session`.
    """
    return replace(
        saved,
        device=wished.device,
        seed=wished.seed,
        generation=replace(wished.generation, chat=saved.generation.chat),
        tier=replace(saved.tier, folder=wished.tier.folder),
        art=wished.art,
        pot=replace(saved.pot, **{name: getattr(wished.pot, name) for name in _POT_ANSWERS}),
        spec=replace(
            saved.spec,
            model=wished.spec.model or saved.spec.model,
            **{name: getattr(wished.spec, name) for name in _SPEC_ANSWERS},
        ),
    )


def config_of(saved: dict[str, Any]) -> EngineConfig:
    """The settings that `EngineConfig.to_dict` gave, after a way through JSON.

    Raises:
        ConfigError: a value cannot work.
        KeyError, TypeError: they are those of another version.
    """
    data, pot, spec = dict(saved), dict(saved["pot"]), dict(saved.get("spec", {}))
    for name in ("pot", "spec"):
        data.pop(name, None)
    slim, generation = SlimConfig(**data.pop("slim")), GenerationConfig(**data.pop("generation"))
    tier, art = TierConfig(**data.pop("tier")), ArtConfig(**data.pop("art"))
    for part in (pot, spec):
        if part.get("adaptive_keep") is not None:
            part["adaptive_keep"] = tuple(part["adaptive_keep"])
    pot_config, spec_config = PotConfig(**pot), SpecConfig(**spec)
    return EngineConfig(**data, pot=pot_config, slim=slim, tier=tier, art=art, spec=spec_config, generation=generation)


def _pages(tokens: DocumentTokens) -> tuple[Page, ...]:
    """The pages that the tokens were made from; none of a stream, whose text was not kept."""
    notes = {note.page: note for note in tokens.notes}
    pages = []
    for index, text in enumerate(tokens.texts):
        number = tokens.page_number(index)
        note = notes.get(number)
        pages.append(Page(number, text, note.code, note.message) if note is not None else Page(number, text))
    return tuple(pages)


def _fingerprints(session: Session) -> dict[str, Any]:
    method = asdict(session.config.pot) | {"chat": session.config.generation.chat}
    steps = [asdict(step) for step in session.slim_steps]
    method["slim"] = asdict(session.config.slim) | {"schedule": steps} if steps else None
    if session.config.spec.needs_speculator:  # what was read also lies in the speculator's own pot
        spec = asdict(session.config.spec)
        method["spec"] = {name: value for name, value in spec.items() if name not in _SPEC_ANSWERS}
        method["spec"]["model"] = session.speculator_fingerprint  # a name is a place, not what lies there
    for name in _POT_ANSWERS:
        method.pop(name, None)
    return {
        "model": session.loaded.fingerprint,
        "tokenizer": session.loaded.tokenizer.fingerprint,
        "dtype": str(session.loaded.dtype),
        "method": method,
    }
