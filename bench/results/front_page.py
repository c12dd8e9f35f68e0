"""The first page of docs/results: by the questions of a reader, where this is ahead of others and where behind.

Which figures stand there `headlines` says; on which side one stands is decided by its value alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ondevice.result import Result
from ondevice_bench.results.charts import curve_of
from ondevice_bench.results.headline import Headline, Question
from ondevice_bench.results.headlines import QUESTIONS

_LEVEL = 0.02  # a ratio so near to 1, or a difference so near to 0, is no lead
_SIDES: tuple[tuple[str, Callable[[float], bool]], ...] = (
    ("ahead of", lambda lead: lead > _LEVEL),
    ("level with", lambda lead: abs(lead) <= _LEVEL),
    ("behind", lambda lead: lead < -_LEVEL),
)
_LEGEND = (
    "Behind each name is by how much: a ratio (of speed, of memory, or of what a full cache knows) or a difference of "
    "scores. 135M is SmolLM2, 0.5B and 1.5B are Qwen2.5-Coder; slots are tokens that a pot holds, and the tier keeps "
    "the others in main memory. The link has command, machine and commit."
)


def front_page(results: Mapping[str, Result], origin: str, page_of: Callable[[Result], str]) -> str:
    """Markdown of the first page.

    Args:
        results: by the name of their file.
        origin: the line that says where pages come from.
        page_of: the page that a result is on.
    """
    sides = [side for question in QUESTIONS for line in question.lines for side in _sides(line, results)]
    counts = ", ".join(f"{title} {sum(bool(side[title]) for side in sides)}" for title, _ in _SIDES)
    parts = ["# Results", origin, f"Of {len(sides)} rivals here it is {counts}. {_LEGEND}"]
    for question in QUESTIONS:
        parts += _section(question, results, page_of)
    pages = sorted({page_of(result) for result in results.values() if result.complete})
    parts.append("All pages: " + ", ".join(f"[{page.removesuffix('.md')}]({page})" for page in pages) + ".")
    return "\n\n".join(parts) + "\n"


def _section(question: Question, results: Mapping[str, Result], page_of: Callable[[Result], str]) -> list[str]:
    """Heading, table and pictures; nothing where nothing of it was measured."""
    titles = [title for title, _ in _SIDES]
    rows = []
    for line in question.lines:
        result, sides = line.result(results), _sides(line, results)
        if result is None or (line.figure not in result.summary if line.figure else not sides):
            continue
        held = [", ".join(side[title] for side in sides if side[title]) for title in titles]
        rows.append(" | ".join((line.text(result), *held, f"[{result.date[:10]}]({page_of(result)}#{line.run})")))
    if not rows:
        return []
    header = f"| measured | {' | '.join(titles)} | run |\n| --- | --- | --- | --- | --- |"
    pictures = [(name, curve) for name in question.pictures if name in results and (curve := curve_of(results[name]))]
    return [
        f"## {question.text}",
        "\n".join((header, *(f"| {row} |" for row in rows))),
        *(f"![{name}: {curve.title}]({name}.svg)" for name, curve in pictures),
    ]


def _sides(line: Headline, results: Mapping[str, Result]) -> list[dict[str, str]]:
    """Of each rival that was measured, by side: who it is and by how much, or ""."""
    result = line.result(results)
    if result is None:
        return []
    measured = [(rival, value) for rival in line.rivals if (value := rival.value(result)) is not None]
    return [
        {title: f"{rival.name} {rival.shown(value)}" if belongs(rival.lead(value)) else "" for title, belongs in _SIDES}
        for rival, value in measured
    ]
