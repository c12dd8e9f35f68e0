"""The options that several commands share, each written once, and the decorator that hands them to a command."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from ondevice.config import (
    CatalystKind,
    DecodePolicyName,
    DeviceName,
    DtypeName,
    EngineConfig,
    GenerationConfig,
    KeyRotation,
    PolicyName,
    PotConfig,
    Quantization,
)
from ondevice.errors import ConfigError
from ondevice.method_config import (
    ArtConfig,
    SlimConfig,
    SlimNoveltyName,
    SpecConfig,
    SpecNoveltyName,
    TierConfig,
    TierDtypeName,
    Traversal,
)

_ENGINE, _POT, _SLIM, _TIER, _ART, _SPEC, _ANSWER = (
    EngineConfig(),
    PotConfig(),
    SlimConfig(),
    TierConfig(),
    ArtConfig(),
    SpecConfig(),
    GenerationConfig(),
)
_T = TypeVar("_T", int, float)
# What every measuring command takes.
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON in the last line.")]
OutFile = Annotated[Path | None, typer.Option("--out", help="Write the results here.")]


def _option(panel: str, help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


@dataclass(frozen=True)
class PotOptions:
    """Model, machine and pot: the same on every command."""

    model: Annotated[str, _option("Model", "smollm2, a folder, a .gguf file, or a hub id (owner/name).")] = (
        _ENGINE.model
    )
    device: Annotated[DeviceName, _option("Model", "Where to compute; auto takes CUDA when there is one.")] = (
        _ENGINE.device
    )
    dtype: Annotated[DtypeName, _option("Model", "Type of the weights; auto fits the device.")] = _ENGINE.dtype
    quantization: Annotated[Quantization, _option("Model", "Weights in 8 or 4 bits (needs bitsandbytes).")] = (
        _ENGINE.quantization
    )
    seed: Annotated[int, _option("Model", "For sampling and for the random policy.")] = _ENGINE.seed
    capacity: Annotated[int, _option("Pot", "Slots per layer and head; this is all the memory there is.")] = (
        _POT.capacity
    )
    keep: Annotated[int, _option("Pot", "Slots kept when a full pot is distilled.")] = _POT.num_kept
    reserve: Annotated[int, _option("Pot", "Slots left free for a question and its answer.")] = _POT.reserve
    policy: Annotated[PolicyName, _option("Pot", "Which rule chooses what stays.")] = _POT.policy
    catalyst: Annotated[
        CatalystKind | None,
        _option("Pot", "What is asked of the text before it is distilled.", show_default="general"),
    ] = None
    catalyst_text: Annotated[str, _option("Pot", "The words for --catalyst question or text.")] = _POT.catalyst_text
    novelty: Annotated[float, _option("Pot", "Share of the kept slots that go to the most surprising tokens.")] = (
        _POT.novelty
    )
    context_reset: Annotated[
        bool,
        _option("Pot", "Number positions anew after a distillation.", "--context-reset/--no-context-reset"),
    ] = _POT.context_reset
    sinks: Annotated[int, _option("Pot", "First tokens that always stay.")] = _POT.num_sink_tokens
    adaptive_keep: Annotated[
        str, _option("Pot", "Let the kept size follow the text, between two bounds.", metavar="LOW,HIGH")
    ] = ""
    step: Annotated[int, _option("Pot", "Tokens per forward pass while reading.")] = _POT.step_size
    decode_policy: Annotated[
        DecodePolicyName, _option("Pot", "What an answer overwrites once the reserve is used up.")
    ] = _POT.decode_policy
    key_rotation: Annotated[
        KeyRotation, _option("Pot", "What is kept so that keys need no rotation at every step.")
    ] = _POT.key_rotation
    slim: Annotated[
        str,
        _option(
            "SlimInfer",
            "Let fewer tokens go on behind some layers: off, auto, or LAYER:KEPT,..., such as 10:50%,20:25%.",
            metavar="SCHEDULE",
        ),
    ] = _SLIM.schedule
    slim_rarity: Annotated[float, _option("SlimInfer", "Share of the kept blocks that goes to the rarest words.")] = (
        _SLIM.rarity
    )
    slim_novelty: Annotated[SlimNoveltyName, _option("SlimInfer", "Where the novelty of pruned tokens comes from.")] = (
        _SLIM.novelty
    )

    host_tier: Annotated[
        str,
        _option(
            "Host tier",
            "Keep what the pot evicts outside it, in so much memory: 500MB, 2GB; 0 keeps nothing.",
            metavar="SIZE",
        ),
    ] = "0"
    host_dtype: Annotated[TierDtypeName, _option("Host tier", "How it is kept.")] = _TIER.dtype
    host_folder: Annotated[
        str, _option("Host tier", "Keep it in a temporary file in this folder instead of in memory.")
    ] = _TIER.folder
    bring_back: Annotated[int, _option("Host tier", "Tokens that a question brings back, at most.")] = _TIER.max_tokens
    gamma: Annotated[
        float, _option("Host tier", "Overlap from which on nothing is swapped while an answer is written.")
    ] = _TIER.gamma
    look_every: Annotated[
        int, _option("Host tier", "Tokens of an answer after which it is asked again what it looks for.")
    ] = _TIER.every
    read_on: Annotated[
        bool, _option("Host tier", "With --slim: keep the hidden states of pruned tokens, and read on what comes back.")
    ] = _TIER.reads_on

    art: Annotated[bool, _option("ART", "End the reading of the pot once the output has converged.")] = _ART.enabled
    art_tau: Annotated[
        float | None, _option("ART", "How far another block may move a converged output.", show_default="calibrated")
    ] = _ART.tau
    art_phi: Annotated[
        float | None, _option("ART", "How far it may turn it: one minus the cosine.", show_default="calibrated")
    ] = _ART.phi
    art_patience: Annotated[
        int | None, _option("ART", "Blocks in a row for which both hold.", show_default="calibrated")
    ] = _ART.patience
    art_relative: Annotated[
        bool,
        _option("ART", "Whether tau is a share of the output's norm.", "--art-relative/--art-absolute"),
    ] = _ART.is_relative
    art_order: Annotated[Traversal, _option("ART", "Which blocks are read first, behind the newest.")] = _ART.traversal
    art_block: Annotated[int, _option("ART", "Slots of a block.")] = _ART.block_size

    spec_keep: Annotated[
        float,
        _option("Speculator", "Share of the text that a small model lets through to the main one; 1: all of it."),
    ] = _SPEC.keep
    spec_adaptive: Annotated[
        str, _option("Speculator", "Let that share follow the text, between two bounds.", metavar="LOW,HIGH")
    ] = ""
    speculator: Annotated[
        str,
        _option("Speculator", "The small model, named as --model.", show_default="the model's own first layers"),
    ] = _SPEC.model
    speculator_layers: Annotated[
        int, _option("Speculator", "First layers that are the speculator.", show_default="a quarter of them")
    ] = _SPEC.layers
    spec_score_layers: Annotated[
        int, _option("Speculator", "Its last layers, whose attention counts; 0: all, or the upper half of own ones.")
    ] = _SPEC.score_layers
    spec_look_ahead: Annotated[int, _option("Speculator", "Tokens that it decodes to see what they look at.")] = (
        _SPEC.num_lookahead
    )
    spec_pool: Annotated[int, _option("Speculator", "Neighbouring tokens whose scores are averaged.")] = _SPEC.pool_size
    spec_chunk: Annotated[int, _option("Speculator", "Tokens that are chosen together.")] = _SPEC.chunk_size
    spec_novelty: Annotated[
        SpecNoveltyName, _option("Speculator", "Where the novelty of a token behind a skipped one comes from.")
    ] = _SPEC.novelty
    spec_restore: Annotated[
        int, _option("Speculator", "Skipped tokens that a question may have read after all; 0: none.")
    ] = _SPEC.num_restored
    draft: Annotated[
        int, _option("Speculator", "Tokens that it drafts at once while an answer is written; 0: none.")
    ] = _SPEC.num_draft
    always_draft: Annotated[
        bool, _option("Speculator", "Go on drafting where it does not pay.", "--always-draft/--draft-while-it-pays")
    ] = not _SPEC.falls_back

    def config(self, generation: GenerationConfig = _ANSWER, *, question: str = "") -> EngineConfig:
        """The settings; with a `question` and no catalyst chosen, the text is read with that question in mind."""
        catalyst, catalyst_text = self.catalyst or _POT.catalyst, self.catalyst_text
        if question and self.catalyst is None:
            catalyst, catalyst_text = "question", question
        return EngineConfig(
            model=self.model,
            device=self.device,
            dtype=self.dtype,
            quantization=self.quantization,
            seed=self.seed,
            generation=generation,
            slim=SlimConfig(schedule=self.slim, rarity=self.slim_rarity, novelty=self.slim_novelty),
            tier=TierConfig(
                budget_bytes=_bytes(self.host_tier),
                dtype=self.host_dtype,
                folder=self.host_folder,
                max_tokens=self.bring_back,
                gamma=self.gamma,
                every=self.look_every,
                reads_on=self.read_on,
            ),
            art=ArtConfig(
                enabled=self.art,
                tau=self.art_tau,
                phi=self.art_phi,
                patience=self.art_patience,
                is_relative=self.art_relative,
                traversal=self.art_order,
                block_size=self.art_block,
            ),
            spec=SpecConfig(
                keep=self.spec_keep,
                adaptive_keep=_shares(self.spec_adaptive),
                model=self.speculator,
                layers=self.speculator_layers,
                score_layers=self.spec_score_layers,
                num_lookahead=self.spec_look_ahead,
                pool_size=self.spec_pool,
                chunk_size=self.spec_chunk,
                novelty=self.spec_novelty,
                num_draft=self.draft,
                falls_back=not self.always_draft,
                num_restored=self.spec_restore,
            ),
            pot=PotConfig(
                capacity=self.capacity,
                num_kept=self.keep,
                reserve=self.reserve,
                policy=self.policy,
                catalyst=catalyst,
                catalyst_text=catalyst_text,
                novelty=self.novelty,
                context_reset=self.context_reset,
                num_sink_tokens=self.sinks,
                adaptive_keep=_bounds(self.adaptive_keep),
                step_size=self.step,
                decode_policy=self.decode_policy,
                key_rotation=self.key_rotation,
            ),
        )


@dataclass(frozen=True)
class AnswerOptions:
    """How answers are sampled."""

    max_new_tokens: Annotated[int, _option("Answers", "The longest answer, in tokens.")] = _ANSWER.max_new_tokens
    temperature: Annotated[float, _option("Answers", "0 takes the likeliest token each time.")] = _ANSWER.temperature
    top_p: Annotated[float, _option("Answers", "Probability mass to sample from.")] = _ANSWER.top_p
    chat: Annotated[bool, _option("Answers", "Use the model's chat template, if it has one.", "--chat/--no-chat")] = (
        _ANSWER.chat
    )
    sources: Annotated[
        int, _option("Answers", "Passages of the document that are named for an answer, at most; 0 names none.")
    ] = _ANSWER.num_sources
    remember: Annotated[
        bool,
        _option("Answers", "Let a question refer to those before it, as far as the reserve has room for them."),
    ] = True

    def config(self) -> GenerationConfig:
        return GenerationConfig(self.max_new_tokens, self.temperature, self.top_p, self.chat, self.sources)


def takes_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let parameters that are option dataclasses appear as their fields on the command line."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    bundles: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation):
            bundles[parameter.name] = parameter.annotation
            parameters += _as_parameters(parameter.annotation)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def unpacked(**values: Any) -> Any:
        for name, bundle in bundles.items():
            values[name] = bundle(**{field.name: values.pop(field.name) for field in fields(bundle)})
        return command(**values)

    unpacked.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    unpacked.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del unpacked.__wrapped__  # type: ignore[attr-defined]  # or typer would look at the command's own parameters
    return unpacked


def numbers(option: str, text: str, kind: Callable[[str], _T]) -> tuple[_T, ...]:
    """The numbers of an option such as `4096,16384`.

    Raises:
        ConfigError: there is none, or one of them is no number.
    """
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{option} is {text!r}", fix="Give numbers with commas between them.") from None


def _as_parameters(bundle: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(bundle, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(bundle)
    ]


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?B?)", text.strip().upper())
    if match is None or match[2] not in _UNITS:
        raise ConfigError(f"--host-tier is {text!r}", fix="Give a size such as 500MB or 2GB.")
    return int(float(match[1]) * _UNITS[match[2]])


def _shares(text: str) -> tuple[float, float] | None:
    if not text:
        return None
    shares = numbers("--spec-adaptive", text, float)
    if len(shares) != 2:
        raise ConfigError(f"--spec-adaptive is {text!r}", fix="Give two shares: LOW,HIGH.")
    return shares[0], shares[1]


def _bounds(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    bounds = numbers("--adaptive-keep", text, int)
    if len(bounds) != 2:
        raise ConfigError(f"--adaptive-keep is {text!r}", fix="Give two token counts: LOW,HIGH.")
    return bounds[0], bounds[1]
