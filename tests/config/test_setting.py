"""A knob has one home: option, control, key, documentation and the wording of errors all come from its field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal
from unittest.mock import patch

import pytest
import typer
from typer.testing import CliRunner

from ondevice.cli.options import AnswerOptions, Options, PotOptions, takes_options
from ondevice.cli.terminal import errors_shown
from ondevice.config import (
    ANSWERING,
    FIELDS,
    READING,
    SETTINGS,
    ArtConfig,
    ConversationConfig,
    EngineConfig,
    GenerationConfig,
    PotConfig,
    SlimConfig,
    SpecConfig,
    TierConfig,
    by_key,
    key_name,
    on_screen,
    option_name,
    settings_of,
    value_of,
    with_choices,
    with_values,
)
from ondevice.config.engine import label_name
from ondevice.config.setting import Control, Setting, at_least, check_each, setting
from ondevice.errors import ConfigError, named
from ondevice.ui.form import CONTROLS, Form, control, on_form

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("engine", "pot", "slim", "tier", "art", "spec", "generation")
Colour = Literal["red", "green"]


@dataclass(frozen=True, slots=True)
class LampConfig:
    panel: ClassVar = "Lamp"

    glow: int = setting(  # the one line that adds a knob
        3, "How bright it is.", option="--glow", api="glow", label="Glow", form=Control(2, "Default {default}.", low=1),
        check=at_least(1),
    )  # fmt: skip
    colour: Colour = setting("red", "Its colour, at {lamp.glow}.", option="--lamp-colour")
    oil_bytes: int = setting(0, "Its oil.", option="--oil", is_size=True, label="Oil", form=Control(1, "MB.", per=1e-6))
    wick: bool = setting(True, "With a wick.", option="--wick/--no-wick")

    def __post_init__(self) -> None:
        check_each(self)


LAMP = settings_of(LampConfig)


class LampOptions(Options, of=LAMP):
    """All options of a lamp."""


def lit(*arguments: str) -> tuple[LampConfig | None, str]:
    """Settings that a command with these options gets, and its output."""
    got: list[LampConfig] = []

    def light(lamp: LampOptions) -> None:
        with errors_shown(as_json=False):
            got.append(with_values(LampConfig(), lamp.values()))

    app = typer.Typer()
    app.command()(takes_options(light))
    with patch("typer.rich_utils.MAX_WIDTH", 200):  # typer reads the width once, whichever test is the first
        output = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}).output
    return (got[0] if got else None), output


# -- one line adds a knob ----------------------------------------------------------------------------


def test_a_knob_is_an_option() -> None:
    assert "Lamp" not in lit("--help")[1], "it fits a screen"
    _, help = lit("--help-all")
    assert "Lamp" in help
    assert re.search(r"--glow +<int> +How bright it is\. \[default: 3\]", help)
    assert re.search(r"--lamp-colour +<red\|green> +Its colour, at lamp\.glow\. \[default: red\]", help)
    assert re.search(r"--oil +SIZE ", help)
    assert re.search(r"--wick +--no-wick ", help)
    assert lit()[0] == LampConfig()
    options = ("--glow", "5", "--lamp-colour", "green", "--oil", "1.5MB", "--no-wick")
    assert lit(*options)[0] == LampConfig(5, "green", 1_500_000, False)


def test_a_text_that_is_no_value_is_refused() -> None:
    config, output = lit("--oil", "much")
    assert config is None
    assert "Lamp.oil_bytes is 'much'" in output, "a setting of nobody's table goes by its path"


def test_a_knob_is_a_control() -> None:
    controls = on_form(LAMP)
    assert list(controls) == ["lamp.oil_bytes", "lamp.glow"], "in their places"
    import gradio as gr

    with gr.Blocks(analytics_enabled=False):
        glow = control(controls["lamp.glow"], 3)
    assert (glow.label, glow.info, glow.value, glow.minimum, glow.precision) == ("Glow", "Default 3.", 3, 1, 0)


def test_a_knob_is_a_key_and_a_row_of_the_documentation() -> None:
    assert by_key(LAMP, {"glow": 4}) == {"lamp.glow": 4}
    for wrong in ("4", 4.5, True, None):
        with pytest.raises(ConfigError, match=f"lamp.glow is {wrong!r}. Give a whole number"):
            by_key(LAMP, {"glow": wrong})
    with pytest.raises(ConfigError, match="no setting 'wick' here"):
        by_key(LAMP, {"wick": True})
    assert key_table(LAMP).splitlines()[2:] == ["| `glow` | `--glow` | `3` | How bright it is. |"]


def test_a_knob_checks_itself() -> None:
    with pytest.raises(ConfigError, match=r"lamp.glow is 0. Give at least 1."):
        LampConfig(glow=0)
    with pytest.raises(ConfigError, match=r"lamp.colour is 'blue', which is not known. Choose one of red, green."):
        LampConfig(colour="blue")  # type: ignore[arg-type]  # a mistake


# -- errors ------------------------------------------------------------------------------------------

NO_ROOM = (
    "Raise --capacity, or lower --keep or --reserve.",
    "“Kept when full” 2000 and “Reserve for questions” 256 leave no room to read in “Slots in the pot” 2048. "
    "Raise “Slots in the pot”, or lower “Kept when full” or “Reserve for questions”.",
    "num_kept 2000 and reserve 256 leave no room to read in capacity 2048",
    "pot.num_kept 2000 and pot.reserve 256 leave no room to read in pot.capacity 2048. "
    "Raise pot.capacity, or lower pot.num_kept or pot.reserve.",
)


def test_each_face_names_settings_as_its_users_do() -> None:
    with pytest.raises(ConfigError) as refused:
        PotConfig(2048, num_kept=2000)
    error = refused.value
    shown = (error.to_dict(option_name)["fix"], on_screen(error), error.to_dict(key_name)["what"], str(error))
    assert shown == NO_ROOM


@pytest.mark.parametrize(
    ("make", "option", "label", "key"),
    [
        (lambda: SpecConfig(keep=2.0), "--spec-keep", "“Skim first”", "spec_keep"),
        (lambda: TierConfig(budget_bytes=-1), "--host-tier", "“Host tier”", "host_tier_bytes"),
        (lambda: PotConfig(step_size=-1), "--step", "--step", "step_size"),  # set when the app starts
        (lambda: TierConfig(max_tokens=0), "--bring-back", "--bring-back", "--bring-back"),
        (lambda: PotConfig(catalyst="text"), "--catalyst", "“Guiding prompt”", "catalyst"),
        # What has no option was set in Python, and is called as there.
        (lambda: SlimConfig(block_size=7), "slim.block_size", "slim.block_size", "slim.block_size"),
        (lambda: SlimConfig(unit_size=0), "slim.block_size", "slim.block_size", "slim.block_size"),
        (lambda: SlimConfig(window=0), "slim.window", "slim.window", "slim.window"),
        (lambda: TierConfig(every=0), "tier.every", "tier.every", "tier.every"),
    ],
)
def test_an_error_names_the_setting_as_it_can_be_changed(make: Any, option: str, label: str, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make()
    for name, expected in ((option_name, option), (label_name, label), (key_name, key)):
        assert refused.value.to_dict(name)["what"].startswith(f"{expected} ")


def test_a_text_in_braces_stays_what_it_is() -> None:
    error = ConfigError("{pot.capacity} is '{x}'", where="{pot.capacity}.txt", fix="Give {pot.reserve}{.")
    assert error.text(option_name) == "--capacity is '{x}' ({pot.capacity}.txt). Give --reserve{."
    assert (error.what, error.fix) == ("pot.capacity is '{x}'", "Give pot.reserve{.")


# -- the settings there are --------------------------------------------------------------------------


def fields_of(config: type, part: str) -> Iterator[str]:
    for one in fields(config):
        if is_dataclass(inner := one.default_factory):
            yield from fields_of(inner, one.name)
        else:
            yield f"{part}.{one.name}"


def test_every_field_is_a_setting_once() -> None:
    assert list(FIELDS) == list(fields_of(EngineConfig, "engine"))
    assert len(SETTINGS) <= 31, "of each that a person can set there is a result where it wins, or it bounds the memory"
    everything = {**SETTINGS, **settings_of(ConversationConfig)}
    for attribute in ("option", "api", "label"):
        names = [name for one in everything.values() if (name := getattr(one, attribute))]
        assert len(names) == len(set(names))
    places = [one.form.place for one in everything.values() if one.form is not None]
    assert len(places) == len(set(places))
    for path, one in FIELDS.items():
        assert one.doc.endswith(".")
        assert value_of(EngineConfig(), path) == one.default


def test_every_option_and_key_reaches_its_setting() -> None:
    assert set(PotOptions.settings) | set(AnswerOptions.settings) == {
        one.option_name[2:].replace("-", "_")
        for one in (*SETTINGS.values(), *settings_of(ConversationConfig).values())
        if one.option
    }
    keys = {one.api for one in SETTINGS.values() if one.api}
    assert keys == {one.api for one in (*READING.values(), *ANSWERING.values()) if one.api}
    sent = {"capacity": 512, "num_kept": 64, "novelty": 1, "slim": "auto", "art": True, "spec_keep": 0.5, "seed": 7}
    config = with_choices(EngineConfig(), by_key(READING, sent))
    assert (config.pot.capacity, config.pot.num_kept, config.pot.novelty) == (512, 64, 1.0)
    assert (config.slim.schedule, config.art.enabled, config.spec.keep, config.seed) == ("auto", True, 0.5, 7)
    answering = with_values(GenerationConfig(), by_key(ANSWERING, {"temperature": 1, "num_sources": 0}))
    assert answering == GenerationConfig(temperature=1.0, num_sources=0)


def key_table(settings: Mapping[str, Setting]) -> str:
    """The keys of the programming interface as a table in Markdown."""
    lines = ["| key | option | default | meaning |", "|---|---|---|---|"]
    for one in settings.values():
        if one.api:
            doc = named(one.doc, lambda path: f"`{settings[path].key_name if path in settings else path}`")
            if one.zero:
                doc += f" 0 or `{json.dumps(one.zero)}`: {one.zero}."
            if one.is_size or one.choices:
                doc += (
                    ' In bytes, or as `"512MB"`.'
                    if one.is_size
                    else f" One of {', '.join(f'`{choice}`' for choice in one.offered)}."
                )
            lines.append(f"| `{one.api}` | `{one.option_name}` | `{json.dumps(one.default)}` | {doc} |")
    return "\n".join(lines)


def test_the_form_shows_a_config_and_gives_it_back() -> None:
    config = EngineConfig(seed=4, tier=TierConfig(budget_bytes=2_300_000), spec=SpecConfig(keep=0.35))
    form = Form.of(config)
    assert list(form.values) == list(CONTROLS)
    assert (form.values["tier.budget_bytes"], form.values["spec.keep"]) == (2.3, 35)
    assert form.engine_config(EngineConfig()) == config
    assert form.remembers


def test_the_documentation_has_the_keys_as_they_are() -> None:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    for settings in (READING, ANSWERING):
        assert key_table(settings) in page, (
            f"docs/api.md: put this table in place of the old one\n{key_table(settings)}"
        )


def test_what_may_differ_when_a_saved_pot_is_opened_touches_no_reading() -> None:
    free = {path for path, one in FIELDS.items() if one.answers}
    parts = {part: {path.partition(".")[2] for path in free if path.startswith(f"{part}.")} for part in PARTS}
    assert parts == {
        "engine": {"device", "seed"},
        "pot": {"decode_policy", "key_rotation", "preset"},
        "slim": set(),
        "tier": {"max_tokens", "num_beside", "every"},
        "art": {one.name for one in fields(ArtConfig)},
        "spec": set(),
        "generation": {one.name for one in fields(GenerationConfig)} - {"chat"},
    }
