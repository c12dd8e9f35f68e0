"""All that `ondevice bench reliability` tries, in order: hostile files and requests, long work, clients, kills."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ondevice.config import EngineConfig
from ondevice.errors import ConfigError
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Measurement, Note, Setup, Table
from ondevice_bench.results.result import Row
from ondevice_bench.speed.generated_text import generated
from ondevice_bench.speed.random_model import random_model
from ondevice_bench.speed.reliability.clients import ask_at_once
from ondevice_bench.speed.reliability.doors import spoil_bodies, spoil_calls
from ondevice_bench.speed.reliability.hostile import Tally, spoil_documents, spoil_entries, spoil_pots
from ondevice_bench.speed.reliability.kills import Kill, kill_readings
from ondevice_bench.speed.reliability.kills import rows_of as rows_of_kills
from ondevice_bench.speed.reliability.soak import ask_on, read_on

PARTS = ("documents", "pots", "entries", "bodies", "calls", "soak", "questions", "clients", "kills")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a run.

    Attributes:
        documents, pots, entries: spoilt files.
        bodies, calls: spoilt requests to an app, and spoilt calls of an assistant.
        soak_tokens: read into one pot.
        questions: to one pot.
        clients: at once, for so many seconds; each reads a text of `client_tokens` again and again.
        kills: of a reading of `killed_tokens`, kept every `every_seconds`.
    """

    documents: int = 2000
    pots: int = 1000
    entries: int = 1500
    bodies: int = 1000
    calls: int = 500
    soak_tokens: int = 10_000_000
    questions: int = 1000
    clients: int = 64
    client_seconds: float = 600.0
    client_tokens: int = 1500
    kills: int = 40
    killed_tokens: int = 6000
    every_seconds: float = 1.0


_SHORT_TOKENS = 300  # of the text that spoilt requests are about
QUICK = Sizes(40, 20, 20, 40, 20, 40_000, 20, 4, 1.0, 300, 1, 3000, 0.2)


def try_all(setup: Setup, sizes: Sizes, parts: Sequence[str]) -> Iterator[Note | list[Row]]:
    """Rows of one part after the other, and what went wrong."""
    seed, report, tokenizer = setup.engine.config.seed, setup.report, setup.engine.loaded.tokenizer
    name = setup.engine.config.model
    with tempfile.TemporaryDirectory(prefix="ondevice-reliability-") as made:
        folder = Path(made)
        tiny = Engine(random_model("tiny", seed=seed), EngineConfig(model="tiny", device="cpu"))
        short = _written(folder / "short" / "lamp.txt", _SHORT_TOKENS, tokenizer, seed)
        brief = ["--model", name, "--max-new-tokens", "4"]
        tallies = {
            "documents": lambda: spoil_documents(folder, sizes.documents, seed),
            "pots": lambda: spoil_pots(tiny, folder, sizes.pots, seed),
            "entries": lambda: spoil_entries(tiny, folder, sizes.entries, seed),
            "bodies": lambda: spoil_bodies(short, folder / "bodies", sizes.bodies, brief, seed),
            "calls": lambda: spoil_calls(short, folder / "calls", sizes.calls, brief, seed),
        }
        for part, tally in tallies.items():
            if part in parts:
                yield from _counted(tally(), getattr(sizes, part), report)
        if "soak" in parts:
            yield read_on(tiny, sizes.soak_tokens, report)
        if "questions" in parts:
            yield ask_on(tiny, sizes.questions, report)
        if "clients" in parts:
            report("Asking all at once", None)
            text = _written(folder / "text.txt", sizes.client_tokens, tokenizer, seed)
            yield ask_at_once(text, folder / "clients", sizes.clients, ["--model", name], sizes.client_seconds)
        if "kills" in parts:
            text = _written(folder / "text.txt", sizes.killed_tokens, tokenizer, seed)
            options = ["--model", name, "--capacity", "1024", "--keep", "512", "--max-new-tokens", "16"]
            kills: list[Kill] = []
            for kill in kill_readings(text, folder / "kills", sizes.kills, options, sizes.every_seconds, seed):
                kills.append(kill)
                report("Killing", len(kills) / sizes.kills)
            yield rows_of_kills(kills, sizes.every_seconds)


def summary_of(rows: Sequence[Row]) -> dict[str, float]:
    """The figures by which this is judged."""
    keys = {
        ("documents", "any other end"): "documents_untyped",
        ("saved pots", "any other end"): "pots_untyped",
        ("library entries", "any other end"): "entries_untyped",
        ("request bodies", "any other end"): "bodies_untyped",
        ("calls of an assistant", "any other end"): "calls_untyped",
        ("reading without end", "memory grew after a tenth"): "soak_growth_percent",
        ("reading without end", "the ledger counts every token"): "soak_ledger_exact",
        ("questions to one pot", "the pot is the same bit for bit"): "questions_pot_identical",
        ("questions to one pot", "memory grew after a tenth"): "questions_growth_percent",
        ("clients at once", "answered"): "clients_answered",
        ("clients at once", "without an answer"): "clients_without_answer",
        ("clients at once", "any other end"): "clients_failed",
        ("clients at once", "memory grew after a tenth"): "clients_growth_percent",
        ("kill -9 while reading", "gone on from the last copy"): "kills_resumed",
        ("kill -9 while reading", "the same answer and ledger"): "kills_equal",
        ("kill -9 while reading", "lost, at most"): "kills_lost_seconds",
    }
    shown = (one for one in rows if one.unit != "bytes")
    return {key: one.p50 for one in shown if (key := keys.get((one.contender, one.metric)))}


def _counted(tallies: Iterator[Tally], num_cases: int, report: Callable[..., None]) -> Iterator[Note | list[Row]]:
    tally = None
    for number, tally in enumerate(tallies, 1):
        report(f"Spoiling {tally.name}", number / num_cases)
    if tally is not None:
        for other in tally.others:
            yield Note(f"{tally.name}, case {other}", "red")
        yield tally.rows()


def _written(path: Path, num_tokens: int, tokenizer: Any, seed: int) -> Path:
    document = generated(num_tokens, tokenizer, seed)
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(page.text for page in document.pages), encoding="utf-8")
    return path


def _chosen(parts: str) -> Sequence[str]:
    return parts.split(",") if parts else PARTS


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    if unknown := set(_chosen(options.parts)) - set(PARTS):
        raise ConfigError(f"--parts names {', '.join(sorted(unknown))}", fix=f"Name some of {', '.join(PARTS)}.")
    return given()


def _measure(setup: Setup, options: Any) -> Iterator[Note | Table]:
    rows: list[Row] = []
    for item in try_all(setup, QUICK if options.quick else Sizes(), _chosen(options.parts)):
        if isinstance(item, Note):
            yield item
        else:
            rows += item
    yield Table(rows, summary_of(rows))


MEASUREMENT = Measurement[Table](_measure, config=_config)
