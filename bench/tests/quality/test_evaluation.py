"""The passkey test: its text is the published one, of the length asked for, and its runs can be stopped and resumed."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.config import PotConfig
from ondevice.errors import ConfigError
from ondevice.events import DocumentRead, TokensRead
from ondevice.session.engine import Engine
from ondevice_bench.quality import run_passkey as module
from ondevice_bench.quality.passkey import FILLER, NAMES, QUESTION, TASK, Case, make_passkey, make_passkeys, plan
from ondevice_bench.quality.run_passkey import Trial, passkey_config, rows_of, run_passkey, run_together, still_to_do
from ondevice_bench.results.files import read_result
from tests.builders.models import plain_config, tiny_loaded

CONFIG = passkey_config(plain_config(pot=PotConfig(capacity=256, num_kept=96, reserve=64, step_size=64)))
POT_FLAGS = ["--capacity", "256", "--keep", "96", "--reserve", "64", "--step", "64"]


def count_bytes(text: str) -> int:
    return len(text.encode())


def count_words(text: str) -> int:
    return len(re.findall(r"\w{1,4}|[^\w]", text))


# -- the text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [count_bytes, count_words])
@pytest.mark.parametrize("depth", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("length", [1024, 5000, 70_000])
def test_the_prompt_has_the_length_asked_for_within_one_percent(count, depth: float, length: int) -> None:
    passkey = make_passkey(Case(length, depth, 0), 0, count)
    assert passkey.num_tokens == count(passkey.document + QUESTION)
    assert 0.99 * length <= passkey.num_tokens <= length


def test_the_prompt_is_the_published_one() -> None:
    passkey = make_passkey(Case(2000, 0.25, 0), 0, count_bytes)
    task, before, secret, after, question = (passkey.document + QUESTION).split("\n")
    assert task == TASK
    assert task.startswith("There is an important info hidden inside a lot of irrelevant text.")
    assert secret == f"The pass key is {passkey.key}. Remember it. {passkey.key} is the pass key."
    assert question == "What is the pass key? The pass key is"
    endless = " ".join([FILLER] * 40)
    assert endless.startswith(
        "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. The"
    )
    assert endless.startswith(before)
    assert endless.startswith(after)
    assert len(before) == pytest.approx(0.25 * (len(before) + len(after)), abs=1)


def test_the_key_depends_on_seed_and_case_and_on_nothing_else() -> None:
    def key(seed: int, case: Case) -> int:
        return make_passkey(case, seed, count_bytes).key

    case = Case(2000, 0.5, 0)
    assert key(0, case) == 43006  # the same on every machine and in every process
    others = [key(1, case), *(key(0, replace(case, **change)) for change in ({"trial": 1}, {"depth": 0.6}))]
    assert key(0, case) not in others
    assert all(1 <= key(seed, case) <= 50_000 for seed in range(50))


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [("4711", True), (" 4711. Remember it. 12", True), ("is 04711", True), ("12, not 4711", False), ("47 11", False),
     ("47110", False), ("four", False), ("", False)],
)  # fmt: skip
def test_the_first_run_of_digits_decides(answer: str, is_right: bool) -> None:
    passkey = replace(make_passkey(Case(1000, 0.5, 0), 0, count_bytes), key=4711)
    assert passkey.is_right(answer) is is_right


def test_a_length_that_holds_no_filler_is_refused() -> None:
    with pytest.raises(ConfigError, match="--lengths holds 100"):
        make_passkey(Case(100, 0.5, 0), 0, count_bytes)


def test_numbers_of_one_text_have_names_and_each_question_has_its_own() -> None:
    cases = plan((2000,), (0.1, 0.5, 0.9), 1)
    passkeys = make_passkeys(cases, 0, count_bytes)
    (text,) = {passkey.document for passkey in passkeys}
    assert 1980 <= passkeys[0].num_tokens <= 2000
    for case, passkey, name in zip(cases, passkeys, NAMES, strict=False):
        sentence = f"The {name} is {passkey.key}. Remember it. {passkey.key} is the {name}."
        assert text.index(sentence) / len(text) == pytest.approx(case.depth, abs=0.06)
        assert passkey.question == f"What is the {name}? The {name} is"
        assert passkey.key == make_passkey(case, 0, count_bytes).key
    words = " ".join(NAMES).split()
    assert len(set(words)) == len(words)
    with pytest.raises(ConfigError, match="--depths holds 11 places"):
        make_passkeys(plan((2000,), tuple(i / 11 for i in range(11)), 1), 0, count_bytes)


def test_the_plan_has_every_combination_and_refuses_what_is_none() -> None:
    cases = plan((512, 1024), (0.1, 0.9), 2)
    assert len(set(cases)) == 8
    assert cases[0] == Case(512, 0.1, 0)
    with pytest.raises(ConfigError, match="--depths holds 2"):
        plan((512,), (2.0,), 1)
    with pytest.raises(ConfigError, match="--trials is 0"):
        plan((512,), (0.5,), 0)


# -- the run -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(tiny_loaded(), CONFIG)


def test_the_test_is_plain_greedy_completion() -> None:
    generation = passkey_config(plain_config()).generation
    assert generation.chat is False
    assert generation.temperature == 0.0


def test_every_case_becomes_one_trial_with_its_account(engine: Engine) -> None:
    cases = plan((700, 900), (0.2, 0.8), 1)
    trials = [item for item in run_passkey(engine, cases) if isinstance(item, Trial)]
    assert {trial.case for trial in trials} == set(cases)
    assert all(0.99 * trial.case.length <= trial.num_tokens <= trial.case.length for trial in trials)
    assert all(trial.tokens_per_second > 0 for trial in trials)


def test_a_trial_answers_as_if_its_text_had_been_read_alone(engine: Engine) -> None:
    cases = plan((900,), (0.1, 0.5, 0.9), 1)
    together = {item.case: item.answer for item in run_passkey(engine, cases) if isinstance(item, Trial)}
    for case in cases:
        (alone,) = (item.answer for item in run_passkey(engine, [case]) if isinstance(item, Trial))
        assert together[case] == alone
    assert len(set(together.values())) > 1, "all answers are equal: this test could not fail"


def test_what_texts_share_is_told_of_while_it_is_read(engine: Engine) -> None:
    items = list(run_passkey(engine, plan((900,), (0.5, 0.9), 1)))
    first, last = (at for at, item in enumerate(items) if isinstance(item, Trial))
    texts = [items[at].num_tokens - count_bytes(QUESTION) for at in (first, last)]
    read = [sum(i.num_tokens for i in part if isinstance(i, TokensRead)) for part in (items[:first], items[first:last])]
    assert read[0] == texts[0]  # what both begin with, and what it has alone
    assert 0 < read[1] < texts[1]


def test_keys_of_one_text_are_asked_for_after_one_reading_and_a_stopped_run_asks_for_the_others(engine: Engine) -> None:
    cases = plan((900,), (0.1, 0.5, 0.9), 2)
    items = list(run_together(engine, cases, cases))
    trials = {item.case: item for item in items if isinstance(item, Trial)}
    assert set(trials) == set(cases)
    assert sum(isinstance(item, DocumentRead) for item in items) == 2
    assert len({trial.answer for trial in trials.values()}) > 1, "all answers are equal: this test could not fail"
    (last,) = (item for item in run_together(engine, cases, cases[-1:]) if isinstance(item, Trial))
    assert (last.case, last.answer, last.num_keys) == (cases[-1], trials[cases[-1]].answer, 3)
    assert {row.contender.rpartition(", ")[2] for row in rows_of([last], CONFIG)} == {"3 keys a text"}


def test_one_question_for_all_keys_is_refused() -> None:
    together = CliRunner().invoke(app, ["eval", "passkey", "--together", "--known-question"])
    assert together.exit_code == 2
    assert "--together asks for one key after the other" in together.stderr


def test_every_trial_has_two_rows_and_is_done_once_they_are_there() -> None:
    cases = plan((700,), (0.2, 0.8), 1)
    trials = [Trial(case, 699, 5, "5", is_right, 100.0) for case, is_right in zip(cases, (True, False), strict=True)]
    rows = rows_of(trials, CONFIG)
    assert [row.p50 for row in rows] == [1.0, 100.0, 0.0, 100.0]
    assert [row.case for row in rows[::2]] == [asdict(case) for case in cases]
    assert still_to_do((*cases, Case(800, 0.2, 0)), rows) == (Case(800, 0.2, 0),)


# -- the command -------------------------------------------------------------------------------------


def test_a_stopped_run_keeps_its_trials_and_the_next_one_goes_on(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "passkey.json"
    command = ["eval", "passkey", "--model", str(checkpoint), *POT_FLAGS, "--out", str(out), "--json"]
    command += ["--lengths", "700", "--depths", "0.2,0.5,0.8"]
    real = module.run_passkey

    def stopped_after_one(engine: Engine, cases):
        for item in real(engine, cases):
            yield item
            if isinstance(item, Trial):
                raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_passkey", stopped_after_one)
    assert CliRunner().invoke(app, command).exit_code == 130
    partial = read_result(out)
    assert not partial.complete
    assert len(partial.rows) == 2

    ran: list[tuple[Case, ...]] = []

    def counted(engine: Engine, cases):
        ran.append(tuple(cases))
        return real(engine, cases)

    monkeypatch.setattr(module, "run_passkey", counted)
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 0, again.output
    assert [case.depth for case in ran[0]] == [0.5, 0.8]
    assert f"Going on with {out}: 1 of 3 trials are done." in again.stderr
    final = json.loads(again.stdout.splitlines()[-1])
    assert final == json.loads(json.dumps(read_result(out).to_dict()))
    assert "complete" not in final
    assert final["summary"].keys() == {"accuracy"}
    assert len(final["rows"]) == 6
    assert final["rows"][:2] == [asdict(row) for row in partial.rows]

    ran.clear()
    assert CliRunner().invoke(app, command).exit_code == 0
    assert len(ran[0]) == 3, "a finished run is measured again"


def test_an_unfinished_run_with_other_settings_is_not_mixed_in(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "passkey.json"
    command = ["eval", "passkey", "--model", str(checkpoint), *POT_FLAGS, "--out", str(out), "--lengths", "700"]
    assert CliRunner().invoke(app, [*command, "--depths", "0.5"]).exit_code == 0
    unfinished = json.loads(out.read_text()) | {"complete": False}
    out.write_text(json.dumps(unfinished))
    done = CliRunner().invoke(app, [*command, "--depths", "0.5", "--novelty", "0"])
    assert done.exit_code == 0
    assert "starting over" in done.stderr
    assert {row.contender for row in read_result(out).rows} == {"InfiniPot CaP-G without NuC slots by-head 256/96"}
