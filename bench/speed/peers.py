"""The same model file, the same text, the same questions: this project beside what else runs on such a machine.

Contenders take turns, each in a process of its own, so that peak memory is that of one alone. What is measured is what
a user waits for: reading, the first token of the first answer and of the second, and every token after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ondevice.config import EngineConfig, TierConfig
from ondevice.errors import ConfigError, OndeviceError
from ondevice.machine.processes import within
from ondevice.model.loading import catalogue
from ondevice.model.loading.stored import stored
from ondevice.result import Row, row
from ondevice_bench.quality.measurement import Measurement, Note, Setup, Table
from ondevice_bench.speed.peer_work import KVPRESS, LLAMA_CPP, OURS, SHIFTING, TRANSFORMERS, Figures, Task, work
from ondevice_bench.speed.source import chosen

_LENGTHS, _QUICK_LENGTHS = (2048, 8192), (512,)
_NEW, _QUICK_NEW = 64, 16
_QUESTIONS = ("Retell the text from the beginning, with every detail.", "What happens at the end? Tell all of it.")
_POT = "ondevice, pot of"
_ROOM = 256  # positions for a question and its answer
_Runs = dict[tuple[str, int], list[Figures]]  # by contender and tokens of the text


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


def contenders(config: EngineConfig, *, has_kvpress: bool = False) -> dict[str, tuple[str, EngineConfig]]:
    """Who takes part: label, then which of `peer_work` with which settings."""
    ours = {OURS: (OURS, config)}
    if config.pot.is_auto:
        size = config.pot.usual_capacity
        pot = replace(config, pot=config.pot.sized(size), tier=TierConfig(budget_bytes=0))
        ours[f"{_POT} {size:,}"] = (OURS, pot)
    others = (LLAMA_CPP, SHIFTING, TRANSFORMERS, *((KVPRESS,) if has_kvpress else ()))
    return ours | {name: (name, config) for name in others}


def run_peers(
    setup: Setup,
    lengths: Sequence[int],
    text: Path | None,
    new_tokens: int,
    rounds: int,
    run: Callable[[str, Task], Figures] | None = None,
    limit_minutes: int | None = None,
    has_kvpress: bool = False,
) -> Iterator[Note | Table]:
    """Notes on who cannot take part, and the table of the others.

    Args:
        run: lets a contender of `peer_work` do a task; default: in a process of its own.
        limit_minutes: that a contender may take for a text; who takes longer is left out.
        has_kvpress: let kvpress take part, with a cache cut down to the usual pot's.
    """
    run = run or _apart(limit_minutes)
    engine = setup.engine
    gguf, encode = gguf_of(engine.config.model), engine.loaded.tokenizer.encode
    generation = replace(engine.config.generation, max_new_tokens=new_tokens, temperature=0.0, stops_loops=False)
    config = replace(engine.config, generation=generation)
    question_ids = tuple(tuple(map(int, encode(question)[0])) for question in _QUESTIONS)
    runs: _Runs = {}
    left_out = set[tuple[str, int]]()
    for done in range(rounds):
        for length in lengths:
            document = chosen(setup, text, _fitted(length, engine.loaded.max_positions))
            words = "".join(page.text for page in document.pages)
            ids = tuple(map(int, encode(words)[0]))
            for label, (name, settings) in contenders(config, has_kvpress=has_kvpress).items():
                # What fits into a cache of that size is neither shifted nor cut, and is the same once more.
                fits = name in (SHIFTING, KVPRESS) and length <= config.pot.usual_capacity
                if (label, length) in left_out or fits:
                    continue
                setup.report(f"{label}, {len(ids):,} tokens", done / rounds)
                task = Task(settings, gguf, words, _QUESTIONS, ids, question_ids, new_tokens, torch.get_num_threads())
                reason = _reason(name, engine.loaded.max_positions, len(ids) + new_tokens)
                try:
                    if not reason:
                        figures = run(name, task)
                        runs.setdefault((label, len(ids)), []).append(figures)
                except OndeviceError as error:
                    reason = error.text()
                except TimeoutError:
                    reason = f"it took longer than --limit-minutes {limit_minutes}."
                except BrokenProcessPool:
                    reason = "the system ended its process, most likely for want of memory."
                if reason:
                    left_out.add((label, length))
                    yield Note(f"{label} leaves out {len(ids):,} tokens: {reason}", "yellow")
    yield Table(_rows(runs), _summary(runs))


def _fitted(length: int, window: int) -> int:
    """As much of a text that just fills the window as leaves room for an answer: else nobody but us could take it."""
    return min(length, window - min(_ROOM, window // 8)) if length <= window else length


def _reason(name: str, window: int, num_positions: int) -> str:
    if name not in (OURS, SHIFTING) and num_positions > window:
        return f"the model's window has {window:,}."
    return ""


def _rows(runs: _Runs) -> list[Row]:
    rows = []
    for (label, length), figures in runs.items():
        case = {"tokens": length}
        rows += [
            row(label, case, "reading speed", "tokens/s", [length / one.reading_seconds for one in figures]),
            row(label, case, "first token", "s", [one.answers[0].first_seconds for one in figures]),
            row(
                label, case, "first token of the second answer", "s", [one.answers[1].first_seconds for one in figures]
            ),
            row(label, case, "decoding speed", "tokens/s", [_decode_speed(one) for one in figures]),
            row(label, case, "peak memory", "bytes", [one.peak_bytes for one in figures]),
        ]
    return rows


def _decode_speed(figures: Figures) -> float:
    """Of all answers: tokens after the first of each, by the time that they took."""
    return sum(a.num_tokens - 1 for a in figures.answers) / max(sum(a.seconds for a in figures.answers), 1e-9)


def _summary(runs: _Runs) -> dict[str, float]:
    """How many times as fast as each peer we are, and how many times its peak memory we take."""
    summary: dict[str, float] = {}
    for (label, length), figures in runs.items():
        if not label.startswith(OURS):
            continue
        prefix = "" if label == OURS else "pot_"
        size = _size(length)
        for peer, key in ((LLAMA_CPP, "llama_cpp"), (TRANSFORMERS, "transformers"), (KVPRESS, "kvpress")):
            if theirs := runs.get((peer, length)):
                reading = [b.reading_seconds / a.reading_seconds for a, b in zip(figures, theirs, strict=False)]
                decoding = [_decode_speed(a) / _decode_speed(b) for a, b in zip(figures, theirs, strict=False)]
                summary[f"{prefix}reading_ratio_vs_{key}_{size}"] = float(np.median(reading))
                again = [
                    b.answers[1].first_seconds / a.answers[1].first_seconds
                    for a, b in zip(figures, theirs, strict=False)
                ]
                memory = [a.peak_bytes / b.peak_bytes for a, b in zip(figures, theirs, strict=False)]
                summary[f"{prefix}decode_ratio_vs_{key}_{size}"] = float(np.median(decoding))
                summary[f"{prefix}second_question_ratio_vs_{key}_{size}"] = float(np.median(again))
                summary[f"{prefix}peak_memory_ratio_vs_{key}_{size}"] = float(np.median(memory))
        summary[f"{prefix}peak_memory_bytes_{size}"] = float(max(one.peak_bytes for one in figures))
    both = [length for label, length in runs if label == OURS and (LLAMA_CPP, length) in runs]
    if both:
        longest = _size(max(both))
        key = "second_question_ratio_vs_llama_cpp"
        summary[key] = summary[f"{key}_{longest}"]
    return summary


def _size(length: int) -> str:
    """As lengths stand in the summary."""
    return f"{round(length / 1024)}k" if length >= 1024 else str(length)


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    if min(options.lengths, default=1) < 1:
        raise ConfigError(f"--lengths is {','.join(map(str, options.lengths))!r}", fix="Give token counts from 1 on.")
    return given()


def _measure(setup: Setup, options: Any) -> Iterator[Note | Table]:
    lengths = options.lengths or (_QUICK_LENGTHS if options.quick else _LENGTHS)
    new_tokens = _QUICK_NEW if options.quick else _NEW
    rounds = 1 if options.quick else options.rounds
    yield from run_peers(
        setup,
        lengths,
        options.text,
        new_tokens,
        rounds,
        limit_minutes=options.limit_minutes,
        has_kvpress=options.kvpress,
    )


MEASUREMENT = Measurement[Table](_measure, config=_config)
