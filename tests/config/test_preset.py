"""Named choices of how carefully a text is kept: they stand for single settings, on every face."""

from __future__ import annotations

import pytest
from ondevice.kernels.termination import Termination

from ondevice.cli.options import PotOptions
from ondevice.config import (
    PRESETS,
    SETTINGS,
    EngineConfig,
    GenerationConfig,
    PotConfig,
    by_key,
    settled,
    value_of,
    with_choices,
    with_values,
)
from ondevice.decode.termination import rules_of
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.events import AnswerFinished
from ondevice.session.engine import Engine
from ondevice.ui.form import CONTROLS, Form
from tests.builders.screens import tiny_engine

PAPERS = [f"paper-{name}" for name in ("infinipot", "equip", "sliminfer", "art", "specprefill")]
NAMED = ["fast", "balanced", "thorough", *PAPERS]


def test_every_row_names_other_settings_and_they_work() -> None:
    assert list(PRESETS) == [PotConfig().preset, *NAMED]
    made = {with_values(EngineConfig(), PRESETS[name].values) for name in PRESETS}
    assert len(made) == len(PRESETS)
    assert SETTINGS["pot.preset"].choices == tuple(PRESETS)
    assert {name for _, name in CONTROLS["pot.preset"].form.choices} == PRESETS.keys() - set(PAPERS)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_has_its_method_alone(name: str) -> None:
    config = PotOptions(preset=name).config()
    assert (config.tier.budget_bytes, config.generation.num_passage_tokens) == (0, 0)
    added = [config.slim.schedule != "off", config.art.enabled, config.spec.skips, config.pot.key_rotation != "stored"]
    assert sum(added) == (name != "paper-infinipot")
    assert config.pot.method.keeps_all == (name != "paper-infinipot")


def test_a_paper_reads_and_answers() -> None:
    for name in PAPERS:
        config = with_choices(tiny_engine().config, {"pot.preset": name})
        session = Engine(tiny_engine().loaded, config).session()
        list(session.read(Document("a.txt", "txt", "part", (Page(1, "The lamp was lit. " * 20),), 1, 360)))
        *_, finished = session.ask("When?")
        assert isinstance(finished, AnswerFinished), name


def test_the_rule_of_art_is_the_papers() -> None:
    usual, published = (PotOptions(preset=name).config().art for name in ("as-set", "paper-art"))
    calibrated = (Termination(tau=0.5),) * 2
    assert rules_of(usual, calibrated, 2) == calibrated
    assert rules_of(published, calibrated, 2) == (Termination(),) * 2


def test_another_preset_takes_back_what_the_one_before_has_set() -> None:
    base = with_choices(EngineConfig(), {"pot.preset": "paper-equip"})
    assert base.pot.key_rotation == "half-cache"
    for name in ("as-set", "fast"):
        assert with_choices(base, {"pot.preset": name}) == with_choices(EngineConfig(), {"pot.preset": name})
    assert with_choices(base, {"engine.seed": 3}).pot == base.pot


@pytest.mark.parametrize("name", NAMED)
def test_a_choice_is_the_same_on_the_command_line_in_requests_and_on_the_screen(name: str) -> None:
    config = PotOptions(preset=name, capacity="2048").config()
    for path, value in PRESETS[name].values.items():
        assert value_of(config, path) == value
    assert config.pot.num_kept == PotConfig(capacity=2048, policy=config.pot.policy).num_kept
    asked = with_choices(EngineConfig(), by_key(SETTINGS, {"preset": name, "capacity": 2048}))
    assert asked == config
    changed = {"pot.preset": name, "pot.policy": "random", "pot.capacity": 2048}
    shown = Form({**Form.of(EngineConfig()).values, **changed})
    drawn = shown.engine_config(EngineConfig())
    assert drawn == config
    assert Form.of(drawn).values["pot.preset"] == name


def test_single_settings_stay_where_nothing_is_named() -> None:
    chosen = {"pot.policy": "random", "pot.preset": "as-set"}
    assert settled(chosen) == chosen
    assert PotOptions(policy="random").config().pot.policy == "random"


def test_a_choice_and_another_of_what_it_stands_for_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        PotOptions(preset="fast", policy="random").config()
    assert "pot.policy" in str(caught.value)
    usual = PRESETS["fast"].values["pot.policy"]
    assert PotOptions(preset="fast", policy=usual).config().pot.preset == "fast"
    with pytest.raises(ConfigError, match="num_passage_tokens"):
        PotOptions(preset="paper-art").config(GenerationConfig(num_passage_tokens=64))
    with pytest.raises(ConfigError):
        with_values(EngineConfig(), {"pot.preset": "slow"})
    with pytest.raises(ConfigError):
        PotOptions(preset="slow").config()
