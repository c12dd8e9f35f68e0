"""The same model file, the same text, the same questions: this project beside what else runs on such a machine.

Contenders take turns, each in a process of its own, so that peak memory is that of one alone. What is measured is what
a user waits for: loading, reading, the first token of the first answer and of the second, and every token after.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import torch

from ondevice.config import EngineConfig, TierConfig
from ondevice.errors import ConfigError, OndeviceError
from ondevice.model.loading import catalogue
from ondevice.model.loading.stored import stored
from ondevice_bench.quality.measurement import Measurement, Note, Setup, Table
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed import llama_cpp
from ondevice_bench.speed.first_process import seconds_of_first_processes
from ondevice_bench.speed.llama_cpp import Variant
from ondevice_bench.speed.peer_figures import Contender, Runs, rows_of, summary_of
from ondevice_bench.speed.peer_work import KVPRESS, LLAMA_CPP, OURS, TRANSFORMERS, Figures, Task, work
from ondevice_bench.speed.processes import within
from ondevice_bench.speed.source import chosen

_LENGTHS, _QUICK_LENGTHS = (2048, 8192), (512,)
_NEW, _QUICK_NEW = 96, 16
_QUESTIONS = ("Retell the text from the beginning, with every detail.", "What happens at the end? Tell all of it.")
_POT = "ondevice, pot of"
_ROOM = 256  # positions for a question and its answer
_FIRST_TOKENS = 512  # that the first processes read


def gguf_of(name: str) -> Path:
    """The file behind a model's name.

    Raises:
        ConfigError: it has none.
    """
    found = catalogue.find(name)
    path = stored(found) if found is not None else Path(name).expanduser()
    if path is None or path.suffix != ".gguf" or not path.is_file():
        raise ConfigError("All contenders read one .gguf file", where=name, fix="Name one with {engine.model}.")
    return path


def _apart(minutes: int | None) -> Callable[[str, Task], Figures]:
    """Let a contender do a task in a process of its own, for so long at most."""
    return lambda name, task: within(None if minutes is None else 60.0 * minutes, work, name, task)


def contenders(
    config: EngineConfig, variants: Sequence[Variant], *, has_transformers: bool = True, has_kvpress: bool = False
) -> dict[str, Contender]:
    """Everyone who takes part, by label.

    Args:
        variants: of llama.cpp.
        has_kvpress: let kvpress take part, with a cache cut down to the usual pot's.
    """
    found = {OURS: Contender(OURS, config)}
    if config.pot.is_auto:
        size = config.pot.usual_capacity
        pot = replace(config, pot=config.pot.sized(size), tier=TierConfig(budget_bytes=0))
        found[f"{_POT} {size:,}"] = Contender(OURS, pot)
    found |= {variant.label: Contender(LLAMA_CPP, config, variant) for variant in variants}
    others = [*([TRANSFORMERS] if has_transformers else []), *([KVPRESS] if has_kvpress else [])]
    return found | {name: Contender(name, config) for name in others}


def run_peers(
    setup: Setup,
    lengths: Sequence[int],
    text: Path | None,
    new_tokens: int,
    rounds: int,
    lineup: Mapping[str, Contender],
    run: Callable[[str, Task], Figures] | None = None,
    limit_minutes: int | None = None,
) -> Iterator[Note | Table]:
    """Notes on who cannot take part, and the table of all.

    Args:
        lineup: from `contenders`.
        run: lets a contender of `peer_work` do a task; default: in a process of its own.
        limit_minutes: that a contender may take for a text; who takes longer is left out.
    """
    run = run or _apart(limit_minutes)
    engine = setup.engine
    gguf, encode = gguf_of(engine.config.model), engine.loaded.tokenizer.encode
    generation = replace(engine.config.generation, max_new_tokens=new_tokens, temperature=0.0, stops_loops=False)
    question_ids = tuple(tuple(map(int, encode(question)[0])) for question in _QUESTIONS)
    runs: Runs = {}
    left_out: dict[tuple[str, int], Row] = {}
    for done in range(rounds):
        for length in lengths:
            document = chosen(setup, text, _fitted(length, engine.loaded.max_positions))
            words = "".join(page.text for page in document.pages)
            ids = tuple(map(int, encode(words)[0]))
            for label, (name, settings, variant) in lineup.items():
                if (label, len(ids)) in left_out or lineup[label].does_as_another(length):
                    continue
                setup.report(f"{label}, {len(ids):,} tokens", done / rounds)
                config, threads = replace(settings, generation=generation), torch.get_num_threads()
                task = Task(config, gguf, words, _QUESTIONS, ids, question_ids, new_tokens, threads, variant)
                reason = lineup[label].too_long(engine.loaded.max_positions, len(ids) + new_tokens)
                figures = reason or _figures(run, name, task, limit_minutes)
                if isinstance(figures, Figures):
                    runs.setdefault((label, len(ids)), []).append(figures)
                    continue
                case = {"tokens": len(ids), "round": done + 1, "why": _public(figures, gguf)}
                left_out[label, len(ids)] = row(label, case, "left out", "", [1.0])
                yield Note(f"{label} leaves out {len(ids):,} tokens: {figures}", "yellow")
    yield Table([*rows_of(runs), *left_out.values()], summary_of(runs, lineup))


def _figures(run: Callable[[str, Task], Figures], name: str, task: Task, limit_minutes: int | None) -> Figures | str:
    """The figures of a contender, or the reason why there are none."""
    try:
        return run(name, task)
    except OndeviceError as error:
        return error.text()
    except TimeoutError:
        return f"it took longer than --limit-minutes {limit_minutes}."
    except BrokenProcessPool:
        return "the system ended its process, most likely for want of memory."
    except Exception as error:  # the failure of one must not lose the figures of the others
        return f"{type(error).__name__}: {error}"


def _public(reason: str, gguf: Path) -> str:
    """In one line, and without the folders of this machine."""
    return " ".join(reason.split()).replace(f"{gguf.parent}{os.sep}", "").replace(str(Path.home()), "~")


def _fitted(length: int, window: int) -> int:
    """As much of a text that just fills the window as leaves room for an answer: else nobody but us could take it."""
    return min(length, window - min(_ROOM, window // 8)) if length <= window else length


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    if min(options.lengths, default=1) < 1:
        raise ConfigError(f"--lengths is {','.join(map(str, options.lengths))!r}", fix="Give token counts from 1 on.")
    return given()


def _measure(setup: Setup, options: Any) -> Iterator[Note | Table]:
    lengths = options.lengths or (_QUICK_LENGTHS if options.quick else _LENGTHS)
    new_tokens = _QUICK_NEW if options.quick else _NEW
    rounds = 1 if options.quick else options.rounds
    python, load_average = options.llama_cpp_python or llama_cpp.PYTHON, psutil.getloadavg()
    builds = [build | {"threads": torch.get_num_threads()} for build in llama_cpp.builds(python)]
    setup.settings["peers"] = {"load_average": [round(load, 2) for load in load_average], "llama_cpp": builds}
    for build in builds:
        yield Note(f"{LLAMA_CPP} of {build['package']} {build['version']}: {build['system_info']}")
    lineup = contenders(
        setup.engine.config,
        llama_cpp.variants(python, builds),
        has_transformers=not options.no_transformers,
        has_kvpress=options.kvpress,
    )
    limit = options.limit_minutes
    for item in run_peers(setup, lengths, options.text, new_tokens, rounds, lineup, limit_minutes=limit):
        yield item if isinstance(item, Note) else _with_first_processes(setup, item, options.text)


def _with_first_processes(setup: Setup, table: Table, text: Path | None) -> Table:
    """The table, and what the first process after set-up takes more than the second."""
    engine, encode = setup.engine, setup.engine.loaded.tokenizer.encode
    setup.report("The first process after set-up", 1.0)
    words = "".join(page.text for page in chosen(setup, text, _FIRST_TOKENS).pages)
    config = replace(engine.config, generation=replace(engine.config.generation, max_new_tokens=_QUICK_NEW))
    ids, threads = tuple(map(int, encode(words)[0])), torch.get_num_threads()
    task = Task(config, gguf_of(config.model), words, _QUESTIONS[:1], ids, (), _QUICK_NEW, threads)
    first, second = seconds_of_first_processes(task)
    case = {"tokens": len(ids)}
    rows = [
        row(OURS, case, f"{name} process after set-up", "s", [value])
        for name, value in (("first", first), ("second", second))
    ]
    summary = table.summary | {"first_process_seconds_more": first - second}
    return Table([*table.rows, *rows], summary)


MEASUREMENT = Measurement[Table](_measure, config=_config)
