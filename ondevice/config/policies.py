"""The table of policies: which tokens a document keeps in the pot, and which slots a long answer overwrites.

One row a policy. It says what the policy is called, what it needs and what it does; every caller asks the row, and none
compares names. A new policy is one class and one row, wherever they stand: the laboratory adds rows of its own. Nothing
here loads torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Observed = Literal["catalyst", "window", "last-token", "all", "repetition", "predicted", "queries", "nothing"]
NoveltyUse = Literal["nothing", "share", "everything"]
SlotShares = Literal["even", "by-head"]


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy for what a document keeps in the pot.

    Attributes:
        name: in settings.
        label: in tables of results.
        choice: in the form; empty: nobody is offered it, and it is a contender of the laboratory alone.
        kept: why a token is still here, on the map.
        scorer: its class, `module:name`; None where nothing is ever distilled.
        observes: queries whose attention its scores are made from: the catalyst's, those of a window at the end of
            a pass, those of the last token, all since the beginning, those of the text when it is repeated, those
            predicted from keys and values, those like the queries of the last pass, or none.
        novelty: what a token's cross-entropy decides: nothing, a share of the kept slots (`PotConfig.novelty`), or
            everything.
        keeps_per_head: heads of a layer keep different tokens; otherwise they share their layout, too.
        shares: how its slots are shared out where the settings leave that open and what it evicts is gone: those of
            others evenly, as published.
        scores_once: each token is scored by itself, and no pass is needed for it: a pot may be distilled often, and
            keep nearly all that it has room for.
        keeps_all: the pot has a slot for every token, and grows with the document, whose length must be known.
    """

    name: str
    label: str
    choice: str = ""
    kept: str = "kept"
    scorer: str | None = None
    observes: Observed = "nothing"
    novelty: NoveltyUse = "nothing"
    keeps_per_head: bool = False
    shares: SlotShares = "even"
    scores_once: bool = False
    keeps_all: bool = False

    @property
    def is_offered(self) -> bool:
        return bool(self.choice)

    @property
    def distills(self) -> bool:
        """True if a full pot gives up tokens for those that come."""
        return self.scorer is not None

    @property
    def may_share(self) -> tuple[SlotShares, ...]:
        """The ways to share out its slots: not by head if it looks at the heads of a layer together."""
        may_differ = self.distills and (self.keeps_per_head or self.observes == "nothing")
        return ("even", "by-head") if may_differ else ("even",)


@dataclass(frozen=True, slots=True)
class DecodePolicy:
    """The choice of slots that the tokens of a long answer overwrite.

    Attributes:
        name: in settings.
        eviction: its class, `module:name`.
        observes_question: the attention of the question decides.
    """

    name: str
    eviction: str
    observes_question: bool


POLICIES = {
    row.name: row
    for row in (
        Policy(
            "infinipot",
            label="InfiniPot",
            choice="Useful and new (InfiniPot)",
            kept="kept for the guiding prompt",
            scorer="ondevice.pot.policies:InfiniPot",
            observes="catalyst",
            novelty="share",
            keeps_per_head=True,
            shares="by-head",
        ),
        Policy(
            "full",
            label="full KV",
            choice="Everything; memory grows",
            keeps_all=True,
        ),
        Policy(
            "foresight",
            label="foresight",
            choice="What looks as if it will be looked at (KVzap)",
            kept="kept for looking useful",
            scorer="ondevice.pot.policies:ByMass",
            observes="predicted",
            scores_once=True,
            keeps_per_head=True,
            shares="by-head",
        ),
    )
}
DECODE_POLICIES = {
    row.name: row
    for row in (
        DecodePolicy("question", "ondevice.pot.eviction:FixedOrder", observes_question=True),
        DecodePolicy("streaming-llm", "ondevice.pot.eviction:SinkRecent", observes_question=False),
    )
}
