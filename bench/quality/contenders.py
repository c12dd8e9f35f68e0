"""Who answers: the engine in several settings, and what a user would do instead of reading all of a text.

All but the default settings and the full cache hold the same number of tokens, document, question and answer together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import ondevice_bench.quality.policies  # noqa: F401  # contenders that are no policies of the product
from ondevice.config import (
    ArtConfig,
    EngineConfig,
    KvDtype,
    PotConfig,
    SlimConfig,
    SpecConfig,
    TierConfig,
    with_choices,
)
from ondevice.config.policies import POLICIES
from ondevice.documents import Document, Page
from ondevice.documents.tokens import Encode
from ondevice.errors import ConfigError
from ondevice.machine.memory import free_memory_bytes, usable_bytes
from ondevice.model.loading.progress import Progress
from ondevice.search.bm25 import BM25
from ondevice.search.passages import Bounds, Passages
from ondevice.session.engine import Engine
from ondevice_bench.quality.fusion import fused
from ondevice_bench.quality.minilm import load_minilm
from ondevice_bench.quality.pot_sizes import bfloat16_bytes
from ondevice_bench.quality.scores import holds

InBytesOf = Literal["pot", "bfloat16"]

TIER_BYTES = 1_000_000_000  # of host memory, where the settings name none
GAP = "\n\n"  # between passages that are no neighbours
_NOTHING = "\n"  # in place of a document


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to answer.

    Attributes:
        label: in tables and pictures.
        config: its settings, from those given and the number of slots.
        reads: the whole text, both ends of it, the passages that a retriever finds for each question, nothing, or
            nothing yet: the text is there to be searched; the text afresh is read by a session for each question.
        is_full: it takes a slot for every token, whatever that comes to.
        in_bytes_of: the budget is that of a pot as this, and it has as many slots as take the same bytes.
        asks_first: it reads for one question, the catalyst, as papers do whose prompts end with it.
    """

    label: str
    config: Callable[[EngineConfig, int], EngineConfig]
    reads: str = "text"
    is_full: bool = False
    in_bytes_of: InBytesOf | None = None
    asks_first: bool = False


def _pot(config: EngineConfig, budget: int, tier_bytes: int) -> EngineConfig:
    config = _with_size(config, budget)
    pot = config.pot if config.pot.method.distills else replace(config.pot, policy=PotConfig().policy)
    if budget != pot.capacity:
        num_kept = _kept(round(pot.num_kept * budget / pot.capacity), budget, pot)
        pot = replace(pot, capacity=budget, num_kept=num_kept)
    return replace(_from_pot(config), pot=pot, tier=replace(config.tier, budget_bytes=tier_bytes))


def _from_pot(config: EngineConfig) -> EngineConfig:
    """The settings without passages that a search finds."""
    return replace(config, generation=replace(config.generation, num_passage_tokens=0))


def _kept(wanted: int, budget: int, pot: PotConfig) -> int:
    """As many as wanted, if that leaves a third of what is not reserved to read into."""
    return max(min(wanted, (budget - pot.reserve) * 2 // 3), pot.num_sink_tokens + 1)


def _with_size(config: EngineConfig, budget: int) -> EngineConfig:
    """The settings with a pot of the budget's size, where they leave it open."""
    return replace(config, pot=config.pot.sized(budget)) if config.pot.is_auto else config


def _plain(config: EngineConfig, budget: int, policy: str) -> EngineConfig:
    """Plain attention over what is read, with nothing evicted, pruned or skipped."""
    config = _with_size(config, budget)
    kept = _kept(config.pot.num_kept, budget, config.pot)
    pot = replace(config.pot, policy=policy, slot_shares="auto", capacity=budget, num_kept=kept)
    tier = TierConfig(budget_bytes=0)
    config = _from_pot(config)
    return replace(config, pot=pot, slim=SlimConfig(), tier=tier, art=ArtConfig(), spec=SpecConfig())


def _of_policy(name: str) -> Contender:
    """A pot of the budget alone, which another policy distils."""

    def config(given: EngineConfig, budget: int) -> EngineConfig:
        shares = given.pot.slot_shares if given.pot.slot_shares in POLICIES[name].may_share else "auto"
        return _pot(replace(given, pot=replace(given.pot, policy=name, slot_shares=shares)), budget, 0)

    return Contender(POLICIES[name].label, config)


def _coded(kv_dtype: KvDtype, policy: str = "") -> Callable[[EngineConfig, int], EngineConfig]:
    """A quantised pot alone, distilled as the settings say, or by another policy."""

    def config(given: EngineConfig, budget: int) -> EngineConfig:
        changed = replace(given, pot=replace(given.pot, kv_dtype=kv_dtype))
        return CONTENDERS[policy].config(changed, budget) if policy else _pot(changed, budget, 0)

    return config


def _as_published(given: EngineConfig, budget: int) -> EngineConfig:
    """InfiniPot with as many slots in every head, and positions numbered again at every distillation."""
    return _pot(with_choices(given, {"pot.preset": "paper-infinipot", "pot.catalyst": "general"}), budget, 0)


def _of_paper(label: str, preset: str, keep: float = 1.0) -> Contender:
    """A full cache of what a paper's method reads of the text; `keep`: the share that its speculator lets through."""

    def config(given: EngineConfig, budget: int) -> EngineConfig:
        config = with_choices(_plain(given, budget, "full"), {"pot.preset": preset})
        return replace(config, spec=replace(config.spec, keep=keep, model=given.spec.model if keep < 1 else ""))

    return Contender(label, config, is_full=True, asks_first=True)


def _ablation(label: str, **changes: Any) -> Contender:
    """InfiniPot as published, but for its wording (Table 2 of arXiv 2410.01518) or its share of novelty (Table 3)."""

    def config(given: EngineConfig, budget: int) -> EngineConfig:
        published = _as_published(given, budget)
        return replace(published, pot=replace(published.pot, **changes))

    return Contender(label, config)


_WORDINGS = {
    "general-v1": "Summarize this section.",
    "general-v2": "Highlight the critical points from this section.",
    "unrelated": "The sky is blue. The sun is yellow. Here we go. There and back again.",
}
_ALPHAS = (0.0, 0.25, 0.75, 1.0)
_KEPT = (10, 30, 50)  # per cent that SpecPrefill keeps in its Table 1


CONTENDERS: dict[str, Contender] = {
    "default": Contender("settings as given", lambda config, _: config),
    "now": Contender("settings as given, before reading", lambda config, _: config, reads="nothing yet"),
    "afresh": Contender("settings as given, each question alone", lambda config, _: config, reads="text afresh"),
    "pot": Contender("pot alone", lambda config, budget: _pot(config, budget, 0)),
    "pot+tier": Contender(
        "pot and host tier", lambda config, budget: _pot(config, budget, config.tier.budget_bytes or TIER_BYTES)
    ),
    "full": Contender("full KV", lambda config, budget: _plain(config, budget, "full"), is_full=True),
    "truncation": Contender("truncation", lambda config, budget: _plain(config, budget, "full"), reads="ends"),
    "bm25": Contender("BM25 passages", lambda config, budget: _plain(config, budget, "full"), reads="bm25"),
    "minilm": Contender("MiniLM passages", lambda config, budget: _plain(config, budget, "full"), reads="minilm"),
    "infinipot-published": Contender("InfiniPot as published", _as_published),
    "pot-int8": Contender("pot alone in 8 bits, same bytes", _coded("int8"), in_bytes_of="pot"),
    "pot-int8-bf16": Contender(
        "pot alone in 8 bits, bytes of a bfloat16 cache", _coded("int8"), in_bytes_of="bfloat16"
    ),
    "pot-int4": Contender("pot alone in 4 bits, same bytes", _coded("int4"), in_bytes_of="pot"),
    "pot-int4-bf16": Contender(
        "pot alone in 4 bits, bytes of a bfloat16 cache", _coded("int4"), in_bytes_of="bfloat16"
    ),
    "foresight-int8": Contender("foresight in 8 bits, same bytes", _coded("int8", "foresight"), in_bytes_of="pot"),
    "foresight-int4": Contender("foresight in 4 bits, same bytes", _coded("int4", "foresight"), in_bytes_of="pot"),
    "pot-k8v4": Contender("pot alone, keys in 8 bits, values in 4, same bytes", _coded("k8v4"), in_bytes_of="pot"),
    "foresight-k8v4": Contender(
        "foresight, keys in 8 bits, values in 4, same bytes", _coded("k8v4", "foresight"), in_bytes_of="pot"
    ),
    "fused": Contender("BM25 and MiniLM, fused", lambda config, budget: _plain(config, budget, "full"), reads="fused"),
    "oracle": Contender(
        "the right passage alone", lambda config, budget: _plain(config, budget, "full"), reads="oracle"
    ),
    "oracle+": Contender(
        "the right passage among others", lambda config, budget: _plain(config, budget, "full"), reads="oracle+"
    ),
    "none": Contender("no document", lambda config, budget: _plain(config, budget, "full"), reads="nothing"),
    "paper-sliminfer": _of_paper("SlimInfer", "paper-sliminfer"),
    "paper-art": _of_paper("ART", "paper-art"),
    **{
        f"paper-specprefill-{keep}": _of_paper(f"SpecPrefill {keep} %", "paper-specprefill", keep / 100)
        for keep in _KEPT
    },
    **{
        f"published-{kind}": _ablation(f"InfiniPot, wording {kind}", catalyst="text", catalyst_text=text)
        for kind, text in _WORDINGS.items()
    },
    **{f"published-alpha-{alpha:g}": _ablation(f"InfiniPot, alpha {alpha:g}", novelty=alpha) for alpha in _ALPHAS},
} | {name: _of_policy(name) for name, policy in POLICIES.items() if policy.distills}
USUAL = ("default", "pot", "pot+tier", "full", "truncation", "bm25", "minilm", "fused", "none")


def chosen(names: str) -> tuple[str, ...]:
    """The contenders in a text such as `default,bm25`; of an empty one all but the policies.

    Raises:
        ConfigError: one of them is none.
    """
    found = tuple(name.strip() for name in names.split(",")) if names.strip() else USUAL
    for name in found:
        if name not in CONTENDERS:
            raise ConfigError(f"--contenders holds {name!r}", fix=f"Choose among {', '.join(CONTENDERS)}.")
    return tuple(dict.fromkeys(found))


def config_of(engine: Engine, name: str, given: EngineConfig, budget: int) -> EngineConfig:
    """The settings of a contender with a budget of slots: as many as the others have, or as take the same bytes."""
    contender = CONTENDERS[name]
    config = contender.config(given, budget)
    if contender.in_bytes_of is None:
        return config
    kv_dtype = config.pot.kv_dtype
    assert kv_dtype != "auto", "a budget of bytes is that of a type"
    own = engine.decoder.slot_bytes(config.pot.key_rotation, kv_dtype)
    return contender.config(given, budget * _slot_bytes(engine, given, contender.in_bytes_of) // own)


def _slot_bytes(engine: Engine, given: EngineConfig, of: InBytesOf) -> int:
    if of == "pot":  # as this engine has it where nothing else is said
        return engine.decoder.slot_bytes(given.pot.key_rotation)
    return text_bytes(engine)


def text_bytes(engine: Engine) -> int:
    """Bytes that a token of a text takes in a bfloat16 cache."""
    parts = engine.decoder.parts
    return bfloat16_bytes(len(parts.layers), parts.num_kv_heads, parts.head_dim)


def budget_of(config: EngineConfig, given: int | None) -> int:
    """Slots of each contender: those asked for, or else those of the settings.

    Raises:
        ConfigError: they leave no room to read.
    """
    budget = given or config.pot.capacity or config.pot.usual_capacity
    if budget <= config.pot.reserve + config.pot.num_sink_tokens + 1:
        raise ConfigError(
            f"--budget is {budget}, and {config.pot.reserve} of them are the reserve for question and answer",
            fix="Give more, or lower --reserve.",
        )
    return budget


def with_room(config: EngineConfig, new_tokens: int) -> EngineConfig:
    """The settings with a reserve for so many tokens more, so that an answer overwrites nothing of a full cache."""
    reserve = config.pot.reserve + new_tokens
    capacity = max(config.pot.capacity, config.pot.num_kept + reserve + 1)
    return replace(config, pot=replace(config.pot, capacity=capacity, reserve=reserve))


def fits_whole(engine: Engine, config: EngineConfig, num_tokens: int) -> bool:
    """True if a full cache of that many tokens suits the model's window and the memory that is free."""
    plan = engine.plan(config)
    assert plan.config.pot.method.keeps_all
    num_positions = len(plan.chat.prefix) + num_tokens + config.pot.reserve
    free = usable_bytes(free_memory_bytes(engine.loaded.device))
    return num_positions <= engine.loaded.max_positions and plan.pot_bytes(num_tokens) <= free


def room_for_text(engine: Engine, config: EngineConfig) -> int:
    """Tokens of a text that a budget leaves beside the model's prompt and the reserve."""
    return max(config.pot.capacity - config.pot.reserve - len(engine.plan(config).chat.prefix), 1)


class Retriever:
    """Finds the passages of one text that fit a question, each kind by scores of its own.

    Args:
        kind: `bm25`, `minilm`, or `fused`: both ranks; `oracle`: the passage that holds the answer, or
            `oracle+`: and beside it what BM25 finds.
        text: to be cut.
        encode: text -> ids (n,), character spans (n, 2).

    Attributes:
        texts: of each passage.
    """

    def __init__(self, kind: str, text: str, encode: Encode, on_progress: Progress) -> None:
        self._text, self._encode, (_, self._spans) = text, encode, encode(text)
        self._passages = Passages(text, self._spans)
        self.texts = [self._joined([bounds]) for bounds in self._passages.bounds]
        self._oracle = kind if kind.startswith("oracle") else ""
        self._scores = _scorer("bm25" if self._oracle else kind, self.texts, on_progress)

    def find(self, question: str, max_tokens: int, references: Sequence[str] = ()) -> str:
        """The best passages within a budget, in document order.

        Args:
            references: right answers. An oracle's passage is the best of those that hold one; "": none does.
        """
        scores = self._scores(question)
        if self._oracle:
            right = [any(holds(text, reference) for reference in references) for text in self.texts]
            if not any(right):
                return ""
            best = int(np.argmax(np.where(right, scores, -1.0)))
            if self._oracle == "oracle":
                return self.texts[best]
            scores[best] = np.inf
        return self._within(scores, max_tokens)

    def _within(self, scores: npt.NDArray[np.float64], max_tokens: int) -> str:
        """The passages with the highest of these scores within a budget, in document order."""

        def fits(found: Bounds) -> bool:  # what is joined may have some more tokens than its parts
            return len(self._encode(self._joined(found))[0]) <= max_tokens

        return self._joined(self._passages.best(scores, max_tokens, len(self._encode(GAP)[0]), fits))

    def _joined(self, bounds: Bounds) -> str:
        return GAP.join(self._text[self._spans[start, 0] : self._spans[stop - 1, 1]].strip() for start, stop in bounds)


def _scorer(kind: str, texts: Sequence[str], on_progress: Progress) -> Callable[[str], npt.NDArray[np.float64]]:
    if kind == "bm25":
        return BM25(texts).scores
    encoder = load_minilm(on_progress)
    vectors = encoder.encode(texts)

    def closeness(question: str) -> npt.NDArray[np.float64]:
        return (vectors @ encoder.encode([question])[0]).astype(np.float64)

    if kind == "minilm":
        return closeness
    words = BM25(texts).scores
    return lambda question: fused([words(question), closeness(question)])


def both_ends(text: str, num_tokens: int, encode: Encode) -> str:
    """The first and the last tokens of a text, so many together; all of a text that is no longer."""
    spans, half = encode(text)[1], max(num_tokens // 2, 1)
    return text if len(spans) <= 2 * half else text[: spans[half - 1, 1]] + text[spans[-half, 0] :]


def text_document(name: str, parts: Sequence[str]) -> Document:
    """A text as a document of one page."""
    text = "".join(parts) or _NOTHING
    return Document(name, "txt", "part", (Page(1, text),), num_pages=1, size_bytes=len(text))
