"""`ondevice bench peers`: every contender does the same work, and the ratios are those of the figures."""

from __future__ import annotations

import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from ondevice.config import PotConfig
from ondevice.errors import ConfigError, ModelError
from ondevice.machine.processes import in_its_own_process, within
from ondevice.session.engine import Engine, Session
from ondevice_bench.quality.measurement import Note, Setup, Table
from ondevice_bench.speed.peer_work import LLAMA_CPP, OURS, SHIFTING, TRANSFORMERS, Answer, Figures, Task, work
from ondevice_bench.speed.peers import gguf_of, run_peers
from tests.builders.gguf_files import write_gguf
from tests.builders.llama_cpp import fake_llama_cpp
from tests.builders.models import plain_config, plain_generation

pytestmark = pytest.mark.usefixtures("one_thread")

POT = PotConfig(capacity=512, num_kept=128, reserve=128, step_size=64)
SECONDS = {OURS: 2.0, LLAMA_CPP: 6.0, TRANSFORMERS: 1.0}


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    path = write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")
    engine = Engine.load(plain_config(model=str(path), device="cpu", pot=POT))
    return Setup(engine, lambda *args: None, lambda path: pytest.fail("no document"), {}, (), None)


def figures(name: str, task: Task) -> Figures:
    """A tenth of the reading for every token; peers wait longer for the second question, and take half the memory."""
    first, second = Answer(1.0, 11, SECONDS[name]), Answer(1.0 if name == OURS else 5.0, 11, SECONDS[name])
    return Figures(SECONDS[name], (first, second), (1000 + len(task.ids)) // (1 if name == OURS else 2))


def task_of(setup: Setup) -> Task:
    text, question = "The lamp was lit at dusk. " * 10, "When?"
    encode = setup.engine.loaded.tokenizer.encode
    config = plain_config(
        model=setup.engine.config.model, device="cpu", pot=POT, generation=plain_generation(max_new_tokens=5)
    )
    ids, asked = (tuple(map(int, encode(words)[0])) for words in (text, question))
    return Task(config, Path(config.model), text, (question,), ids, (asked,), 5, 1)


def test_ratios_are_of_the_same_text_and_say_who_left_what_out(setup: Setup) -> None:
    def run(name: str, task: Task) -> Figures:
        if name == TRANSFORMERS:
            raise ConfigError("There is no room") if len(task.ids) == 100 else BrokenProcessPool
        return figures(name, task)

    *notes, table = run_peers(setup, (100, 60), None, 16, 2, run)
    assert [note.text.split(":")[0] for note in notes if isinstance(note, Note)] == [
        f"{TRANSFORMERS} leaves out {length} tokens" for length in (100, 60)
    ]
    assert "There is no room" in str(notes[0])
    assert "want of memory" in str(notes[1])
    assert isinstance(table, Table)
    assert table.summary == {
        key: value
        for length in (100, 60)
        for key, value in {
            f"reading_ratio_vs_llama_cpp_{length}": 3.0,
            f"decode_ratio_vs_llama_cpp_{length}": 3.0,
            f"second_question_ratio_vs_llama_cpp_{length}": 5.0,
            f"peak_memory_ratio_vs_llama_cpp_{length}": 2.0,
            f"peak_memory_bytes_{length}": 1000.0 + length,
        }.items()
    } | {"second_question_ratio_vs_llama_cpp": 5.0}
    speeds = {(row.contender, row.case["tokens"], row.metric): row.p50 for row in table.rows}
    assert speeds[OURS, 100, "reading speed"] == 50.0
    assert speeds[LLAMA_CPP, 60, "decoding speed"] == 20 / 12


def test_a_pot_of_automatic_size_has_a_fixed_one_beside_it_and_peers_have_a_window(setup: Setup) -> None:
    engine = Engine(setup.engine.loaded, plain_config(model=setup.engine.config.model))
    automatic = Setup(engine, setup.report, setup.open, {}, (), None)
    asked: list[tuple[str, int]] = []
    window = engine.loaded.max_positions + 1
    *notes, table = run_peers(
        automatic, (window,), None, 16, 1, lambda name, task: asked.append((name, task.config.pot.capacity))  # type: ignore[func-returns-value]
        or figures(name, task),
    )  # fmt: skip
    assert asked == [(OURS, 0), (OURS, engine.config.pot.usual_capacity)]
    assert all(f"the model's window has {window - 1:,}" in note.text for note in notes if isinstance(note, Note))
    assert len(notes) == 2
    assert isinstance(table, Table)
    assert set(table.summary) == {f"{name}peak_memory_bytes_{_size(window)}" for name in ("", "pot_")}


def _size(length: int) -> str:
    return f"{length // 1024}k" if length >= 1024 else str(length)


def test_who_takes_too_long_or_is_refused_is_left_out_with_the_reason(setup: Setup) -> None:
    length = setup.engine.config.pot.usual_capacity + 1

    def run(name: str, task: Task) -> Figures:
        if name == LLAMA_CPP:
            raise TimeoutError
        if name == SHIFTING:
            raise ModelError("llama.cpp says: request exceeds the context")
        return figures(name, task)

    engine = Engine(setup.engine.loaded, setup.engine.config)
    *notes, table = run_peers(Setup(engine, setup.report, setup.open, {}, (), None), (length,), None, 16, 1, run, 7)
    reasons = {note.text.partition(" leaves out")[0]: note.text for note in notes if isinstance(note, Note)}
    assert "request exceeds the context" in reasons[SHIFTING]
    assert "longer than --limit-minutes 7" in reasons[LLAMA_CPP] or "the model's window" in reasons[LLAMA_CPP]
    assert isinstance(table, Table)
    assert "second_question_ratio_vs_llama_cpp" not in table.summary


def test_work_that_takes_too_long_is_ended() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        within(0.2, time.sleep, 60)
    assert time.monotonic() - began < 40
    assert within(60, pow, 2, 5) == 32


def test_a_refused_prompt_is_said_in_llama_cpps_words(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_llama_cpp(monkeypatch, lambda number: {}, {"error": {"message": "too long"}})
    with pytest.raises(ModelError, match=r"llama\.cpp says: too long"):
        work(SHIFTING, task_of(setup))


def test_ours_and_transformers_do_the_work(setup: Setup) -> None:
    task = task_of(setup)
    for name in (OURS, TRANSFORMERS):
        done = work(name, task)
        assert done.reading_seconds > 0
        assert done.peak_bytes > 1e6
        (answer,) = done.answers
        assert answer.first_seconds > 0
        assert 1 <= answer.num_tokens <= 5


def test_llama_cpp_is_given_the_same_tokens_and_keeps_the_text(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    timings = {"prompt_ms": 500.0, "predicted_ms": 1000.0, "predicted_n": 5.0}
    asked = fake_llama_cpp(monkeypatch, lambda number: timings)
    task = task_of(setup)
    done = work(LLAMA_CPP, task)
    assert done.answers == (pytest.approx(Answer(0.7, 5, 0.8)),)
    assert [request["prompt"] for request in asked] == [[*task.ids], [*task.ids, *task.question_ids[0]]]
    assert [request["n_predict"] for request in asked] == [1, 5]
    assert all(request["cache_prompt"] for request in asked)


def test_an_answer_without_a_token_cannot_be_timed(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "ask", lambda self, question: iter(()))
    with pytest.raises(ModelError, match="with no token"):
        work(OURS, task_of(setup))


@pytest.mark.slow
def test_a_contender_has_a_process_of_its_own(setup: Setup) -> None:
    assert in_its_own_process(work, OURS, task_of(setup)).answers[0].num_tokens >= 1


def test_a_model_without_a_gguf_file_is_refused(tmp_path: Path) -> None:
    for name in ("smollm2-135m", str(tmp_path), str(tmp_path / "absent.gguf")):
        with pytest.raises(ConfigError, match=r"one \.gguf file"):
            gguf_of(name)
