"""Stories of bAbI in a text: facts in their order, as long as asked, the same ones at every length."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from ondevice.config import GenerationConfig, PotConfig
from ondevice.errors import ConfigError
from ondevice.events import DocumentRead
from ondevice.session.engine import Engine
from ondevice_bench.quality.babilong_tasks import MAX_NEW_TOKENS, TASKS, Story, make_sample, read_stories, score
from ondevice_bench.quality.babilong_together import (
    _NEW_PEOPLE,
    _NEW_PLACES,
    _NEW_THINGS,
    HEAD,
    apart,
    make_samples,
)
from ondevice_bench.quality.contenders import text_document
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.quality.run_babilong import MEASUREMENT, SCORE, babilong_summary
from ondevice_bench.quality.trials import Trial, case_of
from ondevice_bench.results.result import row
from tests.builders.models import plain_config, tiny_loaded

SENTENCES = [f"Sentence {i} says nothing." for i in range(40)]
STORY = Story(("Ann went to the pier.", "Ben went to the mill.", "Ann went to the dam."), "Where is Ann?", "dam")
FILE = """1 Ann went to the pier.
2 Ben went to the mill.
3 Where is Ann? \tpier\t1
4 Ann went to the dam.
5 Where is Ann? |dam|4
1 Ben moved to the dam.
2 Where is Ben? \tdam\t1
"""


def count(text: str) -> int:
    return len(text) // 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "qa1_single_test.txt").write_text(FILE)
    return tmp_path


def test_each_question_is_a_story_of_the_facts_before_it(folder: Path) -> None:
    assert read_stories(folder, "qa1") == [
        Story(("Ann went to the pier.", "Ben went to the mill."), "Where is Ann?", "pier"),
        STORY,
        Story(("Ben moved to the dam.",), "Where is Ben?", "dam"),
    ]
    with pytest.raises(ConfigError, match=r"no file qa2_\.\.\._test\.txt"):
        read_stories(folder, "qa2")
    (folder / "qa3_x_test.txt").write_text("no number\n")
    with pytest.raises(ConfigError, match="'no number' has no number"):
        read_stories(folder, "qa3")
    (folder / "qa4_x_test.txt").write_text("1 A fact.\n")
    with pytest.raises(ConfigError, match="no question"):
        read_stories(folder, "qa4")


@pytest.mark.parametrize("length", [0, 400, 2000])
def test_facts_stay_in_their_order_among_sentences_of_the_text(length: int) -> None:
    sample = make_sample("qa1", STORY, random.Random(3), SENTENCES, length, count)
    places = [sample.context.index(fact) for fact in STORY.facts]
    assert places == sorted(places)
    parts = sample.context.split(". ")
    assert len(parts) == len(STORY.facts) + sum(part.startswith("Sentence") for part in parts)
    if length == 0:
        assert sample.context == " ".join(STORY.facts)
    else:
        num_tokens = count(sample.head + sample.context + sample.tail + sample.prefix) + MAX_NEW_TOKENS
        assert 0.9 * length <= num_tokens <= length
        numbers = [int(part.split()[1]) for part in parts if part.startswith("Sentence")]
        assert all((b - a) % len(SENTENCES) == 1 for a, b in pairwise(numbers))


def test_a_story_longer_than_asked_is_refused() -> None:
    with pytest.raises(ConfigError, match="60 tokens are too few"):
        make_sample("qa1", STORY, random.Random(0), SENTENCES, 60, count)


@pytest.mark.parametrize("task", TASKS)
def test_the_answer_of_no_example_stands_in_a_question_of_its_own(task: str) -> None:
    for facts, asked, right in TASKS[task].examples:
        assert right in facts
        assert right not in asked
        assert f"Answer: {right}" in TASKS[task].head


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Dam", 1.0),
        (" Ann is at the dam. Before, at the pier.", 1.0),
        ("The dam or the pier", 0.0),
        ("pier", 0.0),
        ("damage", 0.0),
        ("Before the mill she was at the dam", 1.0),
        ("", 0.0),
    ],
)
def test_the_first_sentence_names_the_answer_alone(answer: str, right: float) -> None:
    assert score(answer, "dam", "Where was Ann before the mill?", ["dam", "mill", "pier"]) == right


def test_names_count_whatever_their_case() -> None:
    assert score("Fred did.", "fred", "Who gave it?", ["fred", "mary"]) == 1.0


def test_the_figures_are_means_over_tasks_by_length() -> None:
    values = {
        ("pot", "qa1_4k", 0): 1.0,
        ("pot", "qa1_4k", 1): 0.0,
        ("pot", "qa2_4k", 0): 1.0,
        ("pot", "qa1_0k", 0): 1.0,
    }
    values[("full", "qa1_4k", 0)] = 0.0
    rows = [
        row(name, case_of(task, 512, str(number), 0), SCORE, "share", [value])
        for (name, task, number), value in values.items()
    ]
    assert babilong_summary(rows) == {
        "mean_qa1_qa2_4k": 0.75,
        "mean_qa1_qa2_4k_pot": 0.75,
        "mean_qa1_0k": 1.0,
        "mean_qa1_0k_pot": 1.0,
        "mean_qa1_4k_full": 0.0,
    }


def options(**fields: object) -> SimpleNamespace:
    names = {"data": None, "text": None, "lengths": (0,), "rows": 1, "tasks": "qa1", "budget": None, "together": False}
    return SimpleNamespace(**names | {"contenders": "full,pot"} | fields)


def test_the_same_story_is_told_at_every_length(folder: Path) -> None:
    config = plain_config(
        pot=PotConfig(capacity=512, num_kept=128, reserve=300),
        generation=GenerationConfig(max_new_tokens=4, chat=False),
    )
    engine = Engine(tiny_loaded(max_positions=4096), config)
    document = text_document("book", [" ".join(SENTENCES)])
    setup = Setup(engine, lambda *args: None, lambda path: document, {}, (), None)
    wanted = options(data=folder, text=Path("any"), lengths=(0, 1536), rows=2)
    trials = [item for item in MEASUREMENT.run(setup, wanted) if isinstance(item, Trial)]
    assert [(t.task, t.text, t.contender) for t in trials] == [
        (task, number, name) for task in ("qa1_0k", "qa1_1536") for number in "01" for name in ("full", "pot")
    ]
    assert [t.references for t in trials[:4]] == [t.references for t in trials[4:]]
    assert all(t.num_tokens < 200 for t in trials[:4])
    assert all(600 < t.num_tokens < 1536 for t in trials[4:])
    assert set(trials[-1].scores) == {SCORE}


def test_what_cannot_be_asked_is_refused() -> None:
    for fields, what in (
        ({"tasks": "qa1,qa9"}, "--tasks holds 'qa9'"),
        ({"lengths": (-1,)}, "negative"),
        ({"lengths": (0, 4096)}, "--text is missing"),
    ):
        with pytest.raises(ConfigError, match=what):
            MEASUREMENT.config(plain_config, options(**fields))


GIVEN = Story(("Fred gave the milk to Jeff.", "Mary went to the office."), "Who gave the milk?", "fred")
LIES = Story(("The office is north of the garden.",), "What is north of the garden?", "office")
ANSWERS = {"qa5": ["fred", "milk"], "qa4": ["garden", "office"]}


def test_stories_of_one_book_share_no_words_that_would_contradict_each_other() -> None:
    told = apart([("qa5", GIVEN), ("qa4", LIES), ("qa5", GIVEN), ("qa4", LIES)], ANSWERS)
    assert told[0] == (
        Story(("John gave the football to Daniel.", "Mary went to the office."), "Who gave the football?", "john"),
        ["football", "john"],
    )
    assert told[2][0].facts[0] == "Fred gave the apple to Jeff."
    assert told[2][0].facts[1].endswith("went to the office."), "a place where people are is the same for all"
    (one, answers), (other, _) = told[1], told[3]
    assert one.answer in answers
    words = [set(" ".join(story.facts).split()) - set(" ".join(LIES.facts).split()) for story in (one, other)]
    assert not words[0] & words[1]
    with pytest.raises(ConfigError, match="names enough"):
        apart([("qa4", LIES)] * 20, ANSWERS)


def test_no_new_word_stands_in_an_example() -> None:
    shown = {word.lower() for task in TASKS.values() for word in re.findall(r"\w+", task.instruction)}
    names = f"{_NEW_PEOPLE} {_NEW_THINGS} {_NEW_PLACES}".lower().split()
    assert len(names) == len(set(names)) == 124
    assert not set(names) & shown


@pytest.mark.parametrize("length", [0, 2000])
def test_all_stories_are_told_in_one_text(length: int) -> None:
    stories = [("qa1", STORY), ("qa5", GIVEN)]
    samples = make_samples(stories, random.Random(1), SENTENCES, length, count)
    (context,) = {sample.context for sample in samples}
    for _, story in stories:
        places = [context.index(fact) for fact in story.facts]
        assert places == sorted(places)
    assert [sample.references for sample in samples] == [("dam",), ("fred",)]
    assert all(
        sample.tail.endswith(f"Question: {story.question}") for sample, (_, story) in zip(samples, stories, strict=True)
    )
    sizes = [count(HEAD + context + sample.tail + sample.prefix) + MAX_NEW_TOKENS for sample in samples]
    assert length == 0 or 0.9 * length <= max(sizes) <= length


def test_one_reading_serves_all_stories_of_a_length(folder: Path) -> None:
    config = plain_config(
        pot=PotConfig(capacity=768, num_kept=128, reserve=512),
        generation=GenerationConfig(max_new_tokens=4, chat=False),
    )
    engine = Engine(tiny_loaded(max_positions=4096), config)
    document = text_document("book", [" ".join(SENTENCES)])
    setup = Setup(engine, lambda *args: None, lambda path: document, {}, (), None)
    wanted = options(data=folder, text=Path("any"), lengths=(1536,), rows=3, together=True, contenders="pot")
    items = list(MEASUREMENT.run(setup, wanted))
    trials = [item for item in items if isinstance(item, Trial)]
    assert [(t.task, t.question) for t in trials] == [("qa1_1536_together", number) for number in range(3)]
    assert sum(isinstance(item, DocumentRead) for item in items) == 1
    assert set(trials[-1].summary) == {"mean_qa1_1536_together", "mean_qa1_1536_together_pot"}
