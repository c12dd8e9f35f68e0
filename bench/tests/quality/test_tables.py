"""`ondevice eval tables`: tables are made, and their cells asked for in three ways."""

from __future__ import annotations

import random

import pytest

from ondevice.config import PotConfig
from ondevice.search.tables import rows_named, told_of
from ondevice.session.engine import Engine
from ondevice_bench.quality.run_answers import answers_config
from ondevice_bench.quality.run_tables import (
    ALONE,
    IN_CELLS,
    PRODUCT,
    Trial,
    make_table,
    rows_of,
    run_tables,
    summary_of,
)
from tests.builders.models import plain_config, plain_generation, tiny_loaded

POT = PotConfig(policy="full", capacity=4000, num_kept=100, reserve=700)


@pytest.mark.parametrize("number", range(6))
def test_each_cell_has_its_name_where_it_is_told(number: int) -> None:
    table = make_table(random.Random(1), number)
    for row in table.rows:
        for name, cell in zip(table.names, row[1:], strict=True):
            question = f"What is the {name} of {row[0]}?"
            told = told_of(rows_named(question, [(0, table.as_read())]), question)
            assert f"{name}: {cell}" in told
            assert told.count(": ") <= 2 + len(table.groups), "only what is asked for"


def test_tables_and_questions_are_those_of_the_seed() -> None:
    assert make_table(random.Random(1), 3) == make_table(random.Random(1), 3) != make_table(random.Random(2), 3)


def test_every_question_is_answered_in_three_ways() -> None:
    config = answers_config(plain_config(pot=POT, generation=plain_generation(num_passage_tokens=64)), 8)
    engine = Engine(tiny_loaded(max_positions=8192), config)
    trials = [item for item in run_tables(engine, 1, 2) if isinstance(item, Trial)]
    assert [(trial.table, trial.number) for trial in trials] == [(0, 0), (0, 1)]
    assert all(tuple(trial.is_right) == (PRODUCT, ALONE, IN_CELLS) for trial in trials)
    assert len(rows_of(trials)) == 6


def test_the_gain_is_over_the_table_as_it_is_read() -> None:
    trials = [Trial(0, i, "?", "1", {PRODUCT: True, ALONE: i < 2, IN_CELLS: i < 4}) for i in range(8)]
    summary = summary_of(trials)
    assert summary["right_cells"] == 1
    assert (summary["right_cells_as_read"], summary["right_cells_named"]) == (0.25, 0.5)
    assert summary["right_cells_gain_low"] < summary["right_cells_gain"] == 0.75 < summary["right_cells_gain_high"]
