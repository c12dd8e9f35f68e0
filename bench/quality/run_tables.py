"""Questions to the cells of made tables: as the product asks them, and as a model does without its help.

The product tells the model the rows that a question names, each cell with the name of its column. Beside it: the same
text and question alone, and a text whose table has the name of the column in every cell.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ondevice.decode.prompt import with_history
from ondevice.events import Event
from ondevice.session.engine import Engine, Session
from ondevice_bench.quality.contenders import text_document
from ondevice_bench.quality.contest import write_answer
from ondevice_bench.quality.measurement import Measurement
from ondevice_bench.quality.run_answers import SHORTLY, answers_config
from ondevice_bench.results.intervals import estimate, mean
from ondevice_bench.results.result import Row, row

Answering = Generator[Event, None, str]
PRODUCT, ALONE, IN_CELLS = "default", "the table as it is read", "names in every cell"
_NEW_TOKENS = 24
_PROSE = "The figures were collected by several offices and checked by hand, and they were not rounded. " * 5
_SUBJECTS: tuple[tuple[str, Sequence[str], Sequence[str], Sequence[str]], ...] = (
    ("Region", ("North", "South", "East", "West", "Overseas", "Islands"), ("2023", "2024", "2025"), ("Q1", "Q2", "Q3")),
    (
        "Sample",
        ("A-101", "A-102", "B-201", "B-202", "C-300", "C-301"),
        ("Winter", "Summer"),
        ("Lead", "Iron", "Nitrate", "Zinc"),
    ),
    (
        "Item",
        ("Screws M4", "Screws M6", "Washers", "Steel hinges", "Brackets", "Drill bits"),
        ("",),
        ("Order number", "Pieces", "Weight", "Unit price", "Total", "Discount"),
    ),
    (
        "Country",
        ("France", "Italy", "Spain", "Poland", "Greece", "Norway"),
        ("Population", "Median age"),
        ("1990", "2000", "2010", "2020"),
    ),
    (
        "Method",
        ("BM25", "DPR", "BM25 + DPR", "ColBERT", "SPLADE", "ANCE"),
        ("Top-20", "Top-100"),
        ("NQ", "TriviaQA", "WQ", "TREC", "SQuAD"),
    ),
    (
        "Month",
        ("July 2015", "August 2015", "September 2015", "October 2015", "November 2015", "December 2015"),
        ("",),
        ("Notices", "Employees", "Layoffs", "Closures", "Unknown", "Appeals", "Refunds"),
    ),
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One cell that was asked for, and for each contender if it is right; `number` counts the questions to a table."""

    table: int
    number: int
    question: str
    cell: str
    is_right: dict[str, bool]


@dataclass(frozen=True, slots=True)
class Table:
    """A made table: the name of its first column, its rows with their names first, and groups of columns."""

    corner: str
    rows: list[list[str]]
    groups: Sequence[str]
    columns: Sequence[str]

    @property
    def names(self) -> list[str]:
        return [f"{group} {column}".strip() for group in self.groups for column in self.columns]

    def as_read(self) -> str:
        """As documents have it: the name of a group stands in the middle of its columns."""
        rows = [[self.corner, *self.names], *self.rows]
        if len(self.groups) > 1:
            middle, num = len(self.columns) // 2, len(self.columns)
            above = [group if at == middle else "" for group in self.groups for at in range(num)]
            rows[:1] = [[self.corner, *above], ["", *(list(self.columns) * len(self.groups))]]
        return "\n".join(" | ".join(cells).rstrip(" |") for cells in rows)

    def in_cells(self) -> str:
        """With the name of the column in every cell."""
        rows = (
            [row[0], *(f"{name}: {cell}" for name, cell in zip(self.names, row[1:], strict=True))] for row in self.rows
        )
        return "\n".join(" | ".join(cells) for cells in rows)


def make_table(chance: random.Random, number: int) -> Table:
    """The table with this number: its subject goes round, its figures are drawn."""
    corner, names, groups, columns = _SUBJECTS[number % len(_SUBJECTS)]
    drawn = chance.sample(range(1_000, 99_999), len(names) * len(groups) * len(columns))
    figures = iter(f"{figure / 100:,.2f}" for figure in drawn)  # none stands twice
    rows = [[name, *(next(figures) for _ in range(len(groups) * len(columns)))] for name in names]
    return Table(corner, rows, groups, columns)


def run_tables(engine: Engine, num_tables: int, num_questions: int) -> Iterator[Event | Trial]:
    """Events of each question, with its `Trial` after them.

    Args:
        engine: with settings from `answers_config`.
        num_questions: to each table.
    """
    for number in range(num_tables):
        chance = random.Random(f"{engine.config.seed} {number}")
        table = make_table(chance, number)
        read = yield from _reading(engine, table.as_read())
        labelled = yield from _reading(engine, table.in_cells())
        cells = [(at, column) for at in range(len(table.rows)) for column in range(len(table.names))]
        for asked, (at, column) in enumerate(chance.sample(cells, num_questions)):
            name, cell = table.rows[at][0], table.rows[at][column + 1]
            question = f"What is the {table.names[column]} of {name}?"
            answers: dict[str, Callable[[], Answering]] = {
                PRODUCT: lambda: write_answer(read.ask(f"{question}\n{SHORTLY}")),  # noqa: B023
                ALONE: lambda: _alone(read, question),  # noqa: B023
                IN_CELLS: lambda: _alone(labelled, question),  # noqa: B023
            }
            is_right: dict[str, bool] = {}
            for contender, ask in answers.items():
                is_right[contender] = cell in (yield from ask())
            yield Trial(number, asked, question, cell, is_right)


def _reading(engine: Engine, table: str) -> Generator[Event, None, Session]:
    session = engine.session()
    yield from session.read(text_document("table", [f"{_PROSE}\n\n{table}\n\n{_PROSE}"]))
    return session


def _alone(session: Session, question: str) -> Answering:
    asked = f"{question}\n{SHORTLY}"
    context = session.context
    prompt = with_history(context.chat, asked, (), context.config.pot.reserve)
    return (yield from write_answer(session.answer(asked, prompt, context.config.generation)))


def rows_of(trials: Sequence[Trial]) -> tuple[Row, ...]:
    """A row for each question and contender."""
    return tuple(
        row(contender, {"table": trial.table, "question": trial.number}, "right cell", "share", [float(is_right)])
        for trial in trials
        for contender, is_right in trial.is_right.items()
    )


def summary_of(trials: Sequence[Trial]) -> dict[str, float]:
    """Shares of right cells, and the product less the table as it is read, with the interval of 95 %."""
    scores = np.array([[float(trial.is_right[name]) for name in (PRODUCT, ALONE, IN_CELLS)] for trial in trials])
    gain = estimate(scores, lambda means: means[0] - means[1])
    keys = ("right_cells", "right_cells_as_read", "right_cells_named")
    found = {key: mean(scores[:, at], is_share=True).value for at, key in enumerate(keys)}
    found["right_cells_gain"] = gain.value
    if gain.low is not None and gain.high is not None:
        found |= {"right_cells_gain_low": gain.low, "right_cells_gain_high": gain.high}
    return found


MEASUREMENT = Measurement[Trial](
    lambda setup, options: run_tables(setup.engine, options.tables, options.questions),
    lambda trials, _: rows_of(trials),
    summary_of,
    config=lambda given, _: answers_config(given(), _NEW_TOKENS),
    line=lambda trial: (
        f"{trial.question} {trial.cell}: "
        + ", ".join(f"{name} {'right' if is_right else 'wrong'}" for name, is_right in trial.is_right.items())
    ),
)
