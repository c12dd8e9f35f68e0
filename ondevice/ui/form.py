"""The settings on the screen: sizes, then a control for every setting that has one; and from the form to a config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from ondevice import words
from ondevice.config import CATALYSTS_WITH_WORDS, ConversationConfig, GenerationConfig
from ondevice.config.engine import ANSWERING, SETTINGS, EngineConfig, with_choices
from ondevice.config.setting import Setting, settings_of, value_of, with_values
from ondevice.errors import ConfigError
from ondevice.session.engine import Engine
from ondevice.ui.panels import panel

# By the kind of machine that they suit: a pot's slots, and how many a distillation keeps.
SIZES = {"Automatic": (0, 0), "Phone": (1024, 512), "Laptop": (2048, 1024), "Workstation": (4096, 2048)}
GROUPS = {"Answer": True, "Memory": True, "Lab": False}  # and whether they are unfolded
_MEMORY = ("engine.memory", "tier.budget_bytes", "slim.schedule", "pot.preset", "pot.capacity", "pot.num_kept")
CONVERSATION = settings_of(ConversationConfig)  # its control stands beside the question, and goes with it


def on_form(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Those of the settings that have a control, in the order of the screen."""
    controls = [(one.form.place, path) for path, one in settings.items() if one.form is not None]
    return {path: settings[path] for _, path in sorted(controls)}


CONTROLS = on_form({**SETTINGS, **CONVERSATION})


@dataclass(frozen=True, slots=True)
class Form:
    """The values of the form as they stand on the screen, by the path of their setting."""

    values: Mapping[str, Any]

    @classmethod
    def of(cls, config: EngineConfig) -> Form:
        """The form that shows these settings."""
        values = {path: value_of(config, path) for path in CONTROLS if path in SETTINGS}
        values |= {path: one.default for path, one in CONVERSATION.items()}
        return cls({path: _shown(one, values[path]) for path, one in CONTROLS.items()})

    @property
    def remembers(self) -> bool:
        """True if a question may refer to those before it."""
        return bool(self.values["conversation.remembers"])

    def engine_config(self, base: EngineConfig) -> EngineConfig:
        """`base` with the form's values; raises ConfigError where a field is empty, or they do not fit together."""
        values = {path: _taken(CONTROLS[path], value) for path, value in self.values.items() if path in SETTINGS}
        if values["pot.catalyst"] not in CATALYSTS_WITH_WORDS:
            values["pot.catalyst_text"] = ""
        return with_choices(base, values)

    def generation(self, base: GenerationConfig) -> GenerationConfig:
        """Sampling of the next answer; may change between two questions."""
        values = {path: _taken(CONTROLS[path], value) for path, value in self.values.items() if path in ANSWERING}
        return with_values(base, values)


def form_parts(engine: Engine) -> tuple[dict[str, Any], gr.Radio, gr.HTML]:
    """The controls of the form by path, the sizes among them, and what is said of their values."""
    config, choices = engine.config, _size_choices(engine)
    start, slot_size = Form.of(config).values, _slot_size(engine)
    note = panel("settings_note")
    sizes = gr.Radio(
        choices,
        value=matching_size(config.pot.capacity, config.pot.num_kept),
        label="How many slots",
        info="A slot holds one token. More slots keep more and take more memory, however long the document is.",
        elem_id="od-preset",
        render=False,
    )
    made: dict[str, Any] = {}
    for group, is_open in GROUPS.items():
        with gr.Accordion(group, open=is_open, elem_classes="od-group"):
            if group == "Memory":
                sizes.render()
            for path, one in CONTROLS.items():
                if path not in CONVERSATION and _group(path) == group:
                    made[path] = control(
                        one,
                        start[path],
                        slot_size=slot_size,
                        visible=shows(path, start["pot.catalyst"]),
                        elem_id=element_id(path),
                        elem_classes="" if path in ANSWERING else "od-at-reading",
                    )
    return {path: made[path] for path in CONTROLS if path in made}, sizes, note


def element_id(path: str) -> str:
    """Id of a setting's control on the page."""
    return f"od-set-{path.replace('.', '-').replace('_', '-')}"


def _group(path: str) -> str:
    """The group of a setting: what an answer is like, what is remembered, and what is for trying."""
    if path in ANSWERING and path.startswith("generation."):
        return "Answer"
    return "Memory" if path in (*_MEMORY, "pot.reserve") else "Lab"


def for_model(engine: Engine) -> dict[str, Any]:
    """Patch of the sizes and of the pot's size where the model is another: what a slot takes there."""
    one = SETTINGS["pot.capacity"]
    assert one.form is not None
    start = Form.of(engine.config).values[one.path]
    info = one.form.info.format(default=_in_info(one, start), slot_size=_slot_size(engine))
    return {"preset": gr.update(choices=_size_choices(engine)), "capacity": gr.update(info=info)}


def _slot_size(engine: Engine) -> str:
    return words.size(engine.plan().slot_bytes) if engine.has_model else "memory by the model"


def _size_choices(engine: Engine) -> list[tuple[str, str]]:
    size = engine.plan().slot_bytes if engine.has_model else 0
    found = {name: f"{name}\n{words.count(slots)}" for name, (slots, _) in SIZES.items()}
    found |= {name: f"{found[name]}\n{words.size(slots * size)}" for name, (slots, _) in SIZES.items() if size}
    found["Automatic"] = "Automatic\nas the\ntext needs"
    return [(text, name) for name, text in found.items()]


def control(one: Setting, value: Any, *, slot_size: str = "", **more: Any) -> Any:
    """The component of a setting, at a value as on the screen; `more` goes to the component."""
    assert one.form is not None
    info = one.form.info.format(default=_in_info(one, value), slot_size=slot_size)
    common = {"value": value, "label": one.label, "info": info, **more}
    if choices := choices_of(one, value):
        return gr.Dropdown(choices, filterable=False, **common)
    if one.kind is bool:
        return gr.Checkbox(**common)
    if one.kind is str:
        return gr.Textbox(max_lines=3, **common)
    if one.form.slider is not None:
        low, high, step = one.form.slider
        return gr.Slider(low, high, step=step, buttons=["reset"], **common)
    return gr.Number(precision=0 if one.kind is int and one.form.per == 1 else None, minimum=one.form.low, **common)


def choices_of(one: Setting, value: Any) -> list[tuple[str, str]]:
    """Choices of a setting, if it has any; a value of the command line among them."""
    choices = list(one.form.choices) if one.form is not None else []
    return [*choices, (value, value)] if choices and value not in dict(choices).values() else choices


def shows(path: str, catalyst: str) -> bool:
    """True if the control stands on the screen: that for words only where the guiding prompt takes some."""
    return path != "pot.catalyst_text" or catalyst in CATALYSTS_WITH_WORDS


def in_words(config: EngineConfig) -> str:
    """Settings as the form calls them, those of reading only."""
    pot = config.pot
    parts = [pot.method.choice or pot.method.label]
    if pot.is_auto:
        parts.append("as many slots as the text needs")
    elif pot.method.distills:
        parts.append(f"{pot.capacity:,} slots, {pot.num_kept:,} kept")
    elif not pot.method.keeps_all:
        parts.append(f"{pot.capacity:,} slots")
    if pot.method.observes == "catalyst":
        parts.append(f"guiding prompt: {_in_info(SETTINGS['pot.catalyst'], pot.catalyst)}")
    if config.slim.schedule != "off":
        parts.append(f"pruned while reading ({config.slim.schedule})")
    if config.tier.budget_bytes:
        parts.append("host tier")
    if config.art.enabled:
        parts.append("early end of attention")
    if config.spec.skips:
        parts.append(f"skimmed first, {100 * config.spec.keep:.0f} % read")
    return " · ".join(parts)


def matching_size(capacity: float | None, num_kept: float | None) -> str | None:
    """Name of the size of these numbers."""
    return next((name for name, size in SIZES.items() if size == (capacity, num_kept)), None)


def _in_info(one: Setting, value: Any) -> str:
    """A default inside a sentence; `value` is as on the screen."""
    if one.zero and not value:
        return one.zero
    if one.kind is bool:
        return "on" if value else "off"
    if choices := choices_of(one, value):
        label = next(label for label, name in choices if name == value)
        return label[:1].lower() + label[1:]
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _shown(one: Setting, value: Any) -> Any:
    """A value of the setting in the unit of its control."""
    assert one.form is not None
    return value if one.form.per == 1 else round(value * one.form.per, 6)


def _taken(one: Setting, value: Any) -> Any:
    """The value of a control in the unit of its setting; raises ConfigError where a number is missing or wrong."""
    assert one.form is not None
    if one.kind is bool:
        return bool(value)
    if value is None and one.kind in (int, float):
        raise ConfigError(f"{{{one.path}}} is empty", fix="Give it a number.")
    return one.take(value, per=one.form.per)
