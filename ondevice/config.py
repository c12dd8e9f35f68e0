"""All settings, frozen and checked when they are made.

Counts are tokens unless the name says otherwise. Nothing here touches a device or a file.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Literal, get_args

from ondevice.errors import ConfigError

CatalystKind = Literal["general", "general-v1", "general-v2", "question", "placeholder", "unrelated", "text"]
PolicyName = Literal[
    "infinipot", "full", "truncate", "streaming-llm", "snapkv", "pyramidkv", "tova", "sirllm", "random"
]
DecodePolicyName = Literal["question", "streaming-llm", "h2o"]
KeyRotation = Literal["stored", "half-cache", "on-read"]
DeviceName = Literal["auto", "cpu", "cuda"]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
SlimNoveltyName = Literal["survivors", "early-exit", "rarity"]
SpecNoveltyName = Literal["known", "rarity", "speculator"]
TierDtypeName = Literal["int8", "stored"]
Traversal = Literal["importance", "recency"]
Quantization = Literal["none", "8bit", "4bit"]

DEFAULT_MODEL = "smollm2"


def _one_of(option: str, value: str, choices: object) -> None:
    names = get_args(choices)
    if value not in names:
        raise ConfigError(f"{option} is {value!r}, which is not known", fix=f"Choose one of {', '.join(names)}.")


def _require(condition: bool, what: str, fix: str) -> None:
    if not condition:
        raise ConfigError(what, fix=fix)


@dataclass(frozen=True, slots=True)
class PotConfig:
    """The memory pot of InfiniPot (arXiv 2410.01518): its size, and how it chooses what to keep.

    Attributes:
        capacity: slots per layer and KV head, |M|; allocated once.
        num_kept: slots kept by a distillation, |C|.
        reserve: slots kept free for a question and its answer; also holds the catalyst while reading.
        policy: which rule scores the tokens; `infinipot` is the catalyst plus novelty. With `pyramidkv` layers keep
            different numbers of slots, `num_kept` on average.
        catalyst: prompt kind of the paper's Table 2; `text` takes `catalyst_text`.
        catalyst_text: own prompt for `text`; the question for `question`.
        novelty: alpha, the share of `num_kept` filled by novelty before the catalyst fills the rest.
        context_reset: CR-RoPE; off shows what breaks when positions run past the trained window.
        num_sink_tokens: first tokens that are never evicted.
        adaptive_keep: (low, high) bounds in tokens for a kept size that follows the score distribution;
            None keeps exactly `num_kept`.
        step_size: tokens per forward pass while reading.
        decode_policy: which slots the tokens of a long answer overwrite once the reserve is used up: those that
            `question` attends to least, the oldest behind the sinks (`streaming-llm`), or those that the answer
            itself has attended to least (`h2o`).
        key_rotation: what is kept so that keys need no RoPE at every step: the rotated keys (`stored`), EQUIP's
            rotated halves (`half-cache`), or nothing (`on-read`: a third less memory, slower).
    """

    capacity: int = 2048
    num_kept: int = 1024
    reserve: int = 256
    policy: PolicyName = "infinipot"
    catalyst: CatalystKind = "general"
    catalyst_text: str = ""
    novelty: float = 0.5
    context_reset: bool = True
    num_sink_tokens: int = 4
    adaptive_keep: tuple[int, int] | None = None
    step_size: int = 768
    decode_policy: DecodePolicyName = "question"
    key_rotation: KeyRotation = "stored"

    def __post_init__(self) -> None:
        _one_of("--policy", self.policy, PolicyName)
        _one_of("--catalyst", self.catalyst, CatalystKind)
        _one_of("--decode-policy", self.decode_policy, DecodePolicyName)
        _one_of("--key-rotation", self.key_rotation, KeyRotation)
        _require(self.capacity >= 16, f"--capacity is {self.capacity}", "Give at least 16 slots.")
        _require(
            self.num_sink_tokens < self.num_kept,
            f"--keep is {self.num_kept}, not more than the {self.num_sink_tokens} sink tokens",
            "Keep more tokens.",
        )
        _require(self.reserve >= 1, f"--reserve is {self.reserve}", "Reserve at least 1 slot.")
        _require(
            self.num_kept + self.reserve < self.capacity,
            f"--keep {self.num_kept} and --reserve {self.reserve} leave no room to read in --capacity {self.capacity}",
            "Raise --capacity, or lower --keep or --reserve.",
        )
        _require(0.0 <= self.novelty <= 1.0, f"--novelty is {self.novelty}", "Give a share between 0 and 1.")
        _require(self.step_size >= 1, f"--step is {self.step_size}", "Read at least 1 token per step.")
        _require(
            self.catalyst not in ("text", "question") or bool(self.catalyst_text.strip()),
            f"--catalyst {self.catalyst} has no text",
            "Give it with --catalyst-text.",
        )
        if self.adaptive_keep is not None:
            low, high = self.adaptive_keep
            _require(
                self.num_sink_tokens < low <= high and high + self.reserve < self.capacity,
                f"--adaptive-keep is {low},{high}",
                "Give two rising token counts that leave room to read in the pot.",
            )


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
        _one_of("--slim-novelty", self.novelty, SlimNoveltyName)
        _require(
            self.unit_size >= 1 and self.block_size >= 1 and self.block_size % self.unit_size == 0,
            f"--slim-block is {self.block_size} and --slim-unit {self.unit_size}",
            "Give a block that whole units fill.",
        )
        _require(self.window >= 1, f"--slim-window is {self.window}", "Give at least 1 query.")
        _require(0.0 <= self.rarity <= 1.0, f"--slim-rarity is {self.rarity}", "Give a share between 0 and 1.")

    def steps(self) -> tuple[SlimLayer, ...] | None:
        """The steps of the schedule; none when it is off, None for `auto`.

        Raises:
            ConfigError: it is written wrongly.
        """
        if self.schedule in ("off", "auto"):
            return None if self.schedule == "auto" else ()
        steps = [_slim_layer(part.strip()) for part in self.schedule.split(",")]
        layers = [step.layer for step in steps]
        _require(
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
    _require(
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
        _one_of("--host-dtype", self.dtype, TierDtypeName)
        _require(self.budget_bytes >= 0, f"--host-tier is {self.budget_bytes}", "Give a size, or 0 for none.")
        _require(self.max_tokens >= 1, f"--bring-back is {self.max_tokens}", "Give at least 1 token.")
        _require(0.0 < self.coverage <= 1.0, f"coverage is {self.coverage}", "Give a share above 0, at most 1.")
        _require(self.every >= 1, f"--look-every is {self.every}", "Give at least 1 token.")
        _require(0.0 <= self.gamma <= 1.0, f"--gamma is {self.gamma}", "Give a share between 0 and 1.")


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
        _one_of("--art-order", self.traversal, Traversal)
        _require(self.tau is None or self.tau >= 0, f"--art-tau is {self.tau}", "Give 0 or more.")
        _require(self.phi is None or self.phi >= 0, f"--art-phi is {self.phi}", "Give 0 or more.")
        _require(self.patience is None or self.patience >= 1, f"--art-patience is {self.patience}", "Give at least 1.")
        _require(
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
            chunks few tokens are concerned, and the first loses least (docs/results/eval-recall.md).
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
        _one_of("--spec-novelty", self.novelty, SpecNoveltyName)
        _require(0.0 < self.keep <= 1.0, f"--spec-keep is {self.keep}", "Give a share above 0, at most 1.")
        if self.adaptive_keep is not None:
            low, high = self.adaptive_keep
            _require(0.0 < low <= high <= 1.0, f"--spec-adaptive is {low},{high}", "Give two rising shares, at most 1.")
        _require(self.layers >= 0, f"--speculator-layers is {self.layers}", "Give a number of layers, or 0.")
        _require(self.score_layers >= 0, f"--spec-score-layers is {self.score_layers}", "Give 0 or more layers.")
        _require(self.num_lookahead >= 0, f"--spec-look-ahead is {self.num_lookahead}", "Give 0 or more tokens.")
        _require(
            self.pool_size >= 1 and self.pool_size % 2 == 1,
            f"--spec-pool is {self.pool_size}",
            "Give an odd number of tokens.",
        )
        _require(self.chunk_size >= 1, f"--spec-chunk is {self.chunk_size}", "Give at least 1 token.")
        _require(self.num_draft >= 0, f"--draft is {self.num_draft}", "Give 0 or more tokens.")
        _require(self.num_restored >= 0, f"--spec-restore is {self.num_restored}", "Give 0 or more tokens.")

    @property
    def skips(self) -> bool:
        """Whether tokens of the document may be kept from the main model."""
        return self.keep < 1.0 or self.adaptive_keep is not None

    @property
    def needs_speculator(self) -> bool:
        return self.skips or self.num_draft > 0


@dataclass(frozen=True, slots=True)
class GenerationConfig:
    """How an answer is sampled.

    Attributes:
        max_new_tokens: the answer stops after this many tokens.
        temperature: 0 is greedy.
        top_p: nucleus probability mass, used when `temperature` is above 0.
        chat: wrap document and question in the model's chat template, when it has one.
        num_sources: passages that are named for an answer, at most: where it looked. 0 looks for none.
    """

    max_new_tokens: int = 200
    temperature: float = 0.0
    top_p: float = 1.0
    chat: bool = True
    num_sources: int = 3

    def __post_init__(self) -> None:
        _require(self.num_sources >= 0, f"--sources is {self.num_sources}", "Give 0 or more.")
        _require(self.max_new_tokens >= 1, f"--max-new-tokens is {self.max_new_tokens}", "Give at least 1.")
        _require(self.temperature >= 0.0, f"--temperature is {self.temperature}", "Give 0 (greedy) or more.")
        _require(0.0 < self.top_p <= 1.0, f"--top-p is {self.top_p}", "Give a share above 0, at most 1.")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything that decides what the engine computes.

    Attributes:
        model: `smollm2` (the embedded default), a folder, a GGUF file, or a hub id.
        device: `auto` takes CUDA when there is one.
        dtype: `auto` takes bfloat16 on CUDA (float16 before Ampere) and float32 on a CPU.
        quantization: bitsandbytes 8- or 4-bit weights.
        seed: for sampling and for the `random` policy.
    """

    model: str = DEFAULT_MODEL
    device: DeviceName = "auto"
    dtype: DtypeName = "auto"
    quantization: Quantization = "none"
    seed: int = 0
    pot: PotConfig = field(default_factory=PotConfig)
    slim: SlimConfig = field(default_factory=SlimConfig)
    tier: TierConfig = field(default_factory=TierConfig)
    art: ArtConfig = field(default_factory=ArtConfig)
    spec: SpecConfig = field(default_factory=SpecConfig)
    generation: GenerationConfig = field(default_factory=GenerationConfig)

    def __post_init__(self) -> None:
        _one_of("--device", self.device, DeviceName)
        _one_of("--dtype", self.dtype, DtypeName)
        _one_of("--quantization", self.quantization, Quantization)
        _require(bool(self.model.strip()), "--model is empty", "Name a folder, a GGUF file or a hub id.")
        _require(
            not self.spec.skips or self.slim.schedule == "off" or self.slim.novelty != "early-exit",
            "--slim-novelty early-exit needs every token, and --spec-keep skips some",
            "Choose another --slim-novelty.",
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
