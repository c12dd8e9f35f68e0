"""`ondevice eval sources`: one sentence is hidden at a time, and the rules that look for it are compared."""

from __future__ import annotations

import pytest

from ondevice.config import PotConfig
from ondevice.errors import ConfigError
from ondevice.session.engine import Engine
from ondevice_bench.quality.sources import RULES, Trial, rows_of, run_sources, sources_config, summary_of
from tests.builders.models import plain_config, plain_generation, tiny_loaded

POT = PotConfig(capacity=256, num_kept=96, reserve=80, step_size=64)
WORDS = "The keeper lit lamp {}. Nobody came by night {}. "
TEXT = "\n\n".join("".join(WORDS.format(i * 9 + j, i + j) for j in range(5)) for i in range(3))


def test_the_measurement_hides_one_sentence_at_a_time_and_compares_the_rules() -> None:
    config = sources_config(plain_config(pot=POT, generation=plain_generation(num_sources=9)))
    assert config.generation.num_sources == 0
    loaded = tiny_loaded()
    trials = [item for item in run_sources(Engine(loaded, config), TEXT, 2) if isinstance(item, Trial)]
    assert [trial.number for trial in trials] == [0, 1]
    assert all(tuple(trial.ranks) == tuple(RULES) and 0 < trial.depth < 1 for trial in trials)
    rows = rows_of(trials)
    assert {row.unit for row in rows} == {"share"}
    assert len(rows) == 2 * 2 * len(RULES)
    with pytest.raises(ConfigError, match="fewer than 3 paragraphs"):
        next(run_sources(Engine(loaded, config), "One.", 1))


def test_the_summary_counts_the_rule_in_use() -> None:
    *others, last = RULES
    ranks = [dict.fromkeys(others, 1) | {last: rank} for rank in (1, 3, None, None)]
    summary = summary_of([Trial(i, 0.5, i == 0, rank) for i, rank in enumerate(ranks)])
    assert summary == {"first_source_share": 0.25, "top_sources_share": 0.5, "right_answers_share": 0.25}
