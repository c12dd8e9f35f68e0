"""kvpress as a contender: its program with a stand-in for the package, and an environment that cannot be made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ondevice.errors import ConfigError, ModelError
from ondevice_bench.speed import kv_press
from tests.builders.gguf_files import write_gguf

# A press that drops the first half of what was read, as the real ones do when the pass ends.
PRESS = """
from contextlib import contextmanager

class ExpectedAttentionPress:
    def __init__(self, compression_ratio):
        self.ratio = compression_ratio

    @contextmanager
    def __call__(self, model):
        def cut(module, args, kwargs, out):
            for layer in kwargs["past_key_values"].layers:
                drop = int(layer.keys.shape[2] * self.ratio)
                layer.keys, layer.values = layer.keys[:, :, drop:], layer.values[:, :, drop:]
        hook = model.model.register_forward_hook(cut, with_kwargs=True)
        yield
        hook.remove()
"""


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    package = tmp_path / "packages" / "kvpress"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(PRESS)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    path = write_gguf(tmp_path / "tiny.gguf")
    ids = list(range(10, 110))
    return {"gguf": str(path), "ids": ids, "question_ids": [[50, 60], [70, 80, 90]], "new_tokens": 3} | {
        "num_threads": 1,
        "num_kept": 40,
        "warm_up": 20,
    }


def test_its_program_reads_cuts_and_answers(task: dict[str, object]) -> None:
    done = kv_press.work(task, python=lambda: Path(sys.executable))
    assert done["kept"] == 40
    assert done["reading_seconds"] > 0
    assert done["peak_bytes"] > 1e8
    assert [number for _, number, _ in done["answers"]] == [3, 3]
    assert all(first > 0 and rest > 0 for first, _, rest in done["answers"])


def test_what_it_cannot_do_is_said_in_its_words(task: dict[str, object]) -> None:
    with pytest.raises(ModelError, match=r"kvpress says: .*Repo id"):
        kv_press.work(task | {"gguf": "/nowhere/nothing.gguf"}, python=lambda: Path(sys.executable))


def test_an_environment_that_cannot_be_made_is_no_half_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    for _ in range(2):
        with pytest.raises(ConfigError, match="cannot be installed"):
            kv_press.environment()
