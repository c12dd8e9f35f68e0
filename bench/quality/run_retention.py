"""Policies by compression: what pots of several sizes still know of a text, and how fast it is read into them.

Two measures stand side by side. RULER's needles and chains of variables ask for a few exact tokens; recall continues
the text anywhere. Both are given as shares of what a full cache of the same tokens gets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ondevice.config import EngineConfig
from ondevice.documents import Document
from ondevice.errors import ConfigError
from ondevice.events import Event
from ondevice.session.engine import Engine
from ondevice_bench.quality.contenders import budget_of, chosen, config_of, text_bytes
from ondevice_bench.quality.measurement import Measurement, Note, Setup
from ondevice_bench.quality.pot_sizes import BYTES, SLOTS, size_rows
from ondevice_bench.quality.recall import Recall, recall_config, recall_spans
from ondevice_bench.quality.ruler_tasks import TASKS, Sources, read_sources
from ondevice_bench.quality.run_ruler import SCORE, run_ruler
from ondevice_bench.quality.trials import Trial, is_done, key_of, question_scores
from ondevice_bench.quality.trials import rows_of as rows_of_trials
from ondevice_bench.results.reading import NATS, RECALL
from ondevice_bench.results.result import Row, row

SECONDS, LOSS = "seconds of reading", "loss"
_FULL, _NONE = "full", "none"
_PUBLISHED, _SPEED = "infinipot-published", "reading_speed_vs_infinipot"
_WARM_UP = 768  # tokens read before the clock runs: kernels are compiled, and weights are in memory
_TASKS = tuple(name for name, task in TASKS.items() if task.needs in ("", "text") and name.startswith(("niah", "vt")))


@dataclass(frozen=True, slots=True)
class Recalled:
    """Recall of one contender with a pot of `num_bytes`, in whose place others have `budget` slots.

    Attributes:
        share: of what a full cache recalls.
        seconds: of reading.
        token_bytes: of a token of the text in bfloat16.
        losses: nats a token of every span by its first token, of the contender and of those that had none before.
    """

    contender: str
    budget: int
    num_tokens: int
    share: float
    seconds: float
    num_slots: int = 0
    num_bytes: int = 0
    token_bytes: int = 0
    losses: dict[str, dict[int, float]] = field(default_factory=dict)
    summary: dict[str, float] = field(default_factory=dict)

    @property
    def case(self) -> dict[str, Any]:
        return {"task": "recall", "budget": self.budget, "trial": f"{self.num_tokens} tokens"}

    def span_case(self, start: int) -> dict[str, Any]:
        """The case of the span at a token."""
        return self.case | {"trial": f"token {start}"}

    @property
    def line(self) -> str:
        return (
            f"recall of {self.num_tokens:,} tokens, {self.contender} with {self.num_slots:,} slots "
            f"({self.num_tokens / self.num_slots:.3g}:1 in tokens, "
            f"{self.num_tokens * self.token_bytes / self.num_bytes:.3g}:1 in bytes of a bfloat16 cache): "
            f"{self.share:.2f} of a full cache's, read in {self.seconds:.0f} s"
        )


Item = Trial | Recalled


def retention_summary(rows: Sequence[Row], length: int, first: str) -> dict[str, float]:
    """By compression, the shares of every contender: of a full cache's RULER scores and of its recall.

    Keys without a contender's name are those of the `first` one; `recall_pot_alone` is that of the largest pot, and
    `reading_speed_vs_infinipot` the mean over pots, beside InfiniPot as published.
    """
    scores = question_scores([one for one in rows if one.metric == SCORE])
    summary: dict[str, float] = {}
    for name, own in scores.items():
        for ratio, pairs in _by_ratio(own, scores.get(_FULL, {}), length).items():
            ours, full = np.mean(pairs, axis=0)
            if name != _FULL and full:
                summary |= _keys("ruler_share", ratio, name, first, float(ours / full))
    recalls = [one for one in rows if one.metric == RECALL]
    for one in recalls:
        summary |= _keys("recall", _ratio(length, one.case["budget"]), one.contender, first, one.p50)
    mine = {one.case["budget"]: one.p50 for one in recalls if one.contender == first}
    if mine:
        summary["recall_pot_alone"] = mine[max(mine)]
    return summary | _speeds(rows, first)


def _speeds(rows: Sequence[Row], first: str) -> dict[str, float]:
    seconds = {(one.contender, one.case["budget"]): one.p50 for one in rows if one.metric == SECONDS}
    speeds: dict[str, list[float]] = {}
    for (name, budget), own in seconds.items():
        if name != _PUBLISHED and (_PUBLISHED, budget) in seconds:
            speeds.setdefault(name, []).append(seconds[_PUBLISHED, budget] / own)
    summary = dict[str, float]()
    for name, ratios in speeds.items():
        summary |= _named(_SPEED, name, first, float(np.mean(ratios)))
    return summary


def _by_ratio(
    own: dict[tuple[Any, ...], float], full: dict[tuple[Any, ...], float], length: int
) -> dict[int, list[tuple[float, float]]]:
    """The scores of a contender and of the full cache, which has the same with every budget."""
    whole = {(task, trial): score for (task, _, trial), score in full.items()}
    pairs: dict[int, list[tuple[float, float]]] = {}
    for (task, budget, trial), score in own.items():
        if (task, trial) in whole:
            pairs.setdefault(_ratio(length, budget), []).append((score, whole[task, trial]))
    return pairs


def _ratio(length: int, budget: int) -> int:
    return round(length / budget)


def _keys(key: str, ratio: int, contender: str, first: str, value: float) -> dict[str, float]:
    return _named(f"{key}_{ratio}to1", contender, first, value)


def _named(key: str, contender: str, first: str, value: float) -> dict[str, float]:
    named = {f"{key}_{key_of(contender)}": value}
    return {key: value} | named if contender == first else named


def _recalls(
    setup: Setup, options: Any, names: Sequence[str], budgets: Sequence[int], rows: Sequence[Row]
) -> Iterator[Event | Recalled]:
    document, known, is_warm = setup.beginning(options.text, options.length), dict[int, tuple[float, float]](), False
    for budget in budgets:
        for name in names:
            done = Recalled(name, budget, options.length, 0.0, 0.0)
            if is_done(rows, name, done.case):
                continue
            if not is_warm:
                _warm_up(setup.engine, document)
                is_warm = True
            config = recall_config(config_of(setup.engine, name, setup.engine.config, budget))
            session = setup.engine.session(config)
            yield from session.open(document)  # what heads need is measured here, once for a model
            began = time.perf_counter()
            yield from session.resume()
            seconds, spans = time.perf_counter() - began, list[Recall]()
            for span in recall_spans(session, options.spans, known):
                setup.report("Recalling", (len(spans) + 1) / options.spans)
                spans.append(span)
            none, full, method = (
                float(np.mean([getattr(s, key) for s in spans])) for key in ("none", "full", "method")
            )
            share = (none - method) / (none - full) if none != full else 0.0
            losses = {name: {s.start: s.method for s in spans}}
            if not is_done(rows, _FULL, done.span_case(spans[0].start)):  # the same for all contenders
                losses |= {_FULL: {s.start: s.full for s in spans}, _NONE: {s.start: s.none for s in spans}}
            pot = session.context.pot
            yield replace(
                done,
                share=share,
                seconds=seconds,
                num_slots=pot.shape.mean_capacity,
                num_bytes=pot.nbytes,
                token_bytes=text_bytes(setup.engine),
                losses=losses,
            )


def _warm_up(engine: Engine, document: Document) -> None:
    text = "\n".join(page.text for page in document.pages)
    ids = engine.loaded.tokenizer.encode(text)[0][:_WARM_UP]
    engine.decoder.forward(engine.decoder.ids(ids), engine.decoder.new_pot(len(ids)))


def run_retention(
    setup: Setup, options: Any, sources: Sources, names: Sequence[str], budgets: Sequence[int]
) -> Iterator[Event | Note | Item]:
    """Recall first, then RULER, both from the same file where they are resumed."""
    rows = list(setup.earlier)

    def summary(all_rows: Sequence[Row]) -> dict[str, float]:
        return retention_summary(all_rows, options.length, names[0])

    for item in _recalls(setup, options, names, budgets, rows):
        if isinstance(item, Recalled):
            rows += rows_of([item])
            item = replace(item, summary=summary(rows))
        yield item
    sizes = [((_FULL,), budgets[:1]), (tuple(names), budgets)]  # a full cache is the same for all of them
    for contenders, their_budgets in sizes if options.rows else ():
        going_on = replace(setup, earlier=tuple(rows))
        for one in run_ruler(
            going_on, _TASKS, sources, options.length, options.rows, contenders, their_budgets, summary
        ):
            if isinstance(one, Trial):
                rows += rows_of([one])
            yield one


def rows_of(items: Sequence[Item], _: EngineConfig | None = None) -> list[Row]:
    """Rows for what a contender recalls, in all and span by span, with the size of its pot, and those of its trials."""
    rows = rows_of_trials([item for item in items if isinstance(item, Trial)])
    for item in items:
        if isinstance(item, Recalled):
            name, case = item.contender, item.case
            rows.append(row(name, case, RECALL, "share", [item.share]))
            rows.append(row(name, case, SECONDS, "s", [item.seconds]))
            rows.append(row(name, case, SLOTS, "slots", [item.num_slots]))
            rows.append(row(name, case, BYTES, "bytes", [item.num_bytes]))
            rows += size_rows(name, case, item.num_tokens, item.num_slots, item.num_bytes, item.token_bytes)
            for whose, losses in item.losses.items():
                rows += [row(whose, item.span_case(start), LOSS, NATS, [loss]) for start, loss in losses.items()]
    return rows


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    config = given()
    for name in chosen(options.policies):
        if name == _FULL:
            raise ConfigError("--policies full is measured anyway", fix="Leave it out.")
    if not options.ratios or min(options.ratios) < 1:
        raise ConfigError(f"--ratios is {options.ratios}", fix="Give whole numbers, such as 4,8.")
    for ratio in options.ratios:
        budget_of(config, options.length // ratio)
    return config


def _measure(setup: Setup, options: Any) -> Iterator[Event | Note | Item]:
    text = "\n".join(page.text for page in setup.open(options.text).pages)
    budgets = [options.length // ratio for ratio in options.ratios]
    yield from run_retention(setup, options, read_sources(text, None, None), chosen(options.policies), budgets)


MEASUREMENT = Measurement[Item](
    _measure,
    rows_of,
    lambda items: items[-1].summary,
    config=_config,
    line=lambda item: item.line,
    figures=lambda rows, options: retention_summary(rows, options.length, chosen(options.policies)[0]),
)
