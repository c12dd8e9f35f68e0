"""`ondevice bench peers`: every contender does the same work, and the ratios are those of the figures."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ondevice.config import PotConfig
from ondevice.errors import ConfigError, ModelError
from ondevice.model.tokenizer import Tokenizer
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Note, Setup, Table
from ondevice_bench.results.result import Row
from ondevice_bench.speed import first_process
from ondevice_bench.speed.llama_cpp import PYTHON, Variant, variants
from ondevice_bench.speed.peer_figures import Contender
from ondevice_bench.speed.peer_work import KVPRESS, LLAMA_CPP, OURS, TRANSFORMERS, Answer, Figures, Task, work
from ondevice_bench.speed.peers import MEASUREMENT, contenders, gguf_of, run_peers
from ondevice_bench.speed.processes import in_its_own_process, within
from tests.builders.gguf_files import write_gguf
from tests.builders.llama_cpp import FakeLlamaCpp
from tests.builders.models import plain_config, plain_generation

pytestmark = pytest.mark.usefixtures("one_thread")

POT = PotConfig(capacity=512, num_kept=128, reserve=128, step_size=64)
SECONDS = {OURS: 2.0, LLAMA_CPP: 6.0, TRANSFORMERS: 1.0}
FLASH, PLAIN = Variant(PYTHON, "a package"), Variant(PYTHON, "a package", flash_attention=False)
SHIFTING = Variant(PYTHON, "a package", shifts=True)


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    path = write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")
    engine = Engine.load(plain_config(model=str(path), device="cpu", pot=POT))
    return Setup(engine, lambda *args: None, lambda path: pytest.fail("no document"), {}, (), None)


@pytest.fixture
def lineup(setup: Setup) -> dict[str, Contender]:
    return contenders(setup.engine.config, [FLASH, PLAIN, SHIFTING])


def figures(name: str, task: Task) -> Figures:
    """Peers wait longer for the second question, and take half the memory."""
    first, second = Answer(1.0, 17, SECONDS[name]), Answer(1.0 if name == OURS else 5.0, 17, SECONDS[name])
    size = (1000 + len(task.ids)) // (1 if name == OURS else 2)
    return Figures(SECONDS[name] / 2, SECONDS[name], (first, second), size, 3 * size)


def task_of(setup: Setup) -> Task:
    text, question = "The lamp was lit at dusk. " * 10, "When?"
    encode = setup.engine.loaded.tokenizer.encode
    config = plain_config(
        model=setup.engine.config.model, device="cpu", pot=POT, generation=plain_generation(max_new_tokens=5)
    )
    ids, asked = (tuple(map(int, encode(words)[0])) for words in (text, question))
    return Task(config, Path(config.model), text, (question,), ids, (asked,), 5, 1)


def tables(items: list[Note | Table]) -> tuple[list[str], Table, dict[str, Row]]:
    """Texts of the notes, the table, and by contender the row that says why it was left out."""
    *notes, table = items
    assert isinstance(table, Table)
    left_out = {row.contender: row for row in table.rows if row.metric == "left out"}
    return [note.text for note in notes if isinstance(note, Note)], table, left_out


def test_ratios_are_of_the_same_text_and_say_who_left_what_out(setup: Setup, lineup: dict[str, Contender]) -> None:
    def run(name: str, task: Task) -> Figures:
        if name == TRANSFORMERS:
            raise ConfigError("There is no room") if len(task.ids) == 100 else BrokenProcessPool
        return figures(name, task)

    notes, table, left_out = tables([*run_peers(setup, (100, 60), None, 16, 2, lineup, run)])
    assert [note.split(":")[0] for note in notes] == [
        f"{TRANSFORMERS} leaves out {length} tokens" for length in (100, 60)
    ]
    assert "There is no room" in notes[0]
    assert "want of memory" in notes[1]
    assert left_out[TRANSFORMERS].case == {"tokens": 60, "round": 1, "why": notes[1].partition(": ")[2]}
    assert table.summary == {
        key: value
        for length in (100, 60)
        for key, value in {
            f"reading_ratio_vs_llama_cpp_{length}": 3.0,
            f"decode_ratio_vs_llama_cpp_{length}": 3.0,
            f"second_question_ratio_vs_llama_cpp_{length}": 5.0,
            f"peak_memory_ratio_vs_llama_cpp_{length}": 2.0,
            f"cache_bytes_ratio_vs_llama_cpp_{length}": 2.0,
            f"peak_memory_bytes_{length}": 1000.0 + length,
        }.items()
    } | {"second_question_ratio_vs_llama_cpp": 5.0, "load_seconds": 1.0, "llama_cpp_load_seconds": 3.0}
    speeds = {(row.contender, row.case["tokens"], row.metric): row.p50 for row in table.rows}
    assert speeds[OURS, 100, "reading speed"] == 50.0
    assert speeds[FLASH.label, 60, "decoding speed"] == 16 / 6
    assert speeds[OURS, 60, "tokens of an answer"] == 17
    assert speeds[PLAIN.label, 60, "cache"] == 3 * 530


def test_of_two_settings_the_better_one_counts_for_each_figure(setup: Setup, lineup: dict[str, Contender]) -> None:
    """Without flash attention reading is faster here and the rest worse; each round is twice as slow as the last."""
    order: list[str] = []

    def run(name: str, task: Task) -> Figures:
        order.append(task.llama_cpp.label if task.llama_cpp is not None else name)
        done, slower = figures(name, task), 2.0 ** order.count(OURS)
        if task.llama_cpp == PLAIN:
            done = Figures(8.0, 4.0, (Answer(9.0, 17, 9.0),) * 2, 9999, 9999)
        return done._replace(reading_seconds=done.reading_seconds * slower)

    del lineup[TRANSFORMERS]
    _, table, left_out = tables([*run_peers(setup, (60,), None, 16, 3, lineup, run)])
    assert order == [OURS, FLASH.label, PLAIN.label] * 3
    assert not left_out
    assert table.summary["reading_ratio_vs_llama_cpp_60"] == 2.0
    assert table.summary["decode_ratio_vs_llama_cpp_60"] == 3.0
    assert table.summary["second_question_ratio_vs_llama_cpp_60"] == 5.0
    assert table.summary["peak_memory_ratio_vs_llama_cpp_60"] == 2.0
    assert table.summary["cache_bytes_ratio_vs_llama_cpp_60"] == 2.0
    assert table.summary["llama_cpp_load_seconds"] == 3.0
    assert {row.contender for row in table.rows} == {OURS, FLASH.label, PLAIN.label}


def test_an_answer_under_16_tokens_has_no_decoding_speed(setup: Setup, lineup: dict[str, Contender]) -> None:
    def run(name: str, task: Task) -> Figures:
        short = (Answer(1.0, 15, 0.1), Answer(1.0, 2, 0.001))
        return figures(name, task)._replace(answers=short) if name == OURS else figures(name, task)

    _, table, _ = tables([*run_peers(setup, (60,), None, 16, 1, lineup, run)])
    speeds = {row.contender for row in table.rows if row.metric == "decoding speed"}
    assert speeds == {FLASH.label, PLAIN.label, TRANSFORMERS}
    assert not [key for key in table.summary if key.startswith("decode_ratio")]
    assert table.summary["reading_ratio_vs_llama_cpp_60"] == 3.0


def test_a_pot_of_automatic_size_has_a_fixed_one_beside_it_and_peers_have_a_window(setup: Setup) -> None:
    engine = Engine(setup.engine.loaded, plain_config(model=setup.engine.config.model))
    automatic = Setup(engine, setup.report, setup.open, {}, (), None)
    asked: list[tuple[str, int]] = []
    window = engine.loaded.max_positions + 1
    lineup = contenders(engine.config, [FLASH])

    def run(name: str, task: Task) -> Figures:
        asked.append((name, task.config.pot.capacity))
        return figures(name, task)

    notes, table, left_out = tables([*run_peers(automatic, (window,), None, 16, 1, lineup, run)])
    assert asked == [(OURS, 0), (OURS, engine.config.pot.usual_capacity)]
    assert all(f"the model's window has {window - 1:,}" in note for note in notes)
    assert len(notes) == 2
    assert set(left_out) == {FLASH.label, TRANSFORMERS}
    assert set(table.summary) == {
        "load_seconds",
        *(f"{name}peak_memory_bytes_{_size(window)}" for name in ("", "pot_")),
    }


def _size(length: int) -> str:
    return f"{length // 1024}k" if length >= 1024 else str(length)


def test_who_takes_too_long_or_is_refused_is_left_out_with_the_reason(
    setup: Setup, lineup: dict[str, Contender]
) -> None:
    def run(name: str, task: Task) -> Figures:
        if task.llama_cpp == SHIFTING:
            raise ModelError("llama.cpp says: request exceeds the context")
        if name == LLAMA_CPP:
            raise TimeoutError
        return figures(name, task)

    length = setup.engine.config.pot.usual_capacity + 1
    notes, table, left_out = tables([*run_peers(setup, (length,), None, 16, 1, lineup, run, 7)])
    assert "request exceeds the context" in left_out[SHIFTING.label].case["why"]
    reason = left_out[FLASH.label].case["why"]
    assert "longer than --limit-minutes 7" in reason or "the model's window" in reason
    assert len(notes) == len(left_out)
    assert "second_question_ratio_vs_llama_cpp" not in table.summary


def test_an_error_of_any_kind_is_a_row_and_not_the_end(setup: Setup, lineup: dict[str, Contender]) -> None:
    """Also in a later round: what was measured before stays."""
    calls: list[str] = []

    def run(name: str, task: Task) -> Figures:
        calls.append(name)
        if name == OURS and calls.count(OURS) == 2:
            raise ZeroDivisionError(f"torch.linalg.solve:\n  {task.gguf} is singular")
        return figures(name, task)

    notes, table, left_out = tables([*run_peers(setup, (60,), None, 16, 3, lineup, run)])
    assert calls.count(OURS) == 2
    assert calls.count(TRANSFORMERS) == 3
    assert len(notes) == 1
    reason = f"ZeroDivisionError: torch.linalg.solve: {Path(setup.engine.config.model).name} is singular"
    assert left_out[OURS].case == {"tokens": 60, "round": 2, "why": reason}
    assert table.summary["reading_ratio_vs_llama_cpp_60"] == 3.0


def test_what_takes_part_is_chosen(setup: Setup) -> None:
    config = setup.engine.config
    assert [*contenders(config, [FLASH], has_transformers=False, has_kvpress=True)] == [OURS, FLASH.label, KVPRESS]
    (needs,) = [label for label in contenders(config, variants(PYTHON, [])) if label not in (OURS, TRANSFORMERS)]
    assert needs == "llama.cpp"


def test_the_file_says_how_llama_cpp_was_built_and_how_busy_the_machine_was(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeLlamaCpp(tmp_path, monkeypatch).install("llama-cpp-python")
    options = SimpleNamespace(lengths=(), quick=True, rounds=1, text=None, limit_minutes=None, kvpress=False)
    options.no_transformers, options.llama_cpp_python = True, Path(sys.executable)
    note = next(MEASUREMENT.run(setup, options))
    assert isinstance(note, Note)
    assert note == Note("llama.cpp of llama-cpp-python 1.2: CPU : AVX512 = 1 | AVX512_VNNI = 1 |")
    about = setup.settings["peers"]
    assert len(about["load_average"]) == 3
    (build,) = about["llama_cpp"]
    assert build == {"package": "llama-cpp-python", "version": "1.2", "system_info": note.text.partition(": ")[2]} | {
        "n_batch": 512,
        "n_ubatch": 512,
        "cache_type": "f16",
        "threads": 1,
    }


def test_the_first_process_has_what_set_up_compiles_and_the_second_what_the_first_did(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def do(limit: None, work: object, name: str, task: Task) -> None:
        folder = Path(os.environ["NUMBA_CACHE_DIR"])
        seen.append(sorted(path.name for path in folder.iterdir()))
        (folder / "more").touch()
        time.sleep(0.2 if len(seen) == 1 else 0)

    script = tmp_path / "compile.py"
    script.write_text("import os, pathlib; pathlib.Path(os.environ['NUMBA_CACHE_DIR'], 'kernel').touch()")
    monkeypatch.setattr(first_process, "COMPILES", script)
    monkeypatch.setattr(first_process, "within", do)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "elsewhere")
    first, second = first_process.seconds_of_first_processes(task_of(setup))
    assert seen == [["kernel"], ["kernel", "more"]]
    assert first > second
    assert os.environ["NUMBA_CACHE_DIR"] == "elsewhere"


def test_work_that_takes_too_long_is_ended() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        within(0.2, time.sleep, 60)
    assert time.monotonic() - began < 40
    assert within(60, pow, 2, 5) == 32


def test_ours_and_transformers_do_the_work(setup: Setup) -> None:
    task = task_of(setup)
    for name in (OURS, TRANSFORMERS):
        done = work(name, task)
        assert done.reading_seconds > 0
        assert done.load_seconds > 0
        assert done.cache_bytes is not None
        assert done.cache_bytes >= 2 * len(task.ids)
        assert done.peak_bytes > 1e6
        (answer,) = done.answers
        assert answer.first_seconds > 0
        assert answer.num_tokens == 5


def test_llama_cpp_is_given_the_same_tokens(setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeLlamaCpp(tmp_path, monkeypatch)
    fake.install("xllamacpp")
    task = task_of(setup)
    for shifts in (False, True):
        done = work(LLAMA_CPP, replace(task, llama_cpp=Variant(PYTHON, "xllamacpp", shifts=shifts)))
        assert done.answers == (pytest.approx(Answer(0.5, 5, 1.0)),)
        loaded, _, *requests = fake.asked()
        assert [request["prompt"] for request in requests] == [[*task.ids], [*task.ids, *task.question_ids[0]]]
        slots = POT.usual_capacity if shifts else len(task.ids) + len(task.question_ids[0]) + 5 + 64
        assert loaded["n_ctx"] == slots


def test_an_answer_goes_on_where_the_model_would_end_it(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokenizer, "_end_ids", lambda self, more: frozenset(range(1000)))
    (answer,) = work(OURS, task_of(setup)).answers
    assert answer.num_tokens == 5


@pytest.mark.slow
def test_a_contender_has_a_process_of_its_own(setup: Setup) -> None:
    assert in_its_own_process(work, OURS, task_of(setup)).answers[0].num_tokens >= 1


def test_a_model_without_a_gguf_file_is_refused(tmp_path: Path) -> None:
    for name in ("smollm2-135m", str(tmp_path), str(tmp_path / "absent.gguf")):
        with pytest.raises(ConfigError, match=r"one \.gguf file"):
            gguf_of(name)
