"""ART: the thresholds that `ondevice calibrate` finds on a text, and keeps beside the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ondevice.decode.calibration import store
from ondevice.planning.calibrate import calibrate, calibration_config, summary_of
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.result import row


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    """A row for each KV head: its threshold."""
    engine = setup.engine
    found = calibrate(engine, setup.beginning(options.text, options.tokens), options.error, setup.report)
    store(engine.loaded.fingerprint, engine.config.art, engine.config.pot, found.rules)
    rows = [
        row("ART", {"layer": layer, "KV head": head}, "tau", "", [tau])
        for layer, rule in enumerate(found.rules)
        for head, tau in enumerate(rule.tau if isinstance(rule.tau, tuple) else (rule.tau,))
    ]
    yield Table(rows, summary_of(found))


MEASUREMENT = Measurement[Table](_measure, config=lambda given, _: calibration_config(given()))
