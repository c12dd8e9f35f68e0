"""The first page of docs/results: by the questions of a reader, every contender of every recent file beside ours.

Who stands there follows from `headlines`; on which side, from the interval of the difference alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ondevice_bench.results.age import MOST_COMMITS
from ondevice_bench.results.charts import curve_of
from ondevice_bench.results.comparison import SIDES, Line, Rival
from ondevice_bench.results.headlines import QUESTIONS, reading_of
from ondevice_bench.results.intervals import Estimate
from ondevice_bench.results.reading import DERIVED
from ondevice_bench.results.result import Result
from ondevice_bench.results.tables import case_text, number, value_text

_LEGEND = (
    f"No run on this page is older than {MOST_COMMITS} commits. Each line is one measurement of a contender of ours, "
    "and every other contender of the same file stands beside it.\n\n"
    "Scores have the number n of their questions and, from five on, an interval of 95 % (bootstrap over questions). "
    "Behind a rival is our score less its own, of shares in points, with the interval of that difference over the "
    "questions that both have answered; where it holds 0, the two are level. Speeds, times and bytes are the median of "
    "n rounds, from p10 to p90, and behind a rival is how many times its own ours is; where both ranges overlap, the "
    "two are level. With one round, fewer than five questions, or a metric that has no better side, a rival is not "
    "counted.\n\n"
    "Of a pot alone its size is said twice: how many tokens of the text come to a slot (below 1 there is one for every "
    "token), and how many times the pot's bytes the keys and values of the text would take in bfloat16. The link leads "
    "to command, machine and commit."
)


def front_page(
    results: Mapping[str, Result],
    compared: Mapping[str, Sequence[Line]],
    old: Mapping[str, str],
    origin: str,
    page_of: Callable[[Result], str],
) -> str:
    """Markdown of the first page.

    Args:
        results: by the name of their file.
        compared: their comparisons.
        old: those that do not stand here, and how old they are.
        origin: the line that says where pages come from.
        page_of: the page that a result is on.
    """
    recent = {name: result for name, result in results.items() if name not in old}
    lines = {name: [one for one in compared[name] if one.unit not in DERIVED] for name in recent}
    sides = Counter(rival.side for of in lines.values() for line in of for rival in line.rivals)
    counts = ", ".join(f"{side} {sides[side]}" for side in SIDES)
    parts = ["# Results", origin, f"Of {sides.total()} rivals here ours is {counts}.", _LEGEND]
    by_question: dict[str, list[str]] = {question: [] for question in QUESTIONS}
    for name, result in recent.items():
        by_question.setdefault(reading_of(result.command).question, []).append(name)
    for question, names in by_question.items():
        parts += _section(question, {name: results[name] for name in names}, lines, page_of)
    if old:
        parts.append(f"{len(old)} of {len(results)} runs are older. They stand on their own pages, where it says so.")
    pages = sorted({page_of(result) for result in results.values()})
    parts.append("All pages: " + ", ".join(f"[{page.removesuffix('.md')}]({page})" for page in pages) + ".")
    return "\n\n".join(parts) + "\n"


def _section(
    question: str, runs: Mapping[str, Result], lines: Mapping[str, Sequence[Line]], page_of: Callable[[Result], str]
) -> list[str]:
    """Heading, table and the newest picture of each command; nothing where nothing of it was measured."""
    rows, pictures = list[str](), dict[str, str]()
    for name, result in sorted(runs.items(), key=lambda item: (page_of(item[1]), item[0])):
        if curve := curve_of(result):
            newest = pictures.get(page_of(result))
            if newest is None or runs[newest].date < result.date:
                pictures[page_of(result)] = name
        link = f"[{name}]({page_of(result)}#{name})"
        together: dict[object, list[Line]] = {}  # lines without rivals: one for each metric of a contender
        for place, line in enumerate(lines[name]):
            together.setdefault(place if line.rivals else (line.metric, line.name), []).append(line)
        rows += [" | ".join((_measured(of[0], result), _ours(of), *_held(of[0]), link)) for of in together.values()]
    if not rows:
        return []
    header = f"| measured | ours | {' | '.join(SIDES)} | run |\n|{' --- |' * (len(SIDES) + 3)}"
    shown = [(name, curve) for name in pictures.values() if (curve := curve_of(runs[name]))]
    return [
        f"## {question}",
        "\n".join((header, *(f"| {row} |" for row in rows))),
        *(f"![{name}: {curve.title}]({name}.svg)" for name, curve in shown),
    ]


def _measured(line: Line, result: Result) -> str:
    reading, model = reading_of(result.command), result.config.get("model", "auto")
    size = "" if model == "auto" else model.rpartition("-")[2].upper()
    about = ", ".join(filter(None, (reading.what, size)))
    said = f" ({reading.note[1]})" if reading.note and line.is_score and reading.note[0] in line.name else ""
    return ": ".join(filter(None, (about, line.metric))) + said


def _ours(lines: Sequence[Line]) -> str:
    """The contender with its figure in each case."""
    figures = (": ".join(filter(None, (case_text(one.case), figure_text(one.figure, one.unit)))) for one in lines)
    return f"**{lines[0].name}**, {'; '.join(figures)}"


def _held(line: Line) -> list[str]:
    """Of each side, the rivals on it and by how much."""
    return ["; ".join(f"{one.name} {by_text(one, line)}" for one in line.rivals if one.side == side) for side in SIDES]


def figure_text(figure: Estimate, unit: str) -> str:
    """A figure with its interval and what it is over: `0.8 [0.65, 0.93], n = 27`."""
    return f"{value_text(figure.value, unit)}{_interval(figure, unit)}, n = {figure.n}"


def by_text(rival: Rival, line: Line) -> str:
    """Distance of ours from a rival, with the interval where there is one."""
    if rival.is_ratio:
        return f"{rival.by.value:.2f}x (n = {rival.by.n})"
    return f"{_signed(rival.by.value, line.unit)}{_interval(rival.by, line.unit, _signed)}"


def _interval(figure: Estimate, unit: str, shown: Callable[[float, str], str] = number) -> str:
    if figure.low is None or figure.high is None:
        return ""
    return f" [{shown(figure.low, unit)}, {shown(figure.high, unit)}]"


def _signed(value: float, unit: str) -> str:
    text = number(value, unit)
    return text if text.startswith("-") else f"+{text}"
