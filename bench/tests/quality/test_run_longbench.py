"""`ondevice eval longbench`: the prompt that the model gets is the published one, whatever goes where."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.config import EngineConfig, PotConfig
from ondevice.errors import ConfigError
from ondevice.events import QuestionRead, TokensRecalled
from ondevice.session.engine import Engine
from ondevice_bench.quality.contenders import text_document
from ondevice_bench.quality.contest import Exam, groups
from ondevice_bench.quality.longbench_tasks import TASKS
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.quality.rows import Question, Text
from ondevice_bench.quality.run_longbench import exam_of
from tests.builders.models import CHAT_TEMPLATE, plain_config, save_checkpoint, tiny_loaded, tiny_model

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIG = plain_config(pot=PotConfig(capacity=640, num_kept=100, reserve=300, step_size=64))
CONTEXT = "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(20))


def row_of(task: str, input: str = "Which lamp?") -> Text:
    return Text(task, "1", CONTEXT, (Question(0, input, ("lamp 10",), classes=("lamp", "sea")),))


def prompt_of(engine: Engine, text: Text) -> str:
    """All that the model reads before it answers: what is in a full cache, and the question."""
    exam = exam_of(engine, text, 1)
    pot = replace(engine.config.pot, policy="full")
    session = engine.session(replace(engine.config, pot=pot, generation=exam.generation))
    for _ in session.read(text_document("row", (exam.head, exam.body, exam.tail))):
        pass
    context, asked = session.context, list[int]()
    read = context.decoder.forward

    def spy(ids, pot, **given):
        asked.extend(ids[0].tolist())
        return read(ids, pot, **given)

    context.decoder.forward = spy
    for event in exam.questions[0].answer(session):
        if isinstance(event, QuestionRead):
            break
    ids = [*context.chat.prefix, *context.tokens.ids(0, context.tokens.num_tokens).tolist(), *asked]
    return context.loaded.tokenizer.decode(ids, skip_control=False)


SHORT, LONG = "Which lamp?", "A long one. " * 60


@pytest.mark.parametrize(
    ("name", "input", "chat_template"),
    [
        *((name, LONG, CHAT_TEMPLATE) for name in TASKS),
        ("qasper", SHORT, CHAT_TEMPLATE),
        ("qasper", SHORT, None),
        ("samsum", SHORT, None),
        ("gov_report", "", None),
    ],
)
def test_the_model_reads_the_published_prompt(name: str, input: str, chat_template: str | None) -> None:
    engine = Engine(tiny_loaded(chat_template=chat_template), CONFIG)
    task = TASKS[name]
    expected = task.head + CONTEXT + task.tail.replace("{input}", input)
    if task.chat and chat_template:
        expected = f"<|im_start|>user\n{expected}<|im_end|>\n<|im_start|>assistant\n"
    assert prompt_of(engine, row_of(name, input)).removeprefix("<|bos|>") == expected


def test_the_question_leaves_room_for_the_answer() -> None:
    engine = Engine(tiny_loaded(), CONFIG)
    exam = exam_of(engine, row_of("hotpotqa", LONG), 1)
    assert exam.generation.max_new_tokens == 32
    assert exam.tail
    with pytest.raises(ConfigError, match="too few for a question"):
        exam_of(Engine(tiny_loaded(), replace(CONFIG, pot=replace(CONFIG.pot, reserve=20))), row_of("qasper"), 1)


def test_retrieval_looks_for_the_question_or_for_the_task() -> None:
    engine = Engine(tiny_loaded(), CONFIG)
    assert exam_of(engine, row_of("qasper"), 1).questions[0].query == "Which lamp?"
    assert "summary" in exam_of(engine, row_of("gov_report", ""), 1).questions[0].query


def test_passages_are_found_by_the_question_and_a_summary_comes_from_the_pot() -> None:
    engine = Engine(tiny_loaded(), CONFIG)

    def recalled(name: str, input: str, num_passage_tokens: int) -> list[TokensRecalled]:
        exam = exam_of(engine, row_of(name, input), 1)
        generation = replace(exam.generation, num_passage_tokens=num_passage_tokens)
        session = engine.session(replace(engine.config, generation=generation))
        list(session.read(text_document("row", (exam.head, exam.body, exam.tail))))
        return [event for event in exam.questions[0].answer(session) if isinstance(event, TokensRecalled)]

    [passages] = recalled("qasper", "Which lamp did keeper 7 light?", 100)
    found = "".join((TASKS["qasper"].head + CONTEXT)[start:stop] for start, stop in passages.tokens)
    assert "Keeper 7 lit" in found
    assert not recalled("qasper", "Which lamp did keeper 7 light?", 0)
    assert not recalled("gov_report", "", 100)


def test_a_method_of_a_paper_reads_for_the_question_and_only_one() -> None:
    engine = Engine(tiny_loaded(), CONFIG)
    exam = exam_of(engine, row_of("qasper"), 1)

    def config_of(name: str, exam: Exam = exam) -> EngineConfig:
        setup = Setup(engine, lambda *_: None, lambda _: pytest.fail("no document"), {}, (), None)
        return next(groups(setup, exam, (name,), 640))[0]

    slim, spec, art = map(config_of, ("paper-sliminfer", "paper-specprefill-30", "paper-art"))
    assert slim.slim.schedule == "auto"
    assert spec.spec.keep == 0.3
    assert art.art.published
    for config in (slim, spec, art):
        assert config.pot.method.keeps_all
        assert config.pot.catalyst_prompt.strip() == "Which lamp?"
        session = engine.session(config)
        list(session.read(text_document("row", (exam.head, exam.body, exam.tail))))
        assert list(exam.questions[0].answer(session))
    long = replace(exam, questions=(replace(exam.questions[0], query="Which lamp? " * 60),))
    list(
        engine.session(config_of("paper-sliminfer", long)).read(text_document("row", (exam.head, exam.body, exam.tail)))
    )
    with pytest.raises(ConfigError, match="paper-art reads a text for one question"):
        config_of("paper-art", replace(exam, questions=exam.questions * 2))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tiny_model("llama"), tmp_path_factory.mktemp("model") / "tiny")


def test_the_command_reports_tasks_and_contenders(tmp_path: Path, checkpoint: Path) -> None:
    rows = [
        {"input": "Which lamp?", "context": f"{i}. {CONTEXT}", "answers": ["lamp 10"], "length": 9, "dataset": name,
         "all_classes": ["lamp"], "_id": f"{name}{i}"}
        for name in ("trec", "qasper", "dureader") for i in range(3)
    ]  # fmt: skip
    data, out = tmp_path / "rows.jsonl", tmp_path / "out.json"
    data.write_text("\n".join(map(json.dumps, rows)))
    command = ["eval", "longbench", "--model", str(checkpoint), "--data", str(data), "--out", str(out), "--json"]
    command += ["--capacity", "640", "--keep", "100", "--reserve", "300", "--contenders", "default,truncation"]
    done = CliRunner().invoke(app, [*command, "--limit", "2"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout.splitlines()[-1])
    assert set(document["summary"]) == {
        "average", "average_default", "average_truncation", "default_minus_truncation",
        "trec_default", "trec_truncation", "qasper_default", "qasper_truncation",
    }  # fmt: skip
    assert len(document["rows"]) == 8
    assert all(0 <= one["p50"] <= 1 for one in document["rows"])
    one_task = CliRunner().invoke(app, [*command, "--tasks", "trec"])
    assert len(json.loads(one_task.stdout.splitlines()[-1])["rows"]) == 6
    refused = CliRunner().invoke(app, [*command, "--tasks", "dureader"])
    assert "--tasks holds 'dureader'" in " ".join(refused.stderr.split())
