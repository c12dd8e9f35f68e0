"""`ondevice bench delta-rule`: the kernel's layer is transformers', and both are timed."""

from __future__ import annotations

from types import SimpleNamespace

from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.speed.delta_rule import MEASUREMENT
from tests.builders.models import plain_config, tiny_loaded


def test_a_layer_is_that_of_transformers_and_both_are_timed() -> None:
    setup = Setup(Engine(tiny_loaded(), plain_config()), lambda *args: None, None, {}, (), None)  # type: ignore[arg-type]
    (table,) = MEASUREMENT.run(setup, SimpleNamespace(quick=True))
    assert {row.contender for row in table.rows} == {"kernel", "transformers"}
    assert len(table.summary) == 6
    assert all(value > 0 for name, value in table.summary.items() if "ratio" in name)
    assert all(value < 1e-4 for name, value in table.summary.items() if "difference" in name)
