"""Memory that a document takes by its length, beside the most that it may: `--memory`, or what is usual here.

Counted is all that a process holds of its own (no pages of files) beyond what it held with the model loaded and warm:
text, pot, host tier, undo log and everything on the way, at the highest.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from ondevice.config import EngineConfig
from ondevice.machine.process import return_free_memory
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from ondevice.telemetry.telemetry import Telemetry
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.generated_text import generated
from ondevice_bench.speed.processes import in_its_own_process

LENGTHS, QUICK_LENGTHS = (8192, 32_768, 131_072), (1024,)
_QUESTIONS = (
    "Who found the letter, and where?",
    "List all names that occur, with what is said of each.",
    "Retell the text from the beginning, with every detail.",
)
_NEW_TOKENS = 32  # of each answer, at most
_WARM_TOKENS = 512  # of a text that is read before anything counts
_SECONDS = 0.02  # between two looks


@dataclass(frozen=True, slots=True)
class Held:
    """One document as it was: bytes at the highest, the most that there may be, its slots a layer and its speed."""

    highest: int
    most: int
    slots: int
    tokens_per_second: float


def held(config: EngineConfig, num_tokens: int) -> Held:
    """Read a generated text in this process and answer questions to it."""
    generation = replace(config.generation, max_new_tokens=_NEW_TOKENS, temperature=0.0, stops_loops=False)
    engine = Engine.load(replace(config, generation=generation))
    _use(engine.session(), engine, _WARM_TOKENS)
    document = generated(num_tokens, engine.loaded.tokenizer, config.seed)
    return_free_memory()
    session = engine.session()
    with _Highest() as highest:
        telemetry = _use(session, engine, num_tokens, document)
    pot = session.context.pot
    return Held(highest.bytes, session.plan.limit_bytes, max(pot.capacities), num_tokens / telemetry.ingest_seconds)


def _use(session: Session, engine: Engine, num_tokens: int, document: Any = None) -> Telemetry:
    telemetry = Telemetry()
    for event in session.read(document or generated(num_tokens, engine.loaded.tokenizer)):
        telemetry.apply(event)
    for question in _QUESTIONS:
        for _ in session.ask(question):
            pass
    return telemetry


class _Highest:
    """The most anonymous memory of this process while its block runs, beyond what it had before, as `bytes`."""

    def __enter__(self) -> Self:
        self._before, self.bytes, self._done = _anonymous(), 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(_SECONDS):
            self.bytes = max(self.bytes, _anonymous() - self._before)


def _anonymous() -> int:
    """Bytes of this process that lie in no file; Linux says."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    rows, summary = list[Row](), dict[str, float]()
    for num_tokens in options.tokens or (QUICK_LENGTHS if options.quick else LENGTHS):
        setup.report(f"{num_tokens:,} tokens", None)
        found = in_its_own_process(held, setup.engine.config, num_tokens)
        case = {"tokens": num_tokens, "slots": found.slots}
        rows += [
            row("document", case, "highest memory", "bytes", [found.highest]),
            row("document", case, "memory that it may take", "bytes", [found.most]),
            row("document", case, "reading speed", "tokens/s", [found.tokens_per_second]),
        ]
        summary[f"memory_share_{num_tokens}"] = found.highest / found.most
    yield Table(rows, summary)


MEASUREMENT = Measurement[Table](_measure)
