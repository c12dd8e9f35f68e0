"""Named choices of how carefully a text is kept: they stand for single settings, on every face."""

from __future__ import annotations

import pytest

from ondevice.cli.options import PotOptions
from ondevice.config import (
    PROFILES,
    SETTINGS,
    EngineConfig,
    PotConfig,
    by_key,
    settled,
    value_of,
    with_choices,
    with_values,
)
from ondevice.errors import ConfigError
from ondevice.ui.form import Form

NAMED = [name for name, row in PROFILES.items() if row.values]


def test_every_row_says_the_same_settings_and_they_work() -> None:
    assert len(NAMED) == 3
    assert PotConfig().profile not in NAMED
    assert len({frozenset(PROFILES[name].values) for name in NAMED}) == 1
    made = {with_values(EngineConfig(), PROFILES[name].values).pot for name in NAMED}
    assert len(made) == 3
    assert SETTINGS["pot.profile"].choices == tuple(PROFILES)


@pytest.mark.parametrize("name", NAMED)
def test_a_choice_is_the_same_on_the_command_line_in_requests_and_on_the_screen(name: str) -> None:
    config = PotOptions(profile=name, capacity="2048").config()
    for path, value in PROFILES[name].values.items():
        assert value_of(config, path) == value
    assert config.pot.num_kept == PotConfig(capacity=2048, policy=config.pot.policy).num_kept
    asked = with_choices(EngineConfig(), by_key(SETTINGS, {"retention": name, "capacity": 2048}))
    assert asked.pot == config.pot
    shown = Form.of(EngineConfig()) | {"pot.profile": name, "pot.policy": "random", "pot.capacity": 2048}
    drawn = shown.engine_config(EngineConfig())
    assert drawn.pot == config.pot
    assert Form.of(drawn).values["pot.profile"] == name


def test_single_settings_stay_where_nothing_is_named() -> None:
    chosen = {"pot.policy": "random", "pot.profile": "as-set"}
    assert settled(chosen) == chosen
    assert PotOptions(policy="random").config().pot.policy == "random"


def test_a_choice_and_another_of_what_it_stands_for_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        PotOptions(profile="fast", policy="random").config()
    assert "pot.policy" in str(caught.value)
    usual = PROFILES["fast"].values["pot.policy"]
    assert PotOptions(profile="fast", policy=usual).config().pot.profile == "fast"
    with pytest.raises(ConfigError):
        with_values(EngineConfig(), {"pot.profile": "slow"})
    with pytest.raises(ConfigError):
        PotOptions(profile="slow").config()
