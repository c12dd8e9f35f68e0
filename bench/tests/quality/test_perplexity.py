"""Perplexity over a stream: the loss at each place is that of what was read before, and reading goes on unharmed."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from ondevice.config import EngineConfig, GenerationConfig, PotConfig
from ondevice.errors import ConfigError
from ondevice.session.engine import Engine
from ondevice_bench.quality import perplexity
from ondevice_bench.quality.contenders import text_document
from ondevice_bench.quality.measurement import Note, Setup
from ondevice_bench.quality.perplexity import AHEAD, MEASUREMENT, Place, run_perplexity, summary_of
from tests.builders.models import plain_config, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(80))
CONFIG = plain_config(
    pot=PotConfig(capacity=512, num_kept=128, reserve=AHEAD, step_size=64),
    generation=GenerationConfig(max_new_tokens=1, chat=False),
)


def places_of(config: EngineConfig, names: tuple[str, ...], num_places: int = 3) -> list[Place]:
    setup = Setup(Engine(tiny_loaded(max_positions=4096), config), lambda *args: None, lambda path: None, {}, (), None)
    items = run_perplexity(setup, text_document("text", [TEXT]), names, config.pot.capacity, num_places)
    return [item for item in items if isinstance(item, Place)]


def test_with_a_full_cache_it_is_the_loss_of_the_model() -> None:
    engine = Engine(tiny_loaded(max_positions=4096), CONFIG)
    ids = torch.as_tensor(engine.loaded.tokenizer.encode(TEXT)[0])[None]
    places = places_of(CONFIG, ("full",))
    assert [one.num_read for one in places] == [round((i + 1) * (ids.shape[1] - AHEAD) / 3) for i in range(3)]
    for one in places:
        session = engine.session(replace(CONFIG, pot=replace(CONFIG.pot, policy="full")))
        decoder = session.plan.decoder
        pot = decoder.new_pot(one.num_read + AHEAD)
        states = decoder.forward(ids[:, : one.num_read + AHEAD], pot).hidden_states[:, one.num_read :]
        expected = decoder.head.token_loss(states[:, :-1], ids[:, one.num_read + 1 : one.num_read + AHEAD])
        assert one.loss == pytest.approx(float(expected.mean()), abs=1e-4)


def test_a_pot_that_holds_all_of_it_is_as_good_as_a_full_cache() -> None:
    config = replace(CONFIG, pot=replace(CONFIG.pot, capacity=4096, num_kept=2048))
    full, pot = (places_of(config, (name,)) for name in ("full", "pot"))
    assert [one.loss for one in pot] == pytest.approx([one.loss for one in full], abs=1e-4)


def test_looks_ahead_change_nothing_of_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    often = places_of(CONFIG, ("pot", "streaming-llm"), 4)
    look = perplexity._loss_ahead
    monkeypatch.setattr(perplexity, "_loss_ahead", lambda session, at: look(session, at) if at == last else 0.0)
    last = often[3].num_read
    once = places_of(CONFIG, ("pot", "streaming-llm"), 4)
    assert [one.loss for one in once if one.loss] == [often[3].loss, often[7].loss]
    assert len({one.loss for one in often}) == 8


def test_what_does_not_fit_is_said() -> None:
    engine = Engine(tiny_loaded(max_positions=256), CONFIG)
    setup = Setup(engine, lambda *args: None, lambda path: None, {}, (), None)
    (note,) = run_perplexity(setup, text_document("text", [TEXT]), ("full",), 512, 2)
    assert isinstance(note, Note)
    assert "do not fit" in note.text
    with pytest.raises(ConfigError, match="too few for 100 places"):
        list(run_perplexity(setup, text_document("text", [TEXT]), ("pot",), 512, 100))


def test_the_figure_is_the_exponential_of_the_mean_loss() -> None:
    places = [Place("pot", 10, 1.0), Place("pot", 20, 3.0), Place("full", 10, 0.5)]
    assert summary_of(places) == {"perplexity_pot": pytest.approx(math.exp(2.0)), "perplexity_full": math.exp(0.5)}


def test_what_cannot_read_on_is_refused() -> None:
    for names in ("bm25", "none", "truncation"):
        with pytest.raises(ConfigError, match=f"{names}, which does not read on"):
            MEASUREMENT.config(lambda: CONFIG, SimpleNamespace(contenders=names, budget=None))
    tight = replace(CONFIG, pot=replace(CONFIG.pot, reserve=AHEAD - 1))
    with pytest.raises(ConfigError, match="128 tokens are read ahead"):
        MEASUREMENT.config(lambda: tight, SimpleNamespace(contenders="", budget=None))
