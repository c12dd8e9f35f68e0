"""Speeds of readings: of the same settings only, and still known after a restart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ondevice.config import GenerationConfig
from ondevice.events import TokensRead
from ondevice.serving.forecast import ReadingSpeeds, Speed
from ondevice.telemetry.telemetry import Telemetry
from tests.builders.models import tiny_loaded
from tests.builders.screens import CONFIG

LOADED = tiny_loaded()


def reading(num_passes: int = 2) -> Telemetry:
    telemetry = Telemetry()
    for i in range(1, num_passes + 1):
        telemetry.apply(TokensRead(20 * i, 1000, 20, i, 2.0, (1,), 512))  # 10 tokens a second
    return telemetry


def test_it_is_known_after_a_restart_for_the_same_settings_and_model(tmp_path: Path) -> None:
    path = tmp_path / "data" / "speeds.json"
    ReadingSpeeds(path).note(LOADED, CONFIG, reading())
    speeds = ReadingSpeeds(path)
    assert speeds.seconds(LOADED, CONFIG, 100) == 10.0
    assert speeds.of_model(LOADED.source) == 10.0
    answered_otherwise = replace(CONFIG, generation=GenerationConfig(max_new_tokens=7))
    assert speeds.seconds(LOADED, answered_otherwise, 100) == 10.0
    assert speeds.seconds(LOADED, replace(CONFIG, pot=replace(CONFIG.pot, num_kept=80)), 100) is None
    assert speeds.seconds(replace(LOADED, fingerprint="another"), CONFIG, 100) is None
    assert speeds.of_model("another") is None


def test_the_last_reading_counts_and_one_pass_does_not() -> None:
    speeds = ReadingSpeeds()
    speeds.note(LOADED, CONFIG, reading(1))
    assert speeds.of_model(LOADED.source) is None
    speeds.note(LOADED, CONFIG, reading())
    faster = reading()
    faster.apply(TokensRead(1000, 1000, 960, 3, 0.001, (1,), 512))
    speeds.note(LOADED, CONFIG, faster)
    assert (speeds.of_model(LOADED.source) or 0) > 200


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"a": 1}', '[{"key": "a", "source": "b", "tokens_per_second": -1.0}]', "[" * 100]
)
def test_a_damaged_file_is_as_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "speeds.json"
    path.write_text(text)
    speeds = ReadingSpeeds(path)
    assert speeds.of_model("b") is None
    speeds.note(LOADED, CONFIG, reading())
    assert len(json.loads(path.read_text())) == 1


def test_a_folder_that_cannot_be_written_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    speeds = ReadingSpeeds(tmp_path / "file" / "speeds.json")
    speeds.note(LOADED, CONFIG, reading())
    assert speeds.of_model(LOADED.source) == 10.0


def test_a_longer_text_is_forecast_slower_as_its_last_one_was() -> None:
    short = Speed("", "", 100.0, num_tokens=1000, slowing=1e-5)
    assert short.seconds(1000) == pytest.approx(10.0)
    assert short.seconds(500) < 5.0
    assert short.seconds(3000) == pytest.approx(10.0 + 2000 * (0.01 + 1e-5 * 500)), "no slower than at its end"
    assert Speed("", "", 100.0).seconds(3000) == pytest.approx(30.0)
