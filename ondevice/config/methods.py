"""Settings of the four methods beside the pot: SlimInfer, its host tier, ART and SpecPrefill.

All but the tier are off by default. Like all settings they are frozen, and checked when they are made. Counts are
tokens unless the name says otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from ondevice.config.setting import SHARE, SOME_SHARE, Check, Control, at_least, check_each, require, setting


@dataclass(frozen=True, slots=True)
class SlimLayer:
    """One step of a pruning schedule: after the attention of layer `layer`, counted from 1, fewer tokens go on.

    `share` of the document tokens of a forward pass, or `tokens` of them, rounded to whole blocks and at least one;
    the other is None.
    """

    layer: int
    share: float | None = None
    tokens: int | None = None

    def budget(self, num_tokens: int) -> int:
        """Tokens that go on, of a pass with `num_tokens` tokens of the document."""
        if self.tokens is not None:
            return min(self.tokens, num_tokens)
        return round((self.share or 1.0) * num_tokens)


@dataclass(frozen=True, slots=True)
class SlimConfig:
    """SlimInfer: blocks of hidden states are pruned inside the forward pass while a document is read.

    The paper keeps the blocks with the highest scores. In a stream their query is a general catalyst, which knows no
    question, so that `rarity` gives a share of the places to the blocks with the rarest words first; 0 is the paper's
    rule.
    """

    panel: ClassVar = "SlimInfer"

    # fmt: off
    schedule: str = setting(  # `auto`: see `slim_steps`
        "off", "Prune tokens after some layers: off, auto, or LAYER:KEPT,..., such as 10:50%,20:25% (shares of a pass) "
        "or 10:8192 (tokens).", option="--slim", metavar="SCHEDULE", api="slim", label="Prune after some layers",
        form=Control(10, "SlimInfer. Default: {default}. On, reading is faster, and tokens that look unimportant are "
                         "not read to the end of the model. Takes effect at the next reading.",
                     choices=(("Off", "off"), ("On, as suits the model", "auto"))))
    block_size: int = setting(64, "Tokens that are kept or pruned together.")
    unit_size: int = setting(8, "Tokens whose keys are averaged; the best unit speaks for its block.")
    window: int = setting(4, "Last queries of a pass, the catalyst's, that score blocks.", check=at_least(1, "query"))
    rarity: float = setting(
        0.5, "Share of the kept blocks that goes to the rarest words.", check=SHARE)
    # fmt: on

    def __post_init__(self) -> None:
        check_each(self)
        self.steps()
        require(
            self.unit_size >= 1 and self.block_size >= 1 and self.block_size % self.unit_size == 0,
            f"{{slim.block_size}} is {self.block_size} and {{slim.unit_size}} {self.unit_size}",
            "Give a block that whole units fill.",
        )

    def steps(self) -> tuple[SlimLayer, ...] | None:
        """The steps of the schedule; none when it is off, None for `auto`.

        Raises:
            ConfigError: it is written wrongly.
        """
        if self.schedule in ("off", "auto"):
            return None if self.schedule == "auto" else ()
        steps = [_slim_layer(part.strip()) for part in self.schedule.split(",")]
        layers = [step.layer for step in steps]
        require(
            all(a < b for a, b in pairwise(layers)),
            f"{{slim.schedule}} {self.schedule} names layers that do not rise",
            "Name each layer once, the lowest first.",
        )
        return tuple(steps)


def _slim_layer(text: str) -> SlimLayer:
    match = re.fullmatch(r"(\d{1,9}):(\d{1,9}(?:\.\d{1,9})?)(%?)", text)
    step = SlimLayer(0)
    if match is not None:
        layer, kept, is_share = int(match[1]), float(match[2]), bool(match[3])
        step = SlimLayer(layer, share=kept / 100) if is_share else SlimLayer(layer, tokens=int(kept))
    require(
        step.layer >= 1 and (step.tokens or 0) + (step.share or 0) > 0 and (step.share or 0) <= 1,
        f"{{slim.schedule}} holds {text!r}",
        "Give off, auto, or LAYER:KEPT with commas between, such as 10:50%,20:25% or 10:8192,20:4096.",
    )
    return step


@dataclass(frozen=True, slots=True)
class TierConfig:
    """The host tier: what the pot evicts waits outside, and a question recalls what it needs."""

    panel: ClassVar = "Host tier"

    # fmt: off
    budget_bytes: int = setting(  # taken only as far as the text needs it
        10**9, "Memory outside the pot for what it evicts, at most; 0 keeps nothing of it.", option="--host-tier",
        unset="1GB; with --capacity auto what --memory leaves",
        is_size=True, api="host_tier_bytes", check=at_least(0, "bytes"), most=10**15, label="Host tier",
        form=Control(11, "MB beside the pot, at most, for what it evicts. Default {default}, or what the memory "
                         "for the document leaves; with 0, what is evicted is gone. A question brings back what it "
                         "needs. Takes effect at the next reading.",
                     low=0, per=1e-6))
    max_tokens: int = setting(  # into each head
        1024, "Tokens that a question brings back, at most.", option="--bring-back", answers=True,
        check=at_least(1, "token"))
    num_beside: int = setting(  # of each head; the others are out of the pot until the answer is written
        512, "The pot's own tokens that stay beside those, the nearest to them; the others would draw attention away.",
        answers=True, check=at_least(0, "tokens"))
    every: int = setting(  # 1 is the paper's
        32, "Tokens of an answer after which the host tier is searched again.", answers=True,
        check=at_least(1, "token"))
    # fmt: on

    def __post_init__(self) -> None:
        check_each(self)


@dataclass(frozen=True, slots=True)
class ArtConfig:
    """ART: decoding reads the pot block by block, and no further once a head's output has converged.

    What is None comes from `ondevice calibrate` for the model at hand, or is the default of `decode.termination`.
    """

    panel: ClassVar = "ART"

    # fmt: off
    enabled: bool = setting(
        False, "End the reading of the pot once the output has converged.", option="--art/--no-art", api="art",
        answers=True, label="End reading the pot early",
        form=Control(13, "ART. Default: {default}. On, each word of an answer reads only as much of the pot as changes "
                         "it, and may miss a single fact. Takes effect at the next reading."))
    published: bool = setting(
        False, "By the paper's rule: its thresholds, in the output's own units.", answers=True)
    tau: float | None = setting(  # Euclidean
        None, "How far another block may move a converged output, as a share of its norm.", answers=True,
        check=at_least(0))
    phi: float | None = setting(
        None, "How far it may turn it: one minus the cosine.", answers=True, check=at_least(0))
    patience: int | None = setting(None, "Blocks in a row for which both hold.", answers=True, check=at_least(1))
    block_size: int = setting(
        128, "Slots of a block.", answers=True,
        check=Check(lambda size: 16 <= size <= 1024 and size % 16 == 0, "Give a multiple of 16 up to 1024."))
    # fmt: on

    def __post_init__(self) -> None:
        check_each(self)


@dataclass(frozen=True, slots=True)
class SpecConfig:
    """SpecPrefill (arXiv 2502.02789)."""

    panel: ClassVar = "Speculator"

    # fmt: off
    keep: float = setting(
        1.0, "Share of the text that a small model lets through to the main one; 1: all of it.", option="--spec-keep",
        api="spec_keep", check=SOME_SHARE, label="Skim first",
        form=Control(16, "SpecPrefill. Percent of the text that the model reads, 10 to 100. Default {default}; 100 is "
                         "all. Below that its first layers skim everything and choose; the rest is skipped. "
                         "Takes effect at the next reading.", slider=(10, 100, 5), per=100))
    model: str = setting(
        "", "The small model, named as {engine.model}.", option="--speculator", unset="the model's own first layers")
    layers: int = setting(0, "First layers that are the speculator; 0: a quarter of them.", check=at_least(0, "layers"))
    # None by default: what a model's first layers decode is no answer, and passages are lost by it (`ondevice eval
    # speculator`).
    num_lookahead: int = setting(
        0, "Tokens that it decodes to see what they attend to.", check=at_least(0, "tokens"))
    pool_size: int = setting(
        5, "Neighbouring tokens whose scores are averaged; odd, 1: none.",
        check=Check(lambda size: size >= 1 and size % 2 == 1, "Give an odd number of tokens."))
    chunk_size: int = setting(  # with 1, and `pool_size` 1, scores are raw
        16, "Tokens that are chosen or skipped together.", check=at_least(1, "token"),
        most=2**16)
    # fmt: on

    def __post_init__(self) -> None:
        check_each(self)

    @property
    def skips(self) -> bool:
        """True if tokens of the document may be kept from the main model."""
        return self.keep < 1.0
