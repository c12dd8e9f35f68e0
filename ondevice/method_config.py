"""Settings of the four methods beside the pot: SlimInfer, its host tier, ART and SpecPrefill. All are off by default.

Like all settings they are frozen, and checked when they are made. Counts are tokens unless the name says otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ondevice.checks import one_of, require

SlimNoveltyName = Literal["survivors", "early-exit", "rarity"]
SpecNoveltyName = Literal["known", "rarity", "speculator"]
TierDtypeName = Literal["int8", "stored"]
Traversal = Literal["importance", "recency"]


@dataclass(frozen=True, slots=True)
class SlimLayer:
    """One step of a pruning schedule: behind the attention of layer `layer`, counted from 1, fewer tokens go on.

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
    question, so that a share of the places goes to the blocks with the rarest words first; 0 is the paper's rule.

    Attributes:
        schedule: `off`, `auto` (see `slim_steps`), or steps such as
            `10:50%,20:25%` (shares of a pass) or `10:8192,20:4096` (tokens).
        block_size: tokens that are kept or pruned together.
        unit_size: tokens whose keys are averaged; the best unit speaks for its block.
        window: last queries of a pass, the catalyst's, that blocks are scored by.
        rarity: share of the kept blocks that goes to those with the rarest words, before the score fills the rest.
        novelty: where the novelty of a pruned token comes from: nowhere (`survivors`), the first pruned layer's
            hidden states (`early-exit`), or how rare its word is (`rarity`).
    """

    schedule: str = "off"
    block_size: int = 64
    unit_size: int = 8
    window: int = 4
    rarity: float = 0.5
    novelty: SlimNoveltyName = "survivors"

    def __post_init__(self) -> None:
        self.steps()
        one_of("--slim-novelty", self.novelty, SlimNoveltyName)
        require(
            self.unit_size >= 1 and self.block_size >= 1 and self.block_size % self.unit_size == 0,
            f"--slim-block is {self.block_size} and --slim-unit {self.unit_size}",
            "Give a block that whole units fill.",
        )
        require(self.window >= 1, f"--slim-window is {self.window}", "Give at least 1 query.")
        require(0.0 <= self.rarity <= 1.0, f"--slim-rarity is {self.rarity}", "Give a share between 0 and 1.")

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
            f"--slim {self.schedule} names layers that do not rise",
            "Name each layer once, the lowest first.",
        )
        return tuple(steps)


def _slim_layer(text: str) -> SlimLayer:
    match = re.fullmatch(r"(\d+):(\d+(?:\.\d+)?)(%?)", text)
    step = SlimLayer(0)
    if match is not None:
        layer, kept, is_share = int(match[1]), float(match[2]), bool(match[3])
        step = SlimLayer(layer, share=kept / 100) if is_share else SlimLayer(layer, tokens=int(kept))
    require(
        step.layer >= 1 and (step.tokens or 0) + (step.share or 0) > 0 and (step.share or 0) <= 1,
        f"--slim holds {text!r}",
        "Give off, auto, or LAYER:KEPT with commas between, such as 10:50%,20:25% or 10:8192,20:4096.",
    )
    return step


@dataclass(frozen=True, slots=True)
class TierConfig:
    """The host tier: what the pot evicts waits outside, and a question brings back what it needs.

    Attributes:
        budget_bytes: memory that it takes; 0: there is none, and what is evicted is gone.
        dtype: `int8`, or as `stored` in the pot.
        folder: keep it in a temporary file there, mapped into memory, instead of in memory; empty: in memory.
        max_tokens: tokens that one question brings back into each head, at most.
        coverage: share of what a question looks for; blocks beyond those that have it stay outside.
        gamma: overlap of wanted and present blocks from which on nothing is swapped while an answer is written.
        every: tokens of an answer after which it is asked again what it looks for; 1 is the paper's.
        reads_on: keep the hidden states of tokens that pruning drops, too. Those that come back are then read to the
            end of the model; otherwise they come back in the layers that had read them.
    """

    budget_bytes: int = 0
    dtype: TierDtypeName = "int8"
    folder: str = ""
    max_tokens: int = 1024
    coverage: float = 0.95
    gamma: float = 0.9
    every: int = 32
    reads_on: bool = True

    def __post_init__(self) -> None:
        one_of("--host-dtype", self.dtype, TierDtypeName)
        require(self.budget_bytes >= 0, f"--host-tier is {self.budget_bytes}", "Give a size, or 0 for none.")
        require(self.max_tokens >= 1, f"--bring-back is {self.max_tokens}", "Give at least 1 token.")
        require(0.0 < self.coverage <= 1.0, f"coverage is {self.coverage}", "Give a share above 0, at most 1.")
        require(self.every >= 1, f"--look-every is {self.every}", "Give at least 1 token.")
        require(0.0 <= self.gamma <= 1.0, f"--gamma is {self.gamma}", "Give a share between 0 and 1.")


@dataclass(frozen=True, slots=True)
class ArtConfig:
    """ART: decoding reads the pot block by block, and no further once a head's output has converged.

    What is None comes from `ondevice calibrate` for the model at hand, or is the default of `model.termination`.

    Attributes:
        enabled: off, every slot is read for every token.
        tau: how far one more block may move the output of a head that has converged (Euclidean norm).
        phi: how far it may turn it (one minus the cosine).
        patience: blocks in a row for which both hold.
        is_relative: `tau` is a share of the output's own norm, not a number in its units as in the paper.
        traversal: behind the sinks the newest blocks first, and then the most important (`importance`) or the next
            newest (`recency`).
        block_size: slots of a block.
    """

    enabled: bool = False
    tau: float | None = None
    phi: float | None = None
    patience: int | None = None
    is_relative: bool = True
    traversal: Traversal = "importance"
    block_size: int = 128

    def __post_init__(self) -> None:
        one_of("--art-order", self.traversal, Traversal)
        require(self.tau is None or self.tau >= 0, f"--art-tau is {self.tau}", "Give 0 or more.")
        require(self.phi is None or self.phi >= 0, f"--art-phi is {self.phi}", "Give 0 or more.")
        require(self.patience is None or self.patience >= 1, f"--art-patience is {self.patience}", "Give at least 1.")
        require(
            16 <= self.block_size <= 1024 and self.block_size % 16 == 0,
            f"--art-block is {self.block_size}",
            "Give a multiple of 16 up to 1024.",
        )


@dataclass(frozen=True, slots=True)
class SpecConfig:
    """SpecPrefill (arXiv 2502.02789), and speculative decoding with the same small model.

    Attributes:
        keep: share of the document's tokens that the speculator lets through to the main model; 1: all of them.
        adaptive_keep: (low, high) bounds of a share that follows the scores of each stretch; None: `keep` exactly.
        model: the speculator, named as a model; empty: the main model's own first `layers`.
        layers: of the main model, where those are the speculator; 0: a quarter of them.
        score_layers: last layers of the speculator whose attention counts; 0: all of a model of its own, as in the
            paper, and the upper half of the main model's first layers, whose lower ones look at neighbours.
        num_lookahead: tokens that the speculator adds to the prompt and whose attention counts, too. None by default:
            what a model's first layers decode is no answer, and passages are lost by it (`ondevice eval speculator`).
        pool_size: neighbouring tokens whose scores are averaged before; odd, 1: none.
        chunk_size: tokens that are chosen or skipped together; with 1, and `pool_size` 1, scores are raw.
        novelty: where the novelty of a token behind a skipped one comes from: nowhere (`known`: the main model's loss
            where it is known), how rare its word is (`rarity`), or the loss of the speculator (`speculator`). In
            chunks few tokens are concerned, and it makes little difference: of two books the first loses least on
            one, the last on the other (docs/results/eval-recall.md).
        num_draft: tokens that the speculator drafts for each pass of the main model over an answer; 0: none.
        falls_back: an answer goes on without drafts once those are measured not to pay.
        num_restored: skipped tokens that a question has read after all, at most; 0: none.
    """

    keep: float = 1.0
    adaptive_keep: tuple[float, float] | None = None
    model: str = ""
    layers: int = 0
    score_layers: int = 0
    num_lookahead: int = 0
    pool_size: int = 5
    chunk_size: int = 16
    novelty: SpecNoveltyName = "known"
    num_draft: int = 0
    falls_back: bool = True
    num_restored: int = 0

    def __post_init__(self) -> None:
        one_of("--spec-novelty", self.novelty, SpecNoveltyName)
        require(0.0 < self.keep <= 1.0, f"--spec-keep is {self.keep}", "Give a share above 0, at most 1.")
        if self.adaptive_keep is not None:
            low, high = self.adaptive_keep
            require(0.0 < low <= high <= 1.0, f"--spec-adaptive is {low},{high}", "Give two rising shares, at most 1.")
        require(self.layers >= 0, f"--speculator-layers is {self.layers}", "Give a number of layers, or 0.")
        require(self.score_layers >= 0, f"--spec-score-layers is {self.score_layers}", "Give 0 or more layers.")
        require(self.num_lookahead >= 0, f"--spec-look-ahead is {self.num_lookahead}", "Give 0 or more tokens.")
        require(
            self.pool_size >= 1 and self.pool_size % 2 == 1,
            f"--spec-pool is {self.pool_size}",
            "Give an odd number of tokens.",
        )
        require(self.chunk_size >= 1, f"--spec-chunk is {self.chunk_size}", "Give at least 1 token.")
        require(self.num_draft >= 0, f"--draft is {self.num_draft}", "Give 0 or more tokens.")
        require(self.num_restored >= 0, f"--spec-restore is {self.num_restored}", "Give 0 or more tokens.")

    @property
    def skips(self) -> bool:
        """Whether tokens of the document may be kept from the main model."""
        return self.keep < 1.0 or self.adaptive_keep is not None

    @property
    def needs_speculator(self) -> bool:
        return self.skips or self.num_draft > 0
