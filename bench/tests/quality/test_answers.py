"""`ondevice eval answers`: what each contender reads, how answers are scored, and that a stopped run goes on."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.config import ArtConfig, EngineConfig, PotConfig, TierConfig
from ondevice.decode.denial import NOT_THERE
from ondevice.errors import ConfigError
from ondevice.session.engine import Engine
from ondevice_bench.quality import contenders as contenders_module
from ondevice_bench.quality import run_answers as module
from ondevice_bench.quality.contenders import CONTENDERS, TIER_BYTES, USUAL, chosen
from ondevice_bench.quality.measurement import Note, Setup
from ondevice_bench.quality.qa_summary import F1, HELD, REFUSED, REFUSED_FOREIGN, answers_summary, longbench_summary
from ondevice_bench.quality.rows import Question, Text
from ondevice_bench.quality.run_answers import GENERATION, LIKELIHOOD, answers_config, run_answers
from ondevice_bench.quality.trials import SECONDS, Trial, rows_of
from ondevice_bench.results.charts import curve_of, draw
from ondevice_bench.results.files import read_result
from ondevice_bench.results.markdown import make_pages
from ondevice_bench.results.result import Result, Row, row
from tests.builders.models import plain_config, tiny_encoder, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

POT = PotConfig(capacity=640, num_kept=200, reserve=240, step_size=64)
CONFIG = answers_config(plain_config(pot=POT), 8)
POT_FLAGS = ["--capacity", "640", "--keep", "200", "--reserve", "240", "--step", "64"]
BODY = "\n\n".join(f"Keeper {i} lit lamp {i * 37 % 101} at dusk. The sea was calm." for i in range(30))
QUESTIONS = (
    Question(0, "Which lamp did keeper 3 light?", ("lamp 10", "10")),
    Question(1, "Who lit lamps?", ("B",), ("sailors", "keepers", "birds")),
)
TEXT = Text("leval", "1", BODY, QUESTIONS)
NUM_TOKENS = len(BODY)


@pytest.fixture(autouse=True)
def _tiny_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders_module, "load_minilm", lambda _: tiny_encoder())


def setup_of(config: EngineConfig = CONFIG, earlier: tuple[Row, ...] = (), out_file: Path | None = None) -> Setup:
    engine = Engine(tiny_loaded(max_positions=8192), config)
    return Setup(engine, lambda stage, fraction: None, lambda path: pytest.fail("opens nothing"), {}, earlier, out_file)


def trials(setup: Setup, names: str = "", budget: int = 640, text: Text = TEXT) -> list[Trial]:
    return [item for item in run_answers(setup, [(text, NUM_TOKENS)], chosen(names), budget) if isinstance(item, Trial)]


def test_what_stands_nowhere_in_the_text_cannot_have_been_found_there() -> None:
    questions = tuple(
        replace(QUESTIONS[0], number=at, references=one) for at, one in enumerate((("11 lamps",), ("10",)))
    )
    unsaid, said = trials(setup_of(), "none", text=replace(TEXT, questions=questions))
    assert set(unsaid.scores) == {F1, REFUSED}
    assert set(said.scores) == {F1, REFUSED, HELD}


# -- contenders --------------------------------------------------------------------------------------


def test_every_contender_answers_every_question_within_its_budget() -> None:
    done = trials(setup_of())
    assert [(one.contender, one.question) for one in done] == [
        *((name, number) for number in (0, 1) for name in ("default", "pot")),  # the same here, and read once
        *((name, number) for name in USUAL if name not in ("default", "pot") for number in (0, 1)),
    ]
    room = 640 - 240 - len(Engine(tiny_loaded(), CONFIG).plan().chat.prefix)
    for one in done:
        assert set(one.scores) == ({F1, HELD, REFUSED} if one.question == 0 else {LIKELIHOOD, GENERATION})
        assert all(0 <= score <= 1 for score in one.scores.values())
        if one.contender in ("truncation", "bm25", "minilm", "fused"):
            assert room * 0.4 < one.num_read <= room
        else:
            assert one.num_read == (1 if one.contender == "none" else NUM_TOKENS)


def test_the_settings_of_contenders_are_those_given_with_one_number_of_slots() -> None:
    given = replace(CONFIG, tier=TierConfig(budget_bytes=10**6, max_tokens=32), art=ArtConfig(enabled=True))
    made = {name: one.config(given, 640) for name, one in CONTENDERS.items()}
    assert made["default"] == given
    assert made["pot"] == replace(given, tier=replace(given.tier, budget_bytes=0))
    assert made["pot+tier"] == given
    assert CONTENDERS["pot+tier"].config(CONFIG, 640).tier.budget_bytes == TIER_BYTES
    for name in ("full", "truncation", "bm25", "minilm", "none"):
        assert not made[name].art.enabled
        assert made[name].tier.budget_bytes == 0
    assert all(config.pot.capacity == 640 for config in made.values())
    assert made["bm25"].pot.method.keeps_all
    smaller = CONTENDERS["pot"].config(CONFIG, 320).pot
    assert (smaller.capacity, smaller.num_kept) == (320, 53), "half of 200, but a third of what is left to read into"
    assert CONTENDERS["default"].config(CONFIG, 320) == CONFIG


def test_a_full_cache_answers_only_where_it_fits() -> None:
    engine = Engine(tiny_loaded(max_positions=512), CONFIG)
    setup = replace(setup_of(), engine=engine)
    items = list(run_answers(setup, [(TEXT, NUM_TOKENS)], ("full", "none"), 640))
    assert {one.contender for one in items if isinstance(one, Trial)} == {"none"}
    assert any(isinstance(item, Note) and "do not fit" in item.text for item in items)


def test_passages_are_found_for_each_question_and_whole_texts_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    make = Engine.session
    monkeypatch.setattr(Engine, "session", lambda self, config: read.append(config.pot.policy) or make(self, config))
    found: list[str] = []
    look = contenders_module.Retriever.find
    monkeypatch.setattr(
        contenders_module.Retriever,
        "find",
        lambda self, query, *given: found.append(query) or look(self, query, *given),
    )
    trials(setup_of(), "pot,bm25,afresh")
    assert read == ["infinipot", "full", "full", "infinipot", "infinipot"]
    assert found == ["Which lamp did keeper 3 light?", "Who lit lamps?"]


def test_an_answer_before_reading_is_timed_from_the_text_on() -> None:
    generation = replace(CONFIG.generation, num_passage_tokens=220)
    setup = setup_of(replace(CONFIG, generation=generation))
    now, later = trials(setup, "now,default", text=replace(TEXT, questions=QUESTIONS[:1]))
    assert (now.num_read, later.num_read) == (0, NUM_TOKENS)
    assert set(now.scores) == {*later.scores, SECONDS}
    assert now.scores[SECONDS] == pytest.approx(now.reading_seconds + now.answer_seconds)
    assert now.scores[HELD] == 1.0, "a search of the text finds it"
    (timed,) = (one for one in rows_of([now, later]) if one.metric == SECONDS)
    assert (timed.unit, timed.p50) == ("s", now.scores[SECONDS])
    found = answers_summary(rows_of([now, later]))
    assert found["seconds_to_first_answer"] == now.scores[SECONDS]
    assert found["answer_in_now"] == 1.0
    assert 0 <= found["now"] <= 1, "seconds are no score"


def test_unknown_contenders_and_too_small_budgets_are_refused() -> None:
    with pytest.raises(ConfigError, match="--contenders holds 'rag'"):
        chosen("pot,rag")
    assert chosen("bm25, pot,bm25") == ("bm25", "pot")
    with pytest.raises(ConfigError, match="--budget is 244"):
        contenders_module.budget_of(CONFIG, 244)


def test_settings_that_leave_the_size_open_give_all_contenders_the_usual_one() -> None:
    open_size = plain_config()
    assert open_size.pot.is_auto
    budget = contenders_module.budget_of(open_size, None)
    assert budget == open_size.pot.usual_capacity
    made = {name: one.config(open_size, budget).pot for name, one in CONTENDERS.items()}
    assert made.pop("default").is_auto
    assert made.pop("now").is_auto
    assert made.pop("afresh").is_auto
    assert {pot.capacity for pot in made.values()} == {budget}
    assert contenders_module.budget_of(open_size, 640) == 640
    assert contenders_module.budget_of(CONFIG, None) == 640


# -- scores ------------------------------------------------------------------------------------------


class Written:
    """Stands in for the model: sessions answer what they are given here, and find likeliest what is longest."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
        self.asked: list[str] = []
        pieces = iter(answers)

        def write(events: Iterator, is_settled=None):
            yield from events
            return next(pieces)

        def ask(session, question, generation=None):
            self.asked.append(question)
            yield from ()

        monkeypatch.setattr(module, "write_answer", lambda events: write(events))
        monkeypatch.setattr("ondevice.session.session.Session.ask", lambda *given: ask(*given))
        monkeypatch.setattr(module, "log_likelihoods", lambda session, question, choices: [*map(len, choices)])


def test_free_answers_are_scored_by_f1_and_choices_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written(monkeypatch, "the lamp", "(C) birds")
    free, choice = trials(setup_of(), "none")
    assert free.scores == {F1: pytest.approx(2 / 3), HELD: 0.0, REFUSED: 0.0}
    assert choice.scores == {LIKELIHOOD: 0.0, GENERATION: 0.0}  # `sailors` and `keepers` are as long: the first
    assert written.asked == [
        "Which lamp did keeper 3 light?\nAnswer in a few words.",
        "Who lit lamps?\n(A) sailors\n(B) keepers\n(C) birds\nAnswer with the letter of the right choice.",
    ]


def test_each_text_is_asked_what_another_one_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Text("leval", "2", "A ship.", (Question(0, "Which ship?", ("Aas", "A ship")), Question(1, "Why?", ("no",))))
    written = Written(monkeypatch, "lamp 10", "(B)", NOT_THERE, "A ship", "no", "lamp 10")
    given = run_answers(setup_of(), [(TEXT, NUM_TOKENS), (other, 7)], ("none",), 640, foreign=1)
    done = [one for one in given if isinstance(one, Trial)]
    assert [one.scores.get(REFUSED_FOREIGN) for one in done] == [None, None, 1.0, None, None, 0.0]
    assert written.asked[2] == "Which ship?\nAnswer in a few words."
    assert written.asked[5] == "Which lamp did keeper 3 light?\nAnswer in a few words."
    found = answers_summary(
        row("default", one.case, metric, "share", [value]) for one in done for metric, value in one.scores.items()
    )
    assert (found["refused_unanswerable"], found["refused_answerable"]) == (0.5, 0.0)
    assert found["default"] == pytest.approx((1 + 1 + 0.5 + 1) / 4), "what is of another text has no other score"


def test_what_also_stands_in_a_text_is_not_foreign_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Text("leval", "2", "A ship.", (Question(0, "Which?", ("the sea",)),))
    Written(monkeypatch, "lamp 10", "(B)", "A ship", "x")
    done = list(run_answers(setup_of(), [(TEXT, NUM_TOKENS), (other, 7)], ("none",), 640, foreign=1))
    assert [one.text for one in done if isinstance(one, Trial) and REFUSED_FOREIGN in one.scores] == ["2"]


def figures(**scores: list[float]) -> list[Row]:
    """Rows of contenders over as many questions, each with one metric; None: not answered."""
    return [
        row(name.replace("_", "+"), {"task": "t", "budget": 1, "trial": str(i)}, F1, "share", [value])
        for name, values in scores.items()
        for i, value in enumerate(values)
        if value is not None
    ]


def test_the_summary_compares_over_the_questions_that_both_answered() -> None:
    rows = figures(default=[1.0, 0.5, 0.0], pot=[0.5, 0.25, 0.0], full=[1.0, 0.5, None], bm25=[0.0, 0.5, 0.5])
    rows += figures(pot_tier=[1.0, 1.0, 1.0])
    rows += [replace(one, metric=HELD) for one in figures(default=[1.0, 0.0, 0.0], bm25=[1.0, 1.0, 0.0])]
    assert answers_summary(rows) == pytest.approx(
        {
            "share_of_full_kv": 1.0,
            "fits_minus_best": 0.0,
            "product_minus_best_search": 0.5 - 1 / 3,
            "answer_in_recalled": 1 / 3,
            "answer_in_bm25": 2 / 3,
            "default": 0.5,
            "pot": 0.25,
            "full": 0.75,
            "bm25": 1 / 3,
            "pot_tier": 1.0,
        }
    )


def test_questions_over_several_places_are_told_apart_and_intervals_hold_the_difference() -> None:
    rows = figures(default=[1.0, 0.5, 0.0, 1.0, 1.0, 0.5], bm25=[0.0, 0.5, 0.5, 0.5, 0.0, 0.0])
    rows += [replace(one, case={**one.case, "task": "hotpotqa"}) for one in figures(default=[0.0], bm25=[1.0])]
    rows += [replace(one, metric=HELD, case={**one.case, "task": "hotpotqa"}) for one in figures(default=[1.0])]
    found = answers_summary(rows)
    key = "product_minus_best_search"
    assert found[key] == pytest.approx((2.5 - 1.0) / 7)
    assert found[f"{key}_low"] < found[key] < found[f"{key}_high"]
    assert found[f"{key}_multihop"] == -1.0
    assert f"{key}_multihop_low" not in found, "too few"
    assert "answer_in_recalled" not in found


def test_a_question_with_two_metrics_counts_once() -> None:
    case = {"task": "t", "budget": 1, "trial": "0"}
    rows = [row("default", case, LIKELIHOOD, "share", [1.0]), row("default", case, GENERATION, "share", [0.0])]
    rows += figures(default=[None, 1.0])
    assert answers_summary(rows) == {"default": 0.75}


def test_longbench_is_the_average_over_tasks() -> None:
    rows = figures(default=[1.0, 0.5], bm25=[0.25])
    rows.append(row("default", {"task": "u", "budget": 1, "trial": "0"}, "x", "share", [0.25]))
    assert longbench_summary(rows) == {
        "average": 50.0, "average_default": 50.0, "average_bm25": 25.0,
        "t_default": 75.0, "u_default": 25.0, "t_bm25": 25.0, "default_minus_bm25": 75.0,
    }  # fmt: skip
    assert longbench_summary(figures(bm25=[0.25]))["average"] == 25.0
    compared = longbench_summary(figures(default=8 * [1.0, 0.5, 0.5], bm25=8 * [0.25, 0.5, 0.0]))
    assert compared["default_minus_bm25"] == pytest.approx(100 * 1.25 / 3)
    assert compared["default_minus_bm25_low"] < compared["default_minus_bm25"] < compared["default_minus_bm25_high"]


def test_contenders_stand_side_by_side_in_the_picture_and_on_the_page() -> None:
    rows = figures(default=[1.0, 0.5], pot_tier=[0.25])
    rows.append(row("default", {"task": "u", "budget": 1, "trial": "0"}, F1, "share", [0.0]))
    rows.append(row("default", {"task": "u", "budget": 1, "trial": "0"}, SECONDS, "s", [3.5]))
    machine = {"device": "a machine", "cores": 2, "memory_bytes": 2**30}
    result = Result(
        "ondevice eval answers --data a.jsonl", {}, 0, machine, {}, "abc", "2026-01-01", tuple(rows), {"default": 0.5}
    )
    pages = make_pages({"books": result}, "bench/results")
    assert pages["books.svg"] == draw(result, curve_of(result))
    assert all(name in pages["books.svg"] for name in ("default", "pot+tier", "75.0", "37.5", "mean over each task"))
    page = pages["eval-answers.md"]
    assert "](books.svg)" in page
    assert "| task | metric | n | default | pot+tier |" in page
    assert "| t | F1 | 2 | 75 % | 25 % |" in page
    assert "| u | F1 | 1 | 0 % |  |" in page
    assert f"| u | {SECONDS} | 1 | 3.5 s |  |" in page
    assert "| F1 | budget 1 | default | 50 %, n = 3 | [books](#books) |" in page


# -- the command -------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [
        {"input": f"{i}. {BODY}", "instructions": ["Which lamp?", "When?"], "outputs": ["lamp 10", "at dusk"]}
        for i in range(2)
    ]
    path = tmp_path / "rows" / "lamps.jsonl"
    path.parent.mkdir()
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_stopped_run_goes_on_where_it_ended(
    tmp_path: Path, checkpoint: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "answers.json"
    command = ["eval", "answers", "--model", str(checkpoint), "--data", str(data), *POT_FLAGS, "--new-tokens", "4"]
    command += ["--contenders", "default,truncation,bm25", "--out", str(out), "--json"]
    real = module.run_answers

    def stopped_after_three(*given):
        done = 0
        for item in real(*given):
            yield item
            done += isinstance(item, Trial)
            if done == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_answers", stopped_after_three)
    assert CliRunner().invoke(app, command).exit_code == 130
    assert len(read_result(out).rows) == 9
    monkeypatch.setattr(module, "run_answers", real)
    monkeypatch.setattr(sys, "argv", ["ondevice", *command])
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 0, again.output
    assert "Going on with" in again.stderr
    final = json.loads(again.stdout.splitlines()[-1])
    assert len(final["rows"]) == 36
    assert final["command"].startswith("ondevice eval answers")
    assert len({json.dumps([one["contender"], one["case"]]) for one in final["rows"]}) == 12
    compared = {"product_minus_best_search", "answer_in_recalled", "answer_in_bm25", "refused_answerable"}
    assert set(final["summary"]) == {"default", "truncation", "bm25"} | compared
    assert final["summary"] == pytest.approx(answers_summary(read_result(out).rows))
    with out.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 36
    assert {line["contender"] for line in lines} == {"default", "truncation", "bm25"}
    assert all(line["references"] in ("lamp 10", "at dusk") for line in lines)
    fewer = CliRunner().invoke(app, [*command, "--limit", "1", "--questions", "1"])
    assert len(json.loads(fewer.stdout.splitlines()[-1])["rows"]) == 9
    with out.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 9, "another run has a table of its own"


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (["--contenders", "rag"], "--contenders holds 'rag'"),
        (["--budget", "100"], "--budget is 100"),
        (["--min-tokens", "100000"], "No text has questions and a length as asked for"),
    ],
)
def test_what_cannot_be_measured_is_refused(flags: list[str], what: str, checkpoint: Path, data: Path) -> None:
    refused = CliRunner().invoke(
        app, ["eval", "answers", "--model", str(checkpoint), "--data", str(data), *POT_FLAGS, *flags]
    )
    assert refused.exit_code != 0
    assert what in " ".join(refused.stderr.split())
