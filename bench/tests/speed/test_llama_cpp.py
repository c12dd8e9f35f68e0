"""llama.cpp as a contender: its program with stand-ins for the packages, found, asked, refused and ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from ondevice.errors import ConfigError, ModelError
from ondevice_bench.speed.decode import Decoding, llama_speeds, rows_of
from ondevice_bench.speed.llama_cpp import PYTHON, Variant, builds, variants
from ondevice_bench.speed.other_interpreter import by_program
from tests.builders.llama_cpp import PACKAGES, FakeLlamaCpp

TEXT, QUESTIONS = tuple(range(10, 30)), ((50, 60), (70,))


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLlamaCpp:
    return FakeLlamaCpp(tmp_path, monkeypatch)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    (tmp_path / "a.gguf").touch()
    return tmp_path / "a.gguf"


def test_every_package_takes_part_with_flash_attention_and_without(fake: FakeLlamaCpp) -> None:
    for package in PACKAGES:
        fake.install(package)
    found = builds(PYTHON)
    assert [(one["package"], one["version"], one["system_info"]) for one in found] == [
        ("llama-cpp-python", "1.2", "CPU : AVX512 = 1 | AVX512_VNNI = 1 |"),
        ("xllamacpp", "1.2", "CPU : AVX2 = 1 |"),
    ]
    assert all((one["n_batch"], one["cache_type"]) == (512, "f16") for one in found)
    assert [variant.label for variant in variants(PYTHON, found)] == [
        "llama.cpp of llama-cpp-python, flash attention",
        "llama.cpp of llama-cpp-python, no flash attention",
        "llama.cpp of xllamacpp, flash attention",
        "llama.cpp of xllamacpp, no flash attention",
        "llama.cpp of xllamacpp, context shift",
    ]


def test_llama_cpp_python_reads_the_text_once_and_goes_on_from_it(fake: FakeLlamaCpp, gguf: Path) -> None:
    fake.install("llama-cpp-python")
    for flash in (True, False):
        variant = Variant(PYTHON, "llama-cpp-python", flash)
        done = variant.work(gguf, TEXT, QUESTIONS, 5, 3, warm_up=4)
        loaded, *rest = fake.asked()
        assert (loaded["path"], loaded["n_ctx"], loaded["flash_attn"]) == (str(gguf), 20 + 2 + 5 + 64, flash)
        assert loaded["n_threads"] == loaded["n_threads_batch"] == 3
        assert rest == [
            {"reset": True},
            {"prompt": [13, 12, 11, 10]},
            {"reset": True},
            {"prompt": [*TEXT]},
            {"prompt": [*TEXT, 50, 60], "temp": 0.0},
            {"prompt": [*TEXT, 70], "temp": 0.0},
        ]
        assert [number for _, number, _ in done["answers"]] == [5, 5]
        assert all(first > 0 and others > 0 for first, _, others in done["answers"])
        assert done["cache_bytes"] == 6.5 * 2**20
        assert 0 < done["load_seconds"] < 60
        assert 0 < done["reading_seconds"] < 60
        assert done["peak_bytes"] > 1e6


def test_xllamacpp_goes_by_its_own_clock_and_shifts_in_a_small_cache(fake: FakeLlamaCpp, gguf: Path) -> None:
    fake.install("xllamacpp")
    done = Variant(PYTHON, "xllamacpp", shifts=True).work(gguf, TEXT, QUESTIONS, 5, 1, warm_up=2, num_slots=12)
    assert done["answers"] == [pytest.approx([0.5, 5, 1.0])] * 2
    assert done["cache_bytes"] is None
    loaded, *requests = fake.asked()
    assert loaded == {"path": str(gguf), "n_ctx": 12, "shifts": True, "flash": 1}
    assert [request["prompt"] for request in requests] == [[11, 10], [*TEXT], [*TEXT, 50, 60], [*TEXT, 70]]
    assert [request["n_predict"] for request in requests] == [1, 1, 5, 5]
    assert all(request["cache_prompt"] and request["ignore_eos"] for request in requests)


def test_a_refused_prompt_is_said_in_its_words(fake: FakeLlamaCpp, gguf: Path) -> None:
    fake.install("xllamacpp", reply={"error": {"message": "too long"}})
    with pytest.raises(ModelError, match=r"llama\.cpp says: too long"):
        Variant(PYTHON, "xllamacpp").work(gguf, TEXT, QUESTIONS, 5, 1)


def test_a_package_that_cannot_be_loaded_takes_part_and_says_why(fake: FakeLlamaCpp, gguf: Path) -> None:
    fake.install("llama-cpp-python", source="raise OSError('libllama.so is of another machine')")
    (build,) = builds(PYTHON)
    assert build["system_info"] == "libllama.so is of another machine"
    with pytest.raises(ModelError, match="of another machine"):
        Variant(PYTHON, "llama-cpp-python").work(gguf, TEXT, QUESTIONS, 5, 1)


def test_what_is_missing_is_asked_for_with_a_sentence(tmp_path: Path) -> None:
    (none,) = variants(PYTHON, [])
    assert none.label == "llama.cpp"
    with pytest.raises(ConfigError, match=r"needs one of the packages.*") as raised:
        none.work(tmp_path / "a.gguf", TEXT, QUESTIONS, 5, 1)
    assert "pip install llama-cpp-python" in raised.value.fix
    with pytest.raises(ConfigError, match="no such file"):
        Variant(PYTHON, "xllamacpp").work(tmp_path / "a.gguf", TEXT, QUESTIONS, 5, 1)
    with pytest.raises(ConfigError, match="no such Python"):
        builds(tmp_path / "bin" / "python")


def test_a_program_that_the_system_ends_is_no_riddle(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, sys; sys.stderr.write('no room\\n'); sys.stderr.flush(); os.kill(os.getpid(), 9)")
    with pytest.raises(ModelError, match="it was ended by SIGKILL: no room"):
        by_program("it", PYTHON, program, {})


def test_bench_decode_has_a_row_for_each_variant(fake: FakeLlamaCpp, gguf: Path) -> None:
    fake.install("xllamacpp")
    speeds = llama_speeds(gguf, TEXT, 5, 2)
    assert speeds == {
        f"llama.cpp of xllamacpp, {manner}": [pytest.approx(4.0)] * 2
        for manner in ("flash attention", "no flash attention")
    }
    prompts = [request["prompt"] for request in fake.asked() if "prompt" in request]
    assert prompts[1:4] == [[*TEXT[:-1]], [*TEXT], [*TEXT]]
    decoding = Decoding(19, 100, [1.0], [1.0], [1.0], llama_speeds=speeds)
    assert [row.p50 for row in rows_of([decoding]) if row.contender in speeds] == [pytest.approx(4.0)] * 2
