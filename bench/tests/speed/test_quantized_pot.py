"""`ondevice bench quantized-pot` on a tiny model: every type is measured, and smaller ones lose more."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.speed.quantized_pot import MEASUREMENT
from tests.builders.models import plain_config, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")


def test_every_type_is_measured_and_smaller_ones_lose_more() -> None:
    engine = Engine(tiny_loaded(), plain_config())
    setup = Setup(engine, lambda *args: None, lambda path: pytest.fail("no document"), {}, (), None)
    (table,) = MEASUREMENT.run(setup, SimpleNamespace(quick=True, text=None, cached=(96,)))
    found = table.summary
    assert found["slot_bytes_model"] > found["slot_bytes_int8"] > found["slot_bytes_k8v4"] > found["slot_bytes_int4"]
    off = {row.contender: row.p50 for row in table.rows if row.metric == "loss of a token, off by"}
    assert 0 < off["int8"] < off["k8v4"] < off["int4"]
    assert min(found[f"{kind}_speed_{name}"] for kind in ("reading", "decode") for name in ("int8", "k8v4", "int4")) > 0
