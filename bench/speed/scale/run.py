"""All that `ondevice bench scale` measures: the price of a batch, a second engine, kills, the index."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ondevice.config import EngineConfig
from ondevice.errors import ConfigError
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.natural_text import paragraphs
from ondevice_bench.speed.processes import in_its_own_process
from ondevice_bench.speed.scale.index import DOCUMENTS, index_figures, measure_index
from ondevice_bench.speed.scale.kills import KINDS, Kill, kill_one
from ondevice_bench.speed.scale.kills import rows_of as rows_of_kills
from ondevice_bench.speed.scale.loop import read_in_turn
from ondevice_bench.speed.scale.runs import Corpus, rate, rows, run

PARTS = ("overhead", "speedup", "kills", "index")
LOOP, ONE, TWO, LINES = "plain loop", "batch, one engine", "batch, two engines", "batch, nothing to read"
_RATE, _UNIT = "documents a second", "documents/s"
_DOCUMENTS, _ENGINES = 100_000, (1, 10, 100, 1000)  # of the model


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a run.

    Attributes:
        documents: of a corpus, each of `tokens`.
        rounds: each has all contenders.
        lines: of a list of documents that are not there: what a document costs beside its reading.
        killed_documents, killed_tokens: of a corpus that is killed.
        indexed_documents: in the index that is asked.
    """

    documents: int = 32
    tokens: int = 1500
    rounds: int = 3
    lines: int = 200
    killed_documents: int = 8
    killed_tokens: int = 1500
    indexed_documents: int = DOCUMENTS


QUICK = Sizes(4, 300, 1, 20, 4, 1000, 2_000)


def measure(setup: Setup, sizes: Sizes, parts: Sequence[str]) -> Table:
    """The rows of all parts, and the figures by which this is judged."""
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="ondevice-scale-") as made:
        folder = Path(made)
        if "overhead" in parts:
            found += _beside_a_loop(
                setup, _corpus(setup, folder / "long", sizes.documents, sizes.tokens), folder, sizes
            )
            found += _without_reading(setup, folder, sizes.lines)
        if "speedup" in parts:
            found += _with_two(setup, _corpus(setup, folder / "two", sizes.documents, sizes.tokens), folder, sizes)
        if "kills" in parts:
            killed = _corpus(setup, folder / "killed", sizes.killed_documents, sizes.killed_tokens)
            kills = list[Kill]()
            for kind in KINDS:
                setup.report(f"Killing: {kind}", len(kills) / len(KINDS))
                kills.append(kill_one(killed, kind, folder / kind.replace(" ", "-")))
            found += rows_of_kills(kills)
        if "index" in parts:
            found += measure_index(setup, sizes.indexed_documents)
    return Table(found, summary_of(found))


def summary_of(found: Sequence[Row]) -> dict[str, float]:
    """The figures by which this is judged, and what they mean for 100,000 documents."""
    by = {(one.contender, one.metric): one.p50 for one in found}
    summary: dict[str, float] = {}
    if (ratio := by.get((ONE, "rate against the plain loop"))) is not None:
        summary["engine_overhead_percent"] = 100 * (1 / ratio - 1)
        summary["engine_rate_ratio"] = ratio
    if (ratio := by.get((TWO, "rate against one engine"))) is not None:
        summary["speedup_2_workers"] = ratio
    for key, metric in (("documents_lost", "documents lost"), ("documents_twice", "documents done twice")):
        counts = [one.p50 for one in found if one.metric == metric]
        if counts:
            summary[key] = sum(counts)
    if (ONE, _RATE) in by and (LINES, _RATE) in by:
        summary |= modelled(1 / by[ONE, _RATE], 1 / by[LINES, _RATE], by[ONE, "start and end"])
    return summary | index_figures(found)


def modelled(reading: float, handling: float, start: float) -> dict[str, float]:
    """Figures of a summary for more engines than were measured, which share nothing but the command that hands out.

    Args:
        reading: seconds that an engine takes for a document.
        handling: seconds that the command takes to hand one out and to note that it is done.
        start: seconds that a run takes to start and to end.
    """
    hours = {n: (start + _DOCUMENTS * max(reading / n, handling)) / 3600 for n in _ENGINES}
    return {
        "seconds_per_document": reading,
        "handling_seconds_per_document": handling,
        "start_seconds": start,
        **{f"hours_100k_{engines}_engines": value for engines, value in hours.items()},
        "engines_at_bottleneck": reading / handling,
    }


def _beside_a_loop(setup: Setup, corpus: Corpus, folder: Path, sizes: Sizes) -> list[Row]:
    """A loop and a batch with one engine in turn, with the same threads; each engine is a new one."""
    threads, loops, batches, starts = torch.get_num_threads(), list[float](), list[float](), list[float]()
    for number in range(sizes.rounds):
        setup.report("A plain loop, a batch", number / sizes.rounds)
        source, config = Path(corpus.source), setup.engine.config
        loops.append(rate(in_its_own_process(read_in_turn, config, threads, source, folder / f"loop{number}")))
        out = folder / f"one{number}"
        seconds = run(corpus, out, "--engines", "1", "--cpus-per-engine", str(threads))
        batches.append(rate(rows(out)))
        starts.append(seconds - corpus.num_documents / batches[-1])
    case = {"documents": corpus.num_documents, "tokens": sizes.tokens, "threads": threads}
    ratios = [batch / loop for batch, loop in zip(batches, loops, strict=True)]
    return [
        row(LOOP, case, _RATE, _UNIT, loops),
        row(ONE, case, _RATE, _UNIT, batches),
        row(ONE, case, "rate against the plain loop", "ratio", ratios),
        row(ONE, case, "start and end", "s", starts),
    ]


def _without_reading(setup: Setup, folder: Path, num_lines: int) -> list[Row]:
    """Documents that are not there: the rate at which one command hands out work and notes what is done."""
    setup.report("Documents that are not there", None)
    listed = folder / "lines.txt"
    listed.write_text("".join(f"{folder / 'nowhere' / str(number)}\n" for number in range(num_lines)), encoding="utf-8")
    out = folder / "lines"
    run(Corpus(f"@{listed}", num_lines, _options(setup)), out, "--engines", "1", "--cpus-per-engine", "1")
    return [row(LINES, {"documents": num_lines}, _RATE, _UNIT, [rate(rows(out))])]


def _with_two(setup: Setup, corpus: Corpus, folder: Path, sizes: Sizes) -> list[Row]:
    """One engine and two in turn, each with one thread."""
    rates: dict[str, list[float]] = {"1": [], "2": []}
    for number in range(sizes.rounds):
        for engines in rates:
            setup.report(f"Engines: {engines}", number / sizes.rounds)
            out = folder / f"engines{engines}-{number}"
            run(corpus, out, "--engines", engines, "--cpus-per-engine", "1")
            rates[engines].append(rate(rows(out)))
    case = {"documents": corpus.num_documents, "tokens": sizes.tokens, "threads": 1}
    return [
        row("batch, one engine of one thread", case, _RATE, _UNIT, rates["1"]),
        row(TWO, case, _RATE, _UNIT, rates["2"]),
        row(TWO, case, "rate against one engine", "ratio", list(np.divide(rates["2"], rates["1"]))),
    ]


def _corpus(setup: Setup, folder: Path, num_documents: int, num_tokens: int) -> Corpus:
    """Different texts of one length, in files."""
    folder.mkdir()
    encode = setup.engine.loaded.tokenizer.encode
    for number in range(num_documents):
        source = paragraphs(random.Random(f"{setup.engine.config.seed} {number}").getrandbits(32))
        text = next(source)
        while len(spans := encode(text)[1]) < num_tokens:
            text += f"\n\n{next(source)}"
        (folder / f"{number:04}.txt").write_text(text[: spans[num_tokens - 1, 1]], encoding="utf-8")
    return Corpus(str(folder), num_documents, _options(setup))


def _options(setup: Setup) -> tuple[str, ...]:
    config = setup.engine.config
    pot = ("--capacity", str(config.pot.capacity), "--keep", str(config.pot.num_kept))
    return "--model", config.model, "--device", "cpu", *pot, "--host-tier", str(config.tier.budget_bytes)


def _chosen(parts: str) -> Sequence[str]:
    return parts.split(",") if parts else PARTS


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    if unknown := set(_chosen(options.parts)) - set(PARTS):
        raise ConfigError(f"--parts names {', '.join(sorted(unknown))}", fix=f"Name some of {', '.join(PARTS)}.")
    return given()


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    yield measure(setup, QUICK if options.quick else Sizes(), _chosen(options.parts))


MEASUREMENT = Measurement[Table](_measure, config=_config)
