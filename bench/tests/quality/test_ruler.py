"""RULER's rows are as published say: as long as asked, with what is asked for in them once."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from ondevice.config import GenerationConfig, PotConfig
from ondevice.errors import ConfigError
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Note, Setup
from ondevice_bench.quality.qa_summary import task_summary
from ondevice_bench.quality.ruler_tasks import TASKS, make_sample, read_sources
from ondevice_bench.quality.run_ruler import MEASUREMENT, SCORE
from ondevice_bench.quality.samples import Sample
from ondevice_bench.quality.trials import Trial
from ondevice_bench.results.result import row
from tests.builders.models import plain_config, tiny_loaded

TEXT = " ".join(f"Sentence {i} says nothing of note. Nor does its neighbour {i}?" for i in range(500))
SQUAD = {
    "data": [
        {
            "paragraphs": [
                {"context": f"Paragraph {i} is about river {i}.", "qas": [
                    {"question": f"Which river is paragraph {i} about?", "answers": [{"text": f"river {i}"}] * 2},
                    {"question": "Who?", "answers": []},
                ]}
                for i in range(60)
            ]
        }
    ]
}  # fmt: skip
HOTPOT = [
    {
        "question": f"What is {i}?",
        "answer": f"thing {i}",
        "context": [[f"T{i}{j}", [f"It is thing {i}."]] for j in "abcdefghij"],
    }
    for i in range(20)
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("questions")
    squad, hotpot = folder / "squad.json", folder / "hotpot.json"
    squad.write_text(json.dumps(SQUAD))
    hotpot.write_text(json.dumps(HOTPOT))
    return squad, hotpot


def count(text: str) -> int:
    return len(text) // 4


def make(name: str, files: tuple[Path, Path], seed: int = 0, length: int = 900) -> Sample:
    return make_sample(TASKS[name], random.Random(seed), read_sources(TEXT, *files), length, count)


@pytest.mark.parametrize("name", TASKS)
def test_a_row_is_as_long_as_asked_and_holds_its_answer(name: str, files: tuple[Path, Path]) -> None:
    for length in (900, 3000):
        sample = make(name, files, length=length)
        num_tokens = count(sample.head + sample.context + sample.tail + sample.prefix) + TASKS[name].max_new_tokens
        assert num_tokens <= length
        if name not in ("qa_1", "qa_2"):  # of which there is no more here
            assert num_tokens >= 0.85 * length
        assert all(reference in sample.context for reference in sample.references)
        assert TASKS[name].score(f"It says {' and '.join(sample.references).upper()}.", sample.references) == 1.0
        assert TASKS[name].score("It does not say.", sample.references) == 0.0
        assert sample.query in sample.tail or name in ("cwe", "fwe")
    assert make(name, files) == make(name, files)
    assert make(name, files, seed=1) != make(name, files)


@pytest.mark.parametrize(
    ("name", "keys", "values"), [("niah_multikey_1", 4, 1), ("niah_multivalue", 1, 4), ("niah_multiquery", 4, 1)]
)
def test_needles_are_as_many_as_the_task_says(name: str, keys: int, values: int, files: tuple[Path, Path]) -> None:
    sample = make(name, files)
    found = re.findall(r"magic numbers for ([\w-]+) is: (\d{7})\.", sample.context)
    assert len(found) == keys * values
    assert len({key for key, _ in found}) == keys
    asked = {key for key, _ in found if key in sample.tail}
    assert sorted(sample.references) == sorted(value for key, value in found if key in asked)
    assert TASKS[name].score(sample.references[0], sample.references) == 1 / len(sample.references)


def test_what_is_asked_for_is_hidden_once_among_needles(files: tuple[Path, Path]) -> None:
    for name in ("niah_multikey_2", "niah_multikey_3"):
        sample = make(name, files)
        assert sample.context.count("One of the special magic") > 5
        assert sample.context.count(f" for {sample.query} is:") == 1


def test_variables_follow_from_one_another(files: tuple[Path, Path]) -> None:
    sample = make("vt", files)
    chain = re.findall(r"VAR (\w+) = (?:VAR )?(\w+)", sample.context)
    assert chain[0][1] == sample.query
    assert [old for _, old in chain[1:]] == [new for new, _ in chain[:-1]]
    assert tuple(new for new, _ in chain) == sample.references


def test_frequent_words_are_the_most_frequent(files: tuple[Path, Path]) -> None:
    common = Counter(re.findall(r"\d+\. (\w+)", make("cwe", files).context)).most_common(10)
    assert {word for word, _ in common} == set(make("cwe", files).references)
    coded = Counter(word for word in make("fwe", files).context.split() if word != "....").most_common(3)
    assert tuple(word for word, _ in coded) == make("fwe", files).references


def test_what_cannot_be_made_is_said(files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="64 tokens are too few"):
        make("niah_single_1", files, length=64)
    (tmp_path / "odd.json").write_text('{"data": 3}')
    with pytest.raises(ConfigError, match="questions cannot be read"):
        read_sources("", tmp_path / "odd.json", None)
    with pytest.raises(ConfigError, match="holds 'other'"):
        MEASUREMENT.config(plain_config, SimpleNamespace(contenders="", budget=None, tasks="vt,other"))


def options(**fields: object) -> SimpleNamespace:
    names = {"length": 700, "rows": 2, "tasks": "", "text": None, "squad": None, "hotpot": None, "budget": None}
    return SimpleNamespace(**names | {"contenders": "full,infinipot,h2o"} | fields)


def test_contenders_answer_every_row_and_a_stopped_run_goes_on() -> None:
    config = plain_config(
        pot=PotConfig(capacity=512, num_kept=128, reserve=300),
        generation=GenerationConfig(max_new_tokens=4, chat=True),
    )
    engine = Engine(tiny_loaded(max_positions=2048), config)
    setup = Setup(engine, lambda *args: None, lambda path: pytest.fail("no document"), {}, (), None)
    wanted = options(tasks="vt,niah_single_1,niah_single_2,qa_1", rows=1, length=1200)
    items = [item for item in MEASUREMENT.run(setup, wanted) if isinstance(item, Trial | Note)]
    assert [item.text for item in items if isinstance(item, Note)] == [
        "niah_single_2 is left out: it needs --text.",
        "qa_1 is left out: it needs --squad.",
    ]
    trials = [item for item in items if isinstance(item, Trial)]
    assert [(t.task, t.contender) for t in trials] == [
        (task, name) for task in ("vt", "niah_single_1") for name in ("full", "infinipot", "h2o")
    ]
    rows = MEASUREMENT.rows(trials, config)
    assert {one.metric for one in rows} == {SCORE}
    later = Setup(engine, setup.report, setup.open, {}, tuple(rows[:4]), None)
    again = [item for item in MEASUREMENT.run(later, wanted) if isinstance(item, Trial)]
    assert [(t.task, t.contender) for t in again] == [(t.task, t.contender) for t in trials[4:]]


def test_the_summary_has_shares_of_a_full_cache() -> None:
    def one(contender: str, task: str, score: float) -> object:
        return row(contender, {"task": task, "budget": 9, "trial": "0/0"}, SCORE, "share", [score])

    rows = [one("full", "vt", 0.8), one("infinipot", "vt", 0.4), one("full", "cwe", 0.2), one("infinipot", "cwe", 0.2)]
    summary = task_summary(rows)  # type: ignore[arg-type]
    assert summary["average"] == summary["average_full"] == pytest.approx(0.5)
    assert summary["vt_infinipot"] == pytest.approx(0.4)
    assert summary["share_of_full_kv_infinipot"] == pytest.approx(0.6)
