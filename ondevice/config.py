"""All settings, frozen and checked when they are made; those of the methods beside the pot are in `method_config`.

Counts are tokens unless the name says otherwise. Nothing here touches a device or a file.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ondevice.checks import one_of, require
from ondevice.method_config import ArtConfig, SlimConfig, SpecConfig, TierConfig

CatalystKind = Literal["general", "general-v1", "general-v2", "question", "placeholder", "unrelated", "text"]
PolicyName = Literal[
    "infinipot", "full", "truncate", "streaming-llm", "snapkv", "pyramidkv", "tova", "sirllm", "random"
]
DecodePolicyName = Literal["question", "streaming-llm", "h2o"]
KeyRotation = Literal["stored", "half-cache", "on-read"]
DeviceName = Literal["auto", "cpu", "cuda"]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
Quantization = Literal["none", "8bit", "4bit"]

DEFAULT_MODEL = "smollm2"


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
        one_of("--policy", self.policy, PolicyName)
        one_of("--catalyst", self.catalyst, CatalystKind)
        one_of("--decode-policy", self.decode_policy, DecodePolicyName)
        one_of("--key-rotation", self.key_rotation, KeyRotation)
        require(self.capacity >= 16, f"--capacity is {self.capacity}", "Give at least 16 slots.")
        require(
            self.num_sink_tokens < self.num_kept,
            f"--keep is {self.num_kept}, not more than the {self.num_sink_tokens} sink tokens",
            "Keep more tokens.",
        )
        require(self.reserve >= 1, f"--reserve is {self.reserve}", "Reserve at least 1 slot.")
        require(
            self.num_kept + self.reserve < self.capacity,
            f"--keep {self.num_kept} and --reserve {self.reserve} leave no room to read in --capacity {self.capacity}",
            "Raise --capacity, or lower --keep or --reserve.",
        )
        require(0.0 <= self.novelty <= 1.0, f"--novelty is {self.novelty}", "Give a share between 0 and 1.")
        require(self.step_size >= 1, f"--step is {self.step_size}", "Read at least 1 token per step.")
        require(
            self.catalyst not in ("text", "question") or bool(self.catalyst_text.strip()),
            f"--catalyst {self.catalyst} has no text",
            "Give it with --catalyst-text.",
        )
        if self.adaptive_keep is not None:
            low, high = self.adaptive_keep
            require(
                self.num_sink_tokens < low <= high and high + self.reserve < self.capacity,
                f"--adaptive-keep is {low},{high}",
                "Give two rising token counts that leave room to read in the pot.",
            )


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
        require(self.num_sources >= 0, f"--sources is {self.num_sources}", "Give 0 or more.")
        require(self.max_new_tokens >= 1, f"--max-new-tokens is {self.max_new_tokens}", "Give at least 1.")
        require(self.temperature >= 0.0, f"--temperature is {self.temperature}", "Give 0 (greedy) or more.")
        require(0.0 < self.top_p <= 1.0, f"--top-p is {self.top_p}", "Give a share above 0, at most 1.")


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
        one_of("--device", self.device, DeviceName)
        one_of("--dtype", self.dtype, DtypeName)
        one_of("--quantization", self.quantization, Quantization)
        require(bool(self.model.strip()), "--model is empty", "Name a folder, a GGUF file or a hub id.")
        require(
            not self.spec.skips or self.slim.schedule == "off" or self.slim.novelty != "early-exit",
            "--slim-novelty early-exit needs every token, and --spec-keep skips some",
            "Choose another --slim-novelty.",
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
