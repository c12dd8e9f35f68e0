"""The settings form: presets first, then every knob; and from the form to the engine's configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ondevice.config import EngineConfig, GenerationConfig
from ondevice.engine import Engine
from ondevice.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Preset:
    """A pot's size that suits a kind of machine."""

    name: str
    capacity: int
    num_kept: int


PRESETS = (Preset("Small pot", 1024, 512), Preset("Balanced", 2048, 1024), Preset("Large", 4096, 2048))

POLICIES = (
    ("Useful and new (InfiniPot)", "infinipot"),
    ("First and latest (StreamingLLM)", "streaming-llm"),
    ("Looked at lately (SnapKV)", "snapkv"),
    ("Looked at lately, more in early layers (PyramidKV)", "pyramidkv"),
    ("Looked at last (TOVA)", "tova"),
    ("Surprising (SirLLM)", "sirllm"),
    ("Random, to compare", "random"),
    ("Both ends, skip the middle", "truncate"),
    ("Everything; memory grows", "full"),
)
CATALYSTS = (
    ("Summarise", "general"),
    ("Summarise, wording 1", "general-v1"),
    ("Summarise, wording 2", "general-v2"),
    ("Answer my question", "question"),
    ("My own words", "text"),
    ("Placeholder, to compare", "placeholder"),
    ("Unrelated, to compare", "unrelated"),
)
SCHEDULES = (("Off", "off"), ("On, as suits the model", "auto"))
DECODE_POLICIES = (
    ("What the question looks at least", "question"),
    ("The oldest behind the beginning", "streaming-llm"),
    ("What the answer looked at least", "h2o"),
)
NEED_WORDS = ("question", "text")  # catalysts that are typed in


@dataclass(frozen=True, slots=True)
class Form:
    """The values of the form, in the order of its fields on the screen."""

    capacity: float | None
    num_kept: float | None
    novelty: float | None
    policy: str
    catalyst: str
    catalyst_text: str
    max_new_tokens: float | None
    temperature: float | None
    num_sources: float | None
    slim: str
    host_tier_mb: float | None
    reads_on: bool
    art: bool
    decode_policy: str
    seed: float | None
    skim_percent: float | None
    num_restored: float | None
    num_draft: float | None
    remembers: bool = True

    @classmethod
    def of(cls, config: EngineConfig) -> Form:
        pot, generation = config.pot, config.generation
        return cls(
            pot.capacity,
            pot.num_kept,
            pot.novelty,
            pot.policy,
            pot.catalyst,
            pot.catalyst_text,
            generation.max_new_tokens,
            generation.temperature,
            generation.num_sources,
            config.slim.schedule,
            config.tier.budget_bytes / 1e6,
            config.tier.reads_on,
            config.art.enabled,
            pot.decode_policy,
            config.seed,
            round(100 * config.spec.keep),
            config.spec.num_restored,
            config.spec.num_draft,
        )

    def engine_config(self, base: EngineConfig) -> EngineConfig:
        """`base` with the form's values.

        Raises:
            ConfigError: a field is empty, or the values do not fit together.
        """
        pot: Any = {
            "capacity": _whole("Slots in the pot", self.capacity),
            "num_kept": _whole("Kept when full", self.num_kept),
            "novelty": _number("Share kept for being new", self.novelty),
            "policy": self.policy,
            "catalyst": self.catalyst,
            "catalyst_text": self.catalyst_text if self.catalyst in NEED_WORDS else "",
            "adaptive_keep": None,  # the form has one number for what is kept
            "decode_policy": self.decode_policy,
        }
        spec = replace(
            base.spec,
            keep=_number("Skim first", self.skim_percent) / 100,
            num_restored=_whole("Read what was skipped", self.num_restored),
            num_draft=_whole("Draft the answer", self.num_draft),
        )
        budget_bytes = int(_number("Host tier", self.host_tier_mb) * 1e6)
        return replace(
            base,
            seed=_whole("Seed", self.seed),
            pot=replace(base.pot, **pot),
            slim=replace(base.slim, schedule=self.slim),
            tier=replace(base.tier, budget_bytes=budget_bytes, reads_on=bool(self.reads_on)),
            art=replace(base.art, enabled=bool(self.art)),
            spec=spec,
            generation=self.generation(base.generation),
        )

    def generation(self, base: GenerationConfig) -> GenerationConfig:
        """How the next answer is sampled; may change between two questions."""
        return replace(
            base,
            max_new_tokens=_whole("Longest answer", self.max_new_tokens),
            temperature=_number("Temperature", self.temperature),
            num_sources=_whole("Sources of an answer", self.num_sources),
        )


def in_words(config: EngineConfig) -> str:
    """Settings as the form calls them, those of reading only."""
    pot = config.pot
    policy = next((label for label, name in POLICIES if name == pot.policy), pot.policy)
    if pot.policy == "full":
        parts = [policy]
    elif pot.policy == "truncate":
        parts = [policy, f"{pot.capacity:,} slots"]
    else:
        parts = [policy, f"{pot.capacity:,} slots, {pot.num_kept:,} kept"]
    if pot.policy == "infinipot":
        prompt = next((label for label, name in CATALYSTS if name == pot.catalyst), pot.catalyst)
        parts.append(f"guiding prompt: {prompt[:1].lower()}{prompt[1:]}")
    if config.slim.schedule != "off":
        parts.append(f"pruned while reading ({config.slim.schedule})")
    if config.tier.budget_bytes:
        parts.append("host tier")
    if config.art.enabled:
        parts.append("early end of attention")
    if config.spec.skips:
        parts.append(f"skimmed first, {100 * config.spec.keep:.0f} % read")
    return " · ".join(parts)


def schedules(config: EngineConfig) -> list[tuple[str, str]]:
    """The schedules to choose from; that of the command line among them."""
    own = config.slim.schedule
    return [*SCHEDULES, *([(own, own)] if own not in ("off", "auto") else [])]


def matching_preset(capacity: float | None, num_kept: float | None) -> str | None:
    """Name of the preset of these sizes."""
    return next((preset.name for preset in PRESETS if (preset.capacity, preset.num_kept) == (capacity, num_kept)), None)


def preset_named(name: str) -> Preset | None:
    return next((preset for preset in PRESETS if preset.name == name), None)


def slot_bytes(engine: Engine) -> int:
    """What one slot of the pot takes over all layers and heads: the pot's size is a multiple of it."""
    return engine.decoder.new_pot(1).nbytes


def _number(label: str, value: float | None) -> float:
    if value is None:
        raise ConfigError(f"“{label}” is empty", fix="Give it a number.")
    return float(value)


def _whole(label: str, value: float | None) -> int:
    return int(_number(label, value))
