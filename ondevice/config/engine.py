"""All settings of an engine, and what each face calls them. Nothing here touches a device or a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from ondevice.config.generation import GenerationConfig
from ondevice.config.methods import ArtConfig, SlimConfig, SpecConfig, TierConfig
from ondevice.config.pot import PotConfig
from ondevice.config.preset import PRESETS, settled
from ondevice.config.setting import Check, Control, at_least, check_each, setting, settings_of, with_values
from ondevice.errors import OndeviceError, without_inner_names

DeviceName = Literal["auto", "cpu", "cuda"]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
Quantization = Literal["auto", "none", "8bit", "4bit"]

DEFAULT_MODEL = "auto"


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything that decides what the engine computes."""

    panel: ClassVar = "Model"

    # fmt: off
    model: str = setting(
        DEFAULT_MODEL, "auto, a name of `ondevice models list`, a folder, a .gguf file, or a hub id.", option="--model",
        check=Check(lambda name: bool(name.strip()), "Name a model, a folder, a GGUF file or a hub id."))
    device: DeviceName = setting(
        "auto", "Where to compute; auto takes CUDA when there is one.", option="--device", answers=True)
    dtype: DtypeName = setting(  # bfloat16 on CUDA, float16 before Ampere, float32 on a CPU
        "auto", "Type of the weights; auto fits the device.", option="--dtype")
    quantization: Quantization = setting(
        "auto", "Weights in 8 or 4 bits, on a GPU in 4 by torch's own kernels where it has them, else by bitsandbytes; "
        "auto takes 8 on a CPU for models above a gigabyte, and keeps those of a GGUF file as they are stored; "
        "none unpacks all.", option="--quantization")
    seed: int = setting(
        0, "For sampling.", option="--seed", api="seed", answers=True, label="Seed",
        most=2**53 - 1,  # what JSON of a browser holds; an attempt's number is added to it
        form=Control(15, "A whole number. Default {default}. The same seed gives the same answer when the temperature "
                         "is above 0. Takes effect at the next reading.", low=0))
    memory: int = setting(  # see `Plan.sized`
        0, "Memory that a document and its answers take at most; auto: a tenth of all, from 256MB to 2GB.",
        option="--memory", zero="auto",
        is_size=True, api="memory", check=at_least(0, "bytes"), most=10**15, label="Memory for the document",
        form=Control(0, "MB that it takes at most, however long it is. Default {default}: a tenth of the memory, from "
                        "256 to 2,000. 0 is auto. Takes effect at the next reading.", low=0, per=1e-6))
    # fmt: on
    pot: PotConfig = field(default_factory=PotConfig)
    slim: SlimConfig = field(default_factory=SlimConfig)
    tier: TierConfig = field(default_factory=TierConfig)
    art: ArtConfig = field(default_factory=ArtConfig)
    spec: SpecConfig = field(default_factory=SpecConfig)
    generation: GenerationConfig = field(default_factory=GenerationConfig)

    def __post_init__(self) -> None:
        check_each(self)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


FIELDS = settings_of(EngineConfig)
SETTINGS = {path: one for path, one in FIELDS.items() if one.option}  # the others are for Python and the presets
ANSWERING = {path: one for path, one in SETTINGS.items() if path in settings_of(GenerationConfig)}  # for each question
READING = {path: one for path, one in SETTINGS.items() if path not in ANSWERING}


def with_choices(base: EngineConfig, chosen: Mapping[str, Any]) -> EngineConfig:
    """`base` with what a person has chosen, by path; what a preset stands for replaces single ones.

    What another preset has set in `base` and nobody chose is as by default.

    Raises:
        ConfigError: the values cannot work.
    """
    before = base.pot.preset
    left = PRESETS[before].values if chosen.get("pot.preset", before) != before else {}
    return with_values(base, {path: FIELDS[path].default for path in left} | settled(chosen))


def option_name(path: str) -> str:
    """Name of a setting on the command line."""
    return SETTINGS[path].option_name if path in SETTINGS else path


def key_name(path: str) -> str:
    """Name of a setting in requests of the programming interface."""
    return SETTINGS[path].key_name if path in SETTINGS else path


def label_name(path: str) -> str:
    """Name of a setting on the screen."""
    return SETTINGS[path].label_name if path in SETTINGS else path


def on_screen(error: OndeviceError) -> str:
    """An error's sentence, with the labels of the screen for settings."""
    text = without_inner_names(error.text(label_name))
    return text[:1].upper() + text[1:]
