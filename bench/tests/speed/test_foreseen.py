"""Forecasts: the walk of a reading beside a real one, rates that are measured once, and the form of what is timed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ondevice.config import PotConfig, SlimConfig, SpecConfig
from ondevice.documents import Document, Page
from ondevice.events import PotDistilled
from ondevice.model.decoder import Decoder
from ondevice.model.loading.load import load_model, outline_model
from ondevice.model.packed_modules import PackedLinear
from ondevice.session.engine import Engine
from ondevice_bench.speed import rates as module
from ondevice_bench.speed.foreseen import foreseen_speed
from ondevice_bench.speed.rates import Rates, known_rates, rates_of
from ondevice_bench.speed.sample import sample_model
from tests.builders.gguf_files import write_gguf
from tests.builders.models import plain_config, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

POT = PotConfig(capacity=256, num_kept=64, reserve=96, step_size=64, catalyst="text", catalyst_text="lamp")
NOTHING = Rates(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1e-9)  # but for the choice of a word


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path / "cache"))


def engine(**config: object) -> Engine:
    return Engine(tiny_loaded("llama"), plain_config(**{"pot": POT, **config}))


@pytest.mark.parametrize("num_tokens", [60, 150, 400, 1000, 1001])
def test_the_walk_is_that_of_a_reading(num_tokens: int) -> None:
    one = engine()
    plan, layers = one.plan(), len(one.decoder.parts.layers)
    session = one.session()
    events = list(session.read(Document("a", "txt", "part", (Page(1, "a" * num_tokens),), 1, num_tokens)))
    distilled = [event for event in events if isinstance(event, PotDistilled)]
    prefix, catalyst = len(plan.chat.prefix), len("lamp")

    def seconds(**rates: float) -> float:
        speed = foreseen_speed(plan, replace(NOTHING, **rates), num_tokens)
        assert speed is not None
        return speed.seconds

    per_token = seconds(per_token=1.0)
    assert per_token == pytest.approx(layers * (num_tokens + prefix + len(distilled) * catalyst), rel=0.02)
    novel = sum(event.num_read for event in distilled[-1:])
    assert seconds(per_novel=1.0, per_token=1e-9) == pytest.approx(novel, abs=0.1)
    assert seconds(per_distillation=1.0, per_token=1e-9) == pytest.approx(layers * len(distilled), abs=0.1)
    slots = sum(event.num_before for event in distilled)
    assert seconds(per_distilled=1.0, per_token=1e-9) == pytest.approx(layers * slots, rel=0.02, abs=0.1)


def test_a_long_document_costs_no_walk_of_its_own() -> None:
    plan = engine().plan()
    rates = replace(NOTHING, per_token=1e-3, per_step=1e-3)
    short, long = (foreseen_speed(plan, rates, n) for n in (10**5, 10**9))
    assert short is not None
    assert long is not None
    assert long.reading == pytest.approx(short.reading, rel=0.01)
    assert short.answering == pytest.approx(1e3 / len(plan.decoder.parts.layers))


@pytest.mark.parametrize("config", [{"slim": SlimConfig(schedule="1:32")}, {"spec": SpecConfig(keep=0.5, layers=1)}])
def test_what_depends_on_the_text_is_not_forecast(config: dict) -> None:
    assert foreseen_speed(engine(**config).plan(), replace(NOTHING, per_token=1.0), 1000) is None


def test_a_machine_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = engine().plan()
    assert known_rates(plan, "cpu") is None
    found = rates_of(plan, "cpu")
    assert found is not None
    assert min(found.per_token, found.per_step, found.per_novel) > 0
    monkeypatch.setattr(module, "measure_rates", lambda *_: pytest.fail("it was measured again"))
    assert rates_of(plan, "cpu") == known_rates(plan, "cpu") == found
    short, long = (foreseen_speed(plan, found, num_tokens) for num_tokens in (500, 5000))
    assert short is not None
    assert long is not None
    assert 0 < short.seconds < long.seconds
    assert rates_of(plan, "cuda") is None
    module._path().write_text('{"a": {"per_pass": "b"}}')
    assert known_rates(plan, "cpu") is None, "a damaged file is as none"


@pytest.mark.slow
def test_what_is_timed_has_the_form_of_the_model(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    outline, loaded = outline_model(str(path), torch.device("cpu")), load_model(str(path), device="cpu")
    sample = sample_model(outline, 1)

    def forms(model: torch.nn.Module) -> dict[str, object]:
        return {
            name: [(part.form, part.data.shape) for part in one.weight.parts]
            for name, one in model.named_modules()
            if isinstance(one, PackedLinear) and not name.startswith("model.layers.1")
        }

    assert forms(sample) == forms(loaded.model)
    decoder = Decoder(sample)
    out = decoder.forward(torch.zeros(1, 5, dtype=torch.int64), decoder.new_pot(8))
    assert bool(out.hidden_states.isfinite().all())
