"""Trials of question answering: one for each question and contender, written down as soon as it is done.

What was asked and answered goes into a table beside the results (`.csv`), figures into their rows.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ondevice.config import EngineConfig
from ondevice.events import Event
from ondevice_bench.quality.measurement import Measurement, Note, Setup
from ondevice_bench.results.result import Row, row
from ondevice_bench.results.tables import SHARE

_COLUMNS = (
    "task", "text", "tokens", "question", "contender", "budget", "metric", "score", "answer", "references",
    "tokens_read", "reading_seconds", "answer_seconds",
)  # fmt: skip
SECONDS = "seconds from the text to the answer"
_SHOWN = 60  # characters of an answer in a line


@dataclass(frozen=True, slots=True)
class Trial:
    """One question, answered by one contender.

    Attributes:
        contender: its name.
        task: where the question comes from.
        text: the text's name within the task, `num_tokens` long.
        question: its number.
        budget: slots that each contender has.
        scores: 0 to 1, by metric; `SECONDS` among them where nothing was read before.
        num_read: tokens that the contender had read for it.
        reading_seconds: of them, once for all questions to the same reading.
        answer_seconds: from the question to the end of the answer.
        summary: the figures by key over all trials up to it, earlier runs among them.
    """

    contender: str
    task: str
    text: str
    num_tokens: int
    question: int
    budget: int
    scores: dict[str, float]
    answer: str
    references: tuple[str, ...]
    num_read: int
    reading_seconds: float
    answer_seconds: float
    summary: dict[str, float] = field(default_factory=dict)

    @property
    def case(self) -> dict[str, Any]:
        return case_of(self.task, self.budget, self.text, self.question)

    @property
    def line(self) -> str:
        """As it is shown while the run goes on."""
        scored = ", ".join(f"{metric} {score:.2f}" for metric, score in self.scores.items())
        return (
            f"{self.task} {self.text} ({self.num_tokens:,} tokens) question {self.question}, {self.contender}: "
            f"{scored}; {self.answer[:_SHOWN]!r} for {self.references[0][:_SHOWN]!r}, "
            f"read in {self.reading_seconds:.0f} s, answered in {self.answer_seconds:.1f} s"
        )


def measured(
    run: Callable[[Setup, Any], Iterator[Event | Note | Trial]],
    config: Callable[[Callable[..., EngineConfig], Any], EngineConfig],
    figures: Callable[[Sequence[Row]], dict[str, float]] | None = None,
) -> Measurement[Trial]:
    """The measurement whose items are trials; `figures` as there, without options."""
    return Measurement[Trial](
        run,
        rows_of,
        lambda trials: trials[-1].summary,
        config=config,
        line=lambda trial: trial.line,
        figures=None if figures is None else lambda rows, _: figures(rows),
    )


def case_of(task: str, budget: int, text: str, question: int) -> dict[str, Any]:
    """The case of a row; in the documents all rows of a task are one."""
    return {"task": task, "budget": budget, "trial": f"{text}/{question}"}


def rows_of(trials: Sequence[Trial], _: EngineConfig | None = None) -> list[Row]:
    """A row for each trial and metric."""
    return [
        row(one.contender, one.case, metric, "s" if metric == SECONDS else SHARE, [score])
        for one in trials
        for metric, score in one.scores.items()
    ]


def is_done(rows: Iterable[Row], contender: str, case: dict[str, Any]) -> bool:
    """True if a trial has its rows already."""
    return any(one.contender == contender and one.case == case for one in rows)


def earlier_rows(setup: Setup) -> Generator[Note, None, list[Row]]:
    """Rows of the runs before, which this one goes on with; where there are none, an older table makes way."""
    rows = list(setup.earlier)
    if rows:
        yield Note(f"Going on with {setup.out_file}: {len(rows)} figures are there.")
    elif setup.out_file is not None:
        setup.out_file.with_suffix(".csv").unlink(missing_ok=True)
    return rows


def written_down(
    items: Iterable[Event | Note | Trial],
    setup: Setup,
    rows: list[Row],
    summary: Callable[[Sequence[Row]], dict[str, float]],
    make_rows: Callable[[Sequence[Trial]], list[Row]] | None = None,
) -> Iterator[Event | Note | Trial]:
    """The same items; each trial among them is written down, its rows are added to `rows`, and it gets the figures of
    all of these.

    Args:
        make_rows: of one trial; default: `rows_of`.
    """
    for item in items:
        if isinstance(item, Trial):
            rows += (make_rows or rows_of)([item])
            item = replace(item, summary=summary(rows))
            _write_down(setup.out_file, item)
        yield item


def _write_down(out_file: Path | None, trial: Trial) -> None:
    """Add a trial to the table beside the results."""
    if out_file is None:
        return
    path = out_file.with_suffix(".csv")
    is_new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(_COLUMNS)
        for metric, score in trial.scores.items():
            writer.writerow((
                trial.task, trial.text, trial.num_tokens, trial.question, trial.contender, trial.budget, metric,
                round(score, 4), trial.answer, " | ".join(trial.references), trial.num_read,
                round(trial.reading_seconds, 2), round(trial.answer_seconds, 2),
            ))  # fmt: skip


def question_scores(rows: Iterable[Row]) -> dict[str, dict[tuple[Any, ...], float]]:
    """Of each contender, the score of each question: the mean of its metrics. Questions by task, budget and trial."""
    metrics: dict[str, dict[tuple[Any, ...], list[float]]] = {}
    for one in rows:
        metrics.setdefault(one.contender, {}).setdefault(tuple(one.case.values()), []).append(one.p50)
    return {
        contender: {question: float(np.mean(scores)) for question, scores in questions.items()}
        for contender, questions in metrics.items()
    }


def key_of(contender: str) -> str:
    """Its name in keys of a summary."""
    return contender.replace("+", "_")
