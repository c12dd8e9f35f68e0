"""The contenders of `bench peers` and the figures that they come to: rows for each, and ratios to ours.

llama.cpp takes part with every package that is found and both settings of flash attention; the better one counts for
each ratio. Ratios are medians over the rounds, each of two runs of the same round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ondevice.config import EngineConfig
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.llama_cpp import Variant
from ondevice_bench.speed.peer_work import KVPRESS, LLAMA_CPP, OURS, TRANSFORMERS, Figures

Runs = dict[tuple[str, int], list[Figures]]  # by label and tokens of the text, one a round
_Value = Callable[[Figures], float | None]
_FEWEST = 16  # tokens of an answer that has a speed
_PEERS = {LLAMA_CPP: "llama_cpp", TRANSFORMERS: "transformers", KVPRESS: "kvpress"}


class Contender(NamedTuple):
    """A name of `peer_work`, its settings, and the variant where it is llama.cpp."""

    name: str
    config: EngineConfig
    variant: Variant | None = None

    @property
    def shifts(self) -> bool:
        """True where it drops the oldest tokens of a small cache."""
        return self.variant is not None and self.variant.shifts

    def does_as_another(self, num_tokens: int) -> bool:
        """True where a text fits into its small cache, so that it is neither shifted nor cut."""
        return (self.shifts or self.name == KVPRESS) and num_tokens <= self.config.pot.usual_capacity

    def too_long(self, window: int, num_positions: int) -> str:
        """The reason why it cannot take so many positions; "" where it can."""
        is_long = num_positions > window and self.name != OURS and not self.shifts
        return f"the model's window has {window:,}." if is_long else ""


def rows_of(runs: Runs) -> list[Row]:
    """All figures of all contenders; no decoding speed where answers are too short for one."""
    rows = []
    for (label, length), figures in runs.items():
        columns: list[tuple[str, str, Sequence[float | None]]] = [
            ("loading", "s", [one.load_seconds for one in figures]),
            ("reading speed", "tokens/s", [length / one.reading_seconds for one in figures]),
            ("first token", "s", [one.answers[0].first_seconds for one in figures]),
            ("first token of the second answer", "s", [one.answers[1].first_seconds for one in figures]),
            ("tokens of an answer", "", [answer.num_tokens for one in figures for answer in one.answers]),
            ("decoding speed", "tokens/s", [each and 1 / each for each in map(_seconds_per_token, figures)]),
            ("peak memory", "bytes", [one.peak_bytes for one in figures]),
            ("cache", "bytes", [one.cache_bytes for one in figures]),
        ]
        for metric, unit, values in columns:
            if known := [value for value in values if value is not None]:
                rows.append(row(label, {"tokens": length}, metric, unit, known))
    return rows


def _seconds_per_token(figures: Figures) -> float | None:
    """Of the tokens after the first, in all answers that are long enough to have a speed."""
    answers = [answer for answer in figures.answers if answer.num_tokens >= _FEWEST]
    if not answers:
        return None
    return max(sum(answer.seconds for answer in answers), 1e-9) / sum(answer.num_tokens - 1 for answer in answers)


# Figures that are better where they are less, and the power of theirs by ours that makes the ratio.
_RATIOS: dict[str, tuple[_Value, int]] = {
    "reading_ratio": (lambda one: one.reading_seconds, 1),
    "decode_ratio": (_seconds_per_token, 1),
    "second_question_ratio": (lambda one: one.answers[1].first_seconds, 1),
    "peak_memory_ratio": (lambda one: one.peak_bytes, -1),
    "cache_bytes_ratio": (lambda one: one.cache_bytes, -1),
}


def summary_of(runs: Runs, lineup: Mapping[str, Contender]) -> dict[str, float]:
    """Ratios of our speed and memory to those of each peer, and seconds of loading."""
    summary: dict[str, float] = {}
    for (label, length), figures in runs.items():
        if lineup[label].name != OURS:
            continue
        prefix, size = "" if label == OURS else "pot_", _size(length)
        for name, peer in _PEERS.items():
            rivals = _runs_of(name, runs, lineup, length)
            for ratio, (value, power) in _RATIOS.items():
                pairs = zip(_best(rivals, value), _values(figures, value), strict=False)
                ratios = [(theirs / ours) ** power for theirs, ours in pairs]
                summary |= _median(f"{prefix}{ratio}_vs_{peer}_{size}", ratios)
        summary[f"{prefix}peak_memory_bytes_{size}"] = float(max(one.peak_bytes for one in figures))
    key = "second_question_ratio_vs_llama_cpp"
    if lengths := [length for _, length in runs if f"{key}_{_size(length)}" in summary]:
        summary[key] = summary[f"{key}_{_size(max(lengths))}"]
    ours = [one for (label, _), figures in runs.items() if label == OURS for one in figures]
    loads = {"": [ours]} | {f"{peer}_": _runs_of(name, runs, lineup) for name, peer in _PEERS.items()}
    for prefix, groups in loads.items():
        summary |= _median(f"{prefix}load_seconds", _best(groups, lambda one: one.load_seconds))
    return summary


def _runs_of(name: str, runs: Runs, lineup: Mapping[str, Contender], length: int | None = None) -> list[list[Figures]]:
    """The runs of each variant of a peer, of one length or of all; a small cache that shifts is another thing."""
    found: dict[str, list[Figures]] = {}
    for (label, tokens), figures in runs.items():
        if lineup[label].name == name and not lineup[label].shifts and length in (None, tokens):
            found.setdefault(label, []).extend(figures)
    return list(found.values())


def _values(figures: Sequence[Figures], value: _Value) -> list[float]:
    """A figure of every round; none where one is not known."""
    values = [value(one) for one in figures]
    return [known for known in values if known is not None] if None not in values else []


def _best(groups: Sequence[Sequence[Figures]], value: _Value) -> list[float]:
    """The values of the variant that has the least."""
    known = [values for figures in groups if (values := _values(figures, value))]
    return min(known, key=lambda values: float(np.median(values)), default=[])


def _median(key: str, values: Sequence[float]) -> dict[str, float]:
    return {key: float(np.median(values))} if values else {}


def _size(length: int) -> str:
    """As lengths stand in the summary."""
    return f"{round(length / 1024)}k" if length >= 1024 else str(length)
