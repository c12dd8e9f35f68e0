"""Settings of the memory pot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from ondevice.config.policies import DECODE_POLICIES, POLICIES, DecodePolicy, Policy
from ondevice.config.preset import AS_SET, PRESETS
from ondevice.config.setting import SHARE, Check, Control, at_least, check_each, require, setting

CatalystKind = Literal["general", "question", "text"]
KeyRotation = Literal["stored", "half-cache", "on-read"]  # the last: of quantised pots
ContextReset = Literal["always", "late"]
KvDtype = Literal["model", "int8", "k8v4", "int4"]
KvChoice = Literal["auto", "model", "int8", "k8v4", "int4"]
SlotSharing = Literal["auto", "even", "by-head"]

CATALYSTS_WITH_WORDS: tuple[CatalystKind, ...] = ("question", "text")  # those that take `catalyst_text`
PROMPTS: dict[CatalystKind, str] = {  # of InfiniPot's catalysts: the wordings of its Table 2
    "general": "Summarize the critical points highlighted in this section.",
    "question": "Considering the following question, summarize the critical points highlighted in this section. "
    "Question: {text}",
    "text": "{text}",
}

_CPU_PASS, _GPU_PASS = 768, 2048  # tokens
_USUAL_CAPACITY = 4096


def _usual_kept(capacity: int, reserve: int, method: Policy) -> int:
    """Half of the pot, or of a small one as much as leaves room to read; nearly all where distilling takes no pass."""
    free = capacity - reserve
    return max(free * 7 // 8 if method.scores_once else min(capacity // 2, free * 2 // 3), 1)


@dataclass(frozen=True, slots=True)
class PotConfig:
    """The memory pot of InfiniPot (arXiv 2410.01518): its size, and how it chooses what to keep. Counts are tokens."""

    panel: ClassVar = "Pot"

    # fmt: off
    capacity: int = setting(  # |M|; allocated once
        0, "Slots per layer and head; auto: all of the text while {engine.memory} holds it, else 4096, with "
        "4 bits as many as take the same bytes in full precision, or fewer.", option="--capacity",
        zero="auto", api="capacity", label="Slots in the pot",
        form=Control(1, "Tokens a layer. Default {default}: as many as the text needs while it fits. Each takes "
                        "{slot_size}. 0 is auto.", low=0),
        check=Check(lambda slots: slots == 0 or slots >= 16, "Give at least 16 slots, or 0 for auto."))
    num_kept: int = setting(  # |C|
        0, "Slots kept when a full pot is distilled; auto: half of the pot, with foresight nearly all of it.",
        option="--keep", zero="auto", api="num_kept", label="Kept when full", check=at_least(0, "slots"),
        form=Control(2, "Tokens that survive when the pot is full. Default {default}; auto is half of the pot. "
                        "Fewer means longer steps between two selections. 0 is auto.", low=0))
    reserve: int = setting(  # also holds the catalyst while reading
        256, "Slots left free for a question and its answer.", option="--reserve", api="reserve",
        label="Reserve for questions", check=at_least(1, "slot"),
        form=Control(22, "Slots left free for a question and its answer. Default {default}. A longer answer borrows "
                        "slots of the document, which are restored.", low=1))
    preset: str = setting(  # what it says is in the others once it was chosen: see `with_choices`
        AS_SET, "Several settings in one word: fast, balanced or thorough, from fast reading to the most that is still "
        "known; paper-infinipot, -equip, -sliminfer, -art or -specprefill.", option="--preset", metavar="NAME",
        api="preset", answers=True, among=PRESETS, label="How carefully to keep",
        form=Control(21, "Fast reads quickest, thorough knows most afterwards in the same memory. Default: {default}. "
                         "All but the default choose what to keep, and how exactly, for you. Takes effect at the next "
                         "reading.",
                     choices=tuple((row.choice, row.name) for row in PRESETS.values() if row.choice)))
    policy: str = setting(
        "infinipot", "Which rule chooses what stays.", option="--policy", api="policy", label="What to keep",
        among=POLICIES, form=Control(4, "The rule that chooses. Default: {default}.", choices=tuple(
            (row.choice, row.name) for row in sorted(POLICIES.values(), key=lambda row: not row.distills))))
    catalyst: CatalystKind = setting(  # prompt kinds of the paper's Table 2
        "general", "What is asked of the text before it is distilled.", option="--catalyst", api="catalyst",
        label="Guiding prompt",
        form=Control(5, "What the model has in mind when it chooses. Default: {default}.", choices=(
            ("Summarise", "general"), ("Answer my question", "question"), ("My own words", "text"))))
    catalyst_text: str = setting(
        "", "The words for {pot.catalyst} question or text.", option="--catalyst-text", api="catalyst_text",
        label="Own words for the guiding prompt",
        form=Control(6, "Your question, or what to watch for. Changes take effect at the next reading."))
    novelty: float = setting(  # alpha: novelty fills this share first, the catalyst fills the rest
        0.5, "Share of the kept slots that go to the most surprising tokens.", option="--novelty", api="novelty",
        label="Share kept for being new", check=SHARE,
        form=Control(3, "Share of what is kept, 0 to 1. Default {default}. "
                        "The rest is kept for being useful to the guiding prompt.", slider=(0, 1, 0.05)))
    slot_shares: SlotSharing = setting(  # what heads need is measured once for a model, on a text of our own
        "auto", "How the slots of a pot that is too small for the text are shared out: evenly, or by what each head "
        "needs; auto: by head where there is no host tier.",
        option="--slot-shares", api="slot_shares")
    context_reset: ContextReset = setting(  # CR-RoPE; late recalls more and finds fewer keys
        "always", "When positions are numbered from 0 again after a distillation: always; late, where they would run "
        "past the window that the model was trained on.", option="--context-reset")
    num_sink_tokens: int = setting(4, "First tokens that are never evicted.", check=at_least(0, "tokens"))
    step_size: int = setting(  # a GPU is idle between passes, the caches of a CPU are small
        0, "Tokens per forward pass while reading; 0: 768, on a GPU 2,048.", option="--step", api="step_size",
        check=at_least(0, "tokens"))
    decode_policy: str = setting(
        "question", "What an answer overwrites once the reserve is used up.", answers=True, among=DECODE_POLICIES)
    kv_dtype: KvChoice = setting(  # quantised, nothing is kept beside: keys are rotated as they are read
        "auto", "Type of keys and values: that of the model, or quantised to 8 bits, which take a fifth to a half of "
        "the bytes; to 4 bits, of which half as many again fit; or k8v4: keys of 8 bits, which decide what is found, "
        "and values of 4; auto: 8 bits on a CPU, where neither all is kept nor attention ends early.",
        option="--kv-dtype", api="kv_dtype", label="Type of keys and values",
        form=Control(20, "How exactly keys and values are kept. Default: {default}: 8 bits on a CPU. They take a fifth "
                         "to a half of the memory of full precision; 4 bits take less, and are less exact. "
                         "Takes effect at the next reading.",
                     choices=(("Automatic", "auto"), ("Full precision", "model"), ("8 bits", "int8"),
                              ("Keys 8 bits, values 4", "k8v4"), ("4 bits", "int4"))))
    key_rotation: Literal["stored", "half-cache"] = setting(  # rotated, or EQUIP's rotated halves
        "stored", "What is kept so that keys need no rotation at every step.", answers=True)
    # fmt: on

    def __post_init__(self) -> None:
        check_each(self)
        if self.capacity and not self.num_kept:
            object.__setattr__(self, "num_kept", _usual_kept(self.capacity, self.reserve, self.method))
        kept = self.num_kept or None
        require(
            kept is None or self.num_sink_tokens < kept,
            f"{{pot.num_kept}} is {kept}, not more than the {self.num_sink_tokens} sink tokens",
            "Keep more tokens.",
        )
        require(
            self.is_auto or self.num_kept + self.reserve < self.capacity,
            f"{{pot.num_kept}} {self.num_kept} and {{pot.reserve}} {self.reserve} leave no room to read "
            f"in {{pot.capacity}} {self.capacity}",
            "Raise {pot.capacity}, or lower {pot.num_kept} or {pot.reserve}.",
        )
        require(
            self.catalyst not in CATALYSTS_WITH_WORDS or bool(self.catalyst_text.strip()),
            f"{{pot.catalyst}} {self.catalyst} needs words of yours",
            "Give them with {pot.catalyst_text}.",
        )
        require(
            self.slot_shares == "auto" or self.slot_shares in self.method.may_share,
            f"{{pot.slot_shares}} is {self.slot_shares}, which does not go with {{pot.policy}} {self.policy}",
            f"Choose {' or '.join(('auto', *self.method.may_share))}, or another policy.",
        )

    @property
    def is_auto(self) -> bool:
        """True if the text decides how many slots there are; see `sized`."""
        return self.capacity == 0

    @property
    def usual_capacity(self) -> int:
        """Slots of a pot that a text does not fit into, where the settings leave that open."""
        return max(_USUAL_CAPACITY, 2 * self.num_kept + self.reserve)

    def sized(self, capacity: int, *, fits: bool = False) -> PotConfig:
        """The same with this many slots.

        Args:
            fits: the whole text has room in them: nothing will be evicted, and no token needs a novelty score.

        Raises:
            ConfigError: they leave no room to read.
        """
        if not fits:
            return replace(self, capacity=capacity)
        num_kept = min(self.num_kept or capacity, _usual_kept(capacity, self.reserve, self.method))
        return replace(self, capacity=capacity, num_kept=num_kept, novelty=0.0)

    def pass_size(self, device: str) -> int:
        """Tokens per forward pass on a kind of device, "cpu" or "cuda"."""
        return self.step_size or (_GPU_PASS if device == "cuda" else _CPU_PASS)

    @property
    def room(self) -> int:
        """Slots that a distillation leaves free, the reserve among them."""
        return self.capacity - self.num_kept

    @property
    def method(self) -> Policy:
        """The row of the policy."""
        return POLICIES[self.policy]

    @property
    def catalyst_prompt(self) -> str:
        """The text appended after the pot for one look, with the user's own text or question filled in."""
        return "\n\n" + PROMPTS[self.catalyst].replace("{text}", self.catalyst_text.strip())

    @property
    def decode_method(self) -> DecodePolicy:
        """The row of the policy for long answers."""
        return DECODE_POLICIES[self.decode_policy]

    @property
    def needs_novelty(self) -> bool:
        """True if tokens are scored by their cross-entropy while they are read."""
        return self.method.novelty == "everything" or (self.method.novelty == "share" and self.novelty > 0)
