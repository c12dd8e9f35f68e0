"""The cost of distillation while a text is read, by the length of the text (InfiniPot, Tables 5 and 6).

The share of the time that goes into choosing what stays, scoring what is new, and reading the rest; beside a full cache
of the same text as far as it fits, which distils nothing and slows down instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ondevice.config import EngineConfig
from ondevice.errors import ConfigError
from ondevice.events import Event, PotDistilled
from ondevice_bench.quality.contenders import CONTENDERS, budget_of, fits_whole
from ondevice_bench.quality.measurement import Measurement, Note, Setup, Table
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.source import chosen

_LENGTHS, _QUICK_LENGTHS = (4096, 8192, 16384), (1024, 2048)
SHARE, NOVELTY = "share of the time", "share for novelty"
_FULL = "full"


@dataclass(frozen=True, slots=True)
class Read:
    """Seconds that one contender took for a text, those of distillation and of scoring novelty among them."""

    contender: str
    num_tokens: int
    seconds: float
    distilling: float
    scoring: float


def run_distillation(
    setup: Setup, names: Sequence[str], lengths: Sequence[int], text: Path | None, rounds: int
) -> Iterator[Event | Note | Read]:
    """Contenders in turn, a text of each length a round, and what each took."""
    engine = setup.engine
    budget = budget_of(engine.config, None)
    for done in range(rounds):
        for length in lengths:
            document = chosen(setup, text, length)
            for name in names:
                config = CONTENDERS[name].config(engine.config, budget)
                if name == _FULL and not fits_whole(engine, config, length):
                    if not done:
                        yield Note(f"A full cache of {length:,} tokens does not fit into the window, or into memory.")
                    continue
                setup.report(f"{name}, {length:,} tokens", done / rounds)
                session = engine.session(config)
                yield from session.open(document)
                began, distilling, scoring = time.perf_counter(), 0.0, 0.0
                for event in session.resume():
                    if isinstance(event, PotDistilled):
                        distilling += event.seconds
                        scoring += event.novelty_seconds
                yield Read(name, session.context.num_read, time.perf_counter() - began, distilling, scoring)
                del session  # its memory goes before another one takes as much


def rows_of(reads: Sequence[Read]) -> list[Row]:
    """Rows for each contender and length."""
    groups: dict[tuple[str, int], list[Read]] = {}
    for one in reads:
        groups.setdefault((one.contender, one.num_tokens), []).append(one)
    rows = []
    for (name, num_tokens), of in groups.items():
        case = {"tokens": num_tokens}
        rows.append(row(name, case, "reading speed", "tokens/s", [num_tokens / one.seconds for one in of]))
        rows.append(row(name, case, "time to read", "s", [one.seconds for one in of]))
        if name != _FULL:
            rows.append(row(name, case, SHARE, "share", [one.distilling / one.seconds for one in of]))
            rows.append(row(name, case, NOVELTY, "share", [one.scoring / one.seconds for one in of]))
    return rows


def summary_of(rows: Sequence[Row]) -> dict[str, float]:
    """The largest shares of each contender."""
    summary: dict[str, float] = {}
    for one in rows:
        if one.metric in (SHARE, NOVELTY):
            what = "distillation" if one.metric == SHARE else "novelty"
            key = f"{what}_share_{one.contender}"
            summary[key] = max(one.p50, summary.get(key, 0.0))
    return summary


def _names(options: Any) -> tuple[str, ...]:
    return tuple(name.strip() for name in options.contenders.split(","))


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    for name in _names(options):
        if name not in CONTENDERS or CONTENDERS[name].reads != "text" or name == "truncation":
            raise ConfigError(f"--contenders holds {name!r}", fix="Name policies, pot, pot+tier or full.")
    if min(options.lengths, default=1) < 1:
        raise ConfigError(f"--lengths is {','.join(map(str, options.lengths))!r}", fix="Give token counts from 1 on.")
    return given()


def _measure(setup: Setup, options: Any) -> Iterator[Event | Note | Table]:
    lengths = options.lengths or (_QUICK_LENGTHS if options.quick else _LENGTHS)
    reads: list[Read] = []
    for item in run_distillation(setup, _names(options), lengths, options.text, 1 if options.quick else options.rounds):
        if isinstance(item, Read):
            reads.append(item)
        else:
            yield item
    rows = rows_of(reads)
    yield Table(rows, summary_of(rows))


MEASUREMENT = Measurement[Table](_measure, config=_config)
