"""`ondevice bench quantized` on a tiny GGUF: every figure is there, and quality is that of the unpacked weights."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ondevice.errors import ConfigError
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.speed.quantized import MEASUREMENT, is_packed, unpacked
from tests.builders.gguf_files import write_gguf
from tests.builders.models import plain_config, save_checkpoint, tiny_model

QUICK = SimpleNamespace(quick=True, text=None, tokens=None)


def setup_of(path: Path, quantization: str = "auto") -> Setup:
    engine = Engine.load(plain_config(model=str(path), device="cpu", quantization=quantization))  # type: ignore[arg-type]
    return Setup(engine, lambda *args: None, lambda path: pytest.fail("no document"), {}, (), None)


@pytest.mark.slow
def test_every_shape_is_timed_and_quality_is_kept(tmp_path: Path) -> None:
    setup = setup_of(write_gguf(tmp_path / "tiny.gguf"))
    (table,) = MEASUREMENT.run(setup, QUICK)
    products = {(row.case["product"], row.case["tokens"]) for row in table.rows if "product" in row.case}
    assert products == {(name, n) for name in ("qkv", "out", "gate, up", "down", "head") for n in (1, 32)}
    assert 0.98 < table.summary["perplexity_ratio_stored"] < 1.02
    assert table.summary["greedy_agreement"] > 0.9
    assert min(table.summary.values()) > 0
    assert is_packed(setup.engine.loaded.model)
    assert not is_packed(unpacked(setup.engine.loaded))


@pytest.mark.slow
@pytest.mark.parametrize(("form", "name"), [("8bit", "int8"), ("4bit", "int4")])
def test_rounded_weights_are_compared_with_those_of_the_files(tmp_path: Path, form: str, name: str) -> None:
    setup = setup_of(save_checkpoint(tiny_model("llama"), tmp_path / "tiny"), form)
    (table,) = MEASUREMENT.run(setup, QUICK)
    assert {row.contender for row in table.rows} == {name, "float32"}
    assert 0.9 < table.summary[f"perplexity_ratio_{name}"] < 1.1
    assert table.summary[f"decode_speedup_{name}"] > 0


def test_unpacked_weights_are_refused(tmp_path: Path) -> None:
    setup = setup_of(write_gguf(tmp_path / "tiny.gguf"), "none")
    with pytest.raises(ConfigError, match="stay quantised"):
        list(MEASUREMENT.run(setup, QUICK))
