"""`ondevice bench int4` on tiny models: what a GPU would have is near float32, and four bits cost more than sixteen."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.speed.int4 import MEASUREMENT
from tests.builders.gguf_files import write_gguf
from tests.builders.models import plain_config, save_checkpoint, tiny_model

QUICK = SimpleNamespace(quick=True, text=None, tokens=None)


def measured(path: Path) -> dict[str, float]:
    engine = Engine.load(plain_config(model=str(path), device="cpu"))
    setup = Setup(engine, lambda *args: None, lambda path: pytest.fail("no document"), {}, (), None)
    (table,) = MEASUREMENT.run(setup, QUICK)
    assert {row.contender for row in table.rows} == {"float32", "bfloat16", "4 bits"}
    return table.summary


def test_codes_of_a_file_cost_little_more_than_bfloat16(tmp_path: Path) -> None:
    summary = measured(write_gguf(tmp_path / "tiny.gguf", kinds=("Q4_0", "Q8_0")))
    assert summary["matrices_in_4_bits"] == 7
    assert 0.98 < summary["perplexity_ratio_int4_gpu"] < 1.02
    assert 0 < summary["weight_error_bfloat16"] < 3e-3
    assert 0 < summary["weight_error_int4_gpu"] < 4e-3


def test_weights_of_a_folder_are_rounded(tmp_path: Path) -> None:
    summary = measured(save_checkpoint(tiny_model("llama"), tmp_path / "tiny"))
    assert summary["matrices_in_4_bits"] == 21
    assert 0.03 < summary["weight_error_int4_gpu"] < 0.1
    assert summary["weight_error_bfloat16"] < 3e-3
    assert 0.8 < summary["perplexity_ratio_int4_gpu"] < 1.25
