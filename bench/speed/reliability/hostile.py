"""Documents, saved pots and entries of the library, spoilt at random: each is read, or refused by name."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ondevice.config import EngineConfig, GenerationConfig, PotConfig, SlimConfig, SpecConfig, TierConfig
from ondevice.documents import Document, Page, read
from ondevice.errors import OndeviceError
from ondevice.library.library import Library
from ondevice.session.engine import Engine, Session
from ondevice.session.saving import load_session, reopened, save_session, saved_config
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.reliability.damaged_documents import KINDS, spoilt
from ondevice_bench.speed.reliability.damaged_pots import SavedPot, spoil, spoil_json

_TEXT = "The lamp was lit at dusk, écru and bright, and burned until the morning. " * 6
_POT = PotConfig(capacity=224, num_kept=64, reserve=96, step_size=60, context_reset="always")
_ANSWER = GenerationConfig(max_new_tokens=3, num_sources=1, chat=False)
_QUESTION = "When?"


@dataclass(slots=True)
class Tally:
    """The outcomes of many cases of one kind.

    Attributes:
        num_fine: read, or opened and answered.
        num_refused: refused with an error of ours.
        others: any other end, which none should have: seed and exception.
        slowest: seconds of one case.
    """

    name: str
    num_fine: int = 0
    num_refused: int = 0
    others: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def take(self, case: str, act: Callable[[], object]) -> None:
        """Count one case."""
        began = time.perf_counter()
        try:
            act()
            self.num_fine += 1
        except OndeviceError:
            self.num_refused += 1
        except Exception as error:
            self.others.append(f"{case}: {error!r}")
        self.slowest = max(self.slowest, time.perf_counter() - began)

    def rows(self) -> list[Row]:
        """Rows of a result."""
        case = {"cases": self.num_fine + self.num_refused + len(self.others)}
        return [
            row(self.name, case, "read or opened", "cases", [self.num_fine]),
            row(self.name, case, "refused by name", "cases", [self.num_refused]),
            row(self.name, case, "any other end", "cases", [len(self.others)]),
            row(self.name, case, "slowest case", "s", [self.slowest]),
        ]


def spoil_documents(folder: Path, num_cases: int, seed: int = 0) -> Iterator[Tally]:
    """Documents of every kind, each parsed as the app does; yields the tally after each."""
    tally = Tally("documents")
    for case in range(seed, seed + num_cases):
        rng = random.Random(case)
        kind = rng.choice(KINDS)
        path = folder / f"case.{kind}"
        path.write_bytes(spoilt(kind, rng))
        tally.take(f"{case} {kind}", partial(read, path))
        yield tally


def spoil_pots(engine: Engine, folder: Path, num_cases: int, seed: int = 0) -> Iterator[Tally]:
    """Saved pots of several settings, each opened and asked."""
    tally, path = Tally("saved pots"), folder / "case.pot"
    pots = {name: _saved(engine, config, folder / name) for name, config in _settings(engine.config).items()}
    for case in range(seed, seed + num_cases):
        rng = random.Random(case)
        name = rng.choice(list(pots))
        spoil(pots[name], path, rng)
        temperature = rng.choice((0.0, 1.0))

        def act(temperature: float = temperature) -> None:
            session = load_session(engine, path, reopened(saved_config(path), engine.config))
            for _ in session.ask(_QUESTION, replace(_ANSWER, temperature=temperature)):
                pass

        tally.take(f"{case} {name}", act)
        yield tally


def spoil_entries(engine: Engine, folder: Path, num_cases: int, seed: int = 0) -> Iterator[Tally]:
    """Entries of the library, each listed beside a whole one, and opened."""
    tally, library = Tally("library entries"), Library(folder / "library")
    session = _read(engine, replace(engine.config, pot=_POT))
    record = {"messages": [{"role": "user", "content": _QUESTION}], "novelty_tokens": [1, 5], "fill": [[64, 64]]}
    whole, entry = (library.save(session, record) for _ in range(2))
    files = {
        path: path.read_text() for path in (library.folder / entry.id / name for name in ("entry.json", "record.json"))
    }

    def act() -> None:
        listed = {one.id for one in library.entries()}
        if listed != {whole.id, entry.id} or library.find(whole.id) != whole:
            raise AssertionError("a damaged entry hides others")
        library.open(engine, entry.id)

    for case in range(seed, seed + num_cases):
        rng = random.Random(case)
        path = rng.choice(list(files))
        path.write_text(_spoilt_text(files[path], rng))
        tally.take(f"{case} {path.name}", act)
        path.write_text(files[path])
        yield tally


def _spoilt_text(text: str, rng: random.Random) -> str:
    if rng.random() < 0.2:
        at = rng.randrange(len(text))
        return text[:at] + rng.choice(("", "x", "9", '"', "[", "\x00", "é")) + text[at + 1 :]
    data = json.loads(text)
    spoil_json(data, rng)
    return json.dumps(data)


def _settings(config: EngineConfig) -> dict[str, EngineConfig]:
    """Settings that put different things into a saved pot."""
    slim = SlimConfig("1:50%", block_size=8, unit_size=4, window=2)
    spec = SpecConfig(keep=0.5, layers=1, chunk_size=8)
    plain = replace(
        config, pot=_POT, generation=_ANSWER, slim=SlimConfig(), spec=SpecConfig(), tier=TierConfig(budget_bytes=0)
    )
    return {
        "plain": plain,
        "positions": replace(plain, pot=replace(_POT, context_reset="late")),
        "tier": replace(plain, slim=slim, tier=TierConfig(budget_bytes=200_000, max_tokens=24)),
        "skims": replace(plain, pot=replace(_POT, reserve=110), spec=spec),
        "full": replace(plain, pot=replace(_POT, policy="full")),
    }


def _read(engine: Engine, config: EngineConfig) -> Session:
    session = engine.session(config)
    half = len(_TEXT) // 2
    pages = (Page(1, _TEXT[:half]), Page(2, "", "scan", "A picture."), Page(3, _TEXT[half:]))
    for _ in session.read(Document("lamp.txt", "txt", "part", pages, 3, len(_TEXT))):
        pass
    return session


def _saved(engine: Engine, config: EngineConfig, path: Path) -> SavedPot:
    save_session(_read(engine, config), path)
    pot = SavedPot(path)
    with suppress(OSError):
        path.unlink()
    return pot
