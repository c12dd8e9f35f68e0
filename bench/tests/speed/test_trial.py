"""A session held beside its plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ondevice.config import EngineConfig, GenerationConfig, PotConfig
from ondevice.machine.process import peak_rss_bytes
from ondevice_bench.speed import trial
from ondevice_bench.speed.trial import held, planned_bytes, take
from tests.builders.models import default_model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path))
    # The process of the tests grows from one to the next.
    monkeypatch.setattr("ondevice.planning.footprint.resident_bytes", lambda: 600 * 10**6)


def _here(work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)


@pytest.mark.slow
def test_a_session_is_held_beside_its_plan(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "in_its_own_process", _here)
    pot = PotConfig(capacity=512, num_kept=128, reserve=160)
    config = EngineConfig(model=str(checkpoint), device="cpu", pot=pot, generation=GenerationConfig(chat=False))
    taken = take(config)
    assert taken.num_tokens == 1280
    assert taken.predicted_bytes == pytest.approx(planned_bytes(config, 1280), rel=0.2)
    assert taken.peak_bytes <= peak_rss_bytes()
    assert taken.reading > 0
    assert taken.answering > 0
    assert held(config, 700).num_tokens == 700


@pytest.mark.slow
def test_the_plan_of_the_default_model_is_within_a_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # of the cache: the model itself
    default_model()
    taken = take(EngineConfig(model="smollm2-135m", device="cpu", pot=PotConfig(capacity=1024)))
    assert 0.9 <= taken.predicted_bytes / taken.peak_bytes <= 1.1
