"""The documents under docs/results, made from files of results and from nothing else: same files, same text."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any

import numpy as np

from ondevice_bench.results.age import listed
from ondevice_bench.results.charts import Bars, curve_of, draw
from ondevice_bench.results.comparison import Line, lines_of
from ondevice_bench.results.front_page import by_text, figure_text, front_page
from ondevice_bench.results.result import Result, Row
from ondevice_bench.results.tables import (
    HEADER,
    NUMERIC,
    SHARE,
    case_text,
    cell,
    cells,
    fold_trials,
    machine_text,
    number,
    value_text,
)

_ORIGIN = "Made by `ondevice results` from the files in `{source}`. Do not edit: measure again instead."
OLD = "old.txt"  # beside the pages: which results were too old when these were made
_MAX_COLUMNS = 12  # of figures beside each other
_SHOWN_IN_GRID = 2  # case keys that make rows and columns of one grid


def make_pages(results: Mapping[str, Result], source: str, old: Mapping[str, str] | None = None) -> dict[str, str]:
    """Markdown by file name: one page for each command, with every finished run of it, and `index.md`, which says what
    they come to; the curves, as SVG; and `OLD`, so that the same pages can be made again later.

    Args:
        results: by the name of their file.
        source: where those files are, as a reader knows it.
        old: those that are too old for `index.md`, and how old they are; see `age`.
    """
    finished = [(name, result) for name, result in results.items() if result.complete]
    named = sorted(finished, key=lambda item: (_topic(item[1]), item[0]))
    if not finished:
        return {}
    old = {name: age for name, age in (old or {}).items() if name in dict(finished)}
    pages, lines = {OLD: listed(old)}, {name: lines_of(result) for name, result in finished}
    for topic, group in groupby(named, key=lambda item: _topic(item[1])):
        runs = list(group)
        parts = [f"# {topic}", _ORIGIN.format(source=source), _overview(runs, lines, old)]
        parts += [_run(name, run, lines[name], old.get(name, "")) for name, run in runs]
        pages[_page(topic)] = "\n\n".join(parts) + "\n"
    origin = _ORIGIN.format(source=source)
    pages["index.md"] = front_page(dict(finished), lines, old, origin, page_of)
    pages |= {f"{name}.svg": draw(result, curve) for name, result in finished if (curve := curve_of(result))}
    return pages


def page_of(result: Result) -> str:
    """The page that a result is on."""
    return _page(_topic(result))


def _page(topic: str) -> str:
    return "reliability.md" if topic == "bench reliability" else f"{topic.replace(' ', '-')}.md"


def _topic(result: Result) -> str:
    """`eval passkey` of `ondevice eval passkey --trials 2`, `calibrate` of `ondevice calibrate --text a.txt`, and
    `gpu-check` of `make gpu-check ARGS=...`."""
    return " ".join(takewhile(lambda word: word[0] != "-" and "=" not in word, shlex.split(result.command)[1:3]))


def _overview(runs: Sequence[tuple[str, Result]], lines: Mapping[str, Sequence[Line]], old: Mapping[str, str]) -> str:
    """One line for each run, so that they can be compared; where they have scores, each of ours with its interval."""
    links = {name: f"[{name}](#{anchor(name)}){' (old)' if name in old else ''}" for name, _ in runs}
    if _has_scores(runs[0][1]):
        scores = [
            (line.metric, case_text(line.case), line.name, figure_text(line.figure, line.unit), links[name])
            for name, _ in runs
            for line in lines[name]
            if line.is_score
        ]
        return table(("metric", "case", "contender", "value", "run"), scores, num_text=5)
    keys = sorted({key for _, run in runs for key in run.summary})
    if len(keys) > _MAX_COLUMNS:
        return table(
            ("figure", *links.values()),
            [(f"`{key}`", *(_summary(run, key) for _, run in runs)) for key in keys],
            num_text=1,
        )
    summaries = [
        (run.rows[0].contender if run.rows else "", *(_summary(run, key) for key in keys), links[name])
        for name, run in runs
    ]
    return table(("contender", *(f"`{key}`" for key in keys), "run"), summaries, num_text=1)


def _has_scores(result: Result) -> bool:
    """True of evaluations, which ask questions; all else measures time and memory."""
    return _topic(result).startswith("eval ")


def _summary(run: Result, key: str) -> str:
    return number(run.summary[key]) if key in run.summary else ""


def _run(name: str, result: Result, lines: Sequence[Line], age: str) -> str:
    used = ", ".join(f"{package} {version}" for package, version in result.versions.items())
    where = f"{machine_text(result.machine)}; {used}; {commit_text(result.commit)}; {result.date[:10]}."
    aged = [f"**Old**: {age} before these pages were made."] if age else []
    curve = curve_of(result)
    picture = [f"![{curve.title}]({name}.svg)"] if curve else []
    tables = [_contenders(result.rows, curve.panel)] if isinstance(curve, Bars) else [*_tables(result.rows)]
    if not lines:
        tables = ["The size of these pots is not in the file, so none of its figures is here."]
    elif _has_scores(result) and any(line.rivals for line in lines):
        tables = [_held(lines), *tables]
    return "\n\n".join([f"## {name}", f"`{result.command}`", where, *_peers(result.config), *aged, *picture, *tables])


def _peers(config: Mapping[str, Any]) -> list[str]:
    """The builds that `bench peers` was held against, and how busy the machine was when it began."""
    if "peers" not in config:
        return []
    builds = [
        f"llama.cpp of {one['package']} {one['version']} ({one['system_info']} {one['threads']} threads, batches of "
        f"{one['n_ubatch']}, cache in {one['cache_type']})"
        for one in config["peers"]["llama_cpp"]
    ]
    load = ", ".join(map(str, config["peers"]["load_average"]))
    return ["; ".join([*builds, f"load average at the start {load} (1, 5 and 15 minutes)"]) + "."]


def _held(lines: Iterable[Line]) -> str:
    """Every score of ours, and under it every rival's with the difference."""
    rows = [
        row
        for line in lines
        if line.is_score
        for row in (
            (line.metric, case_text(line.case), f"**{line.name}**", figure_text(line.figure, line.unit), "", ""),
            *(
                ("", "", one.name, figure_text(one.figure, line.unit), by_text(one, line), one.side)
                for one in line.rivals
            ),
        )
    ]
    return table(("metric", "case", "contender", "value", "ours less its own", "ours is"), rows, num_text=6)


def _tables(rows: Sequence[Row]) -> Iterable[str]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in fold_trials(rows):
        groups.setdefault((row.contender, row.metric), []).append(row)
    return _joined([_grid(group) if _fits_grid(group) else group for group in groups.values()])


def _contenders(rows: Sequence[Row], key: str) -> str:
    """The mean of each contender, a line for each value of a key of the case and metric, with how many it is of."""
    values: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for row in rows:
        values.setdefault((str(row.case[key]), row.metric, row.unit), {}).setdefault(row.contender, []).append(row.p50)
    names = list(dict.fromkeys(row.contender for row in rows))
    lines = [
        (
            about,
            metric,
            str(max(map(len, of.values()))),
            *(value_text(float(np.mean(of[name])), unit) if name in of else "" for name in names),
        )
        for (about, metric, unit), of in values.items()
    ]
    return table((key, "metric", "n", *names), lines, num_text=2)


def commit_text(commit: str) -> str:
    """Short, but with the mark of a checkout that had changes."""
    number, _, mark = commit.partition("-")
    return f"commit {number[:12]}{' with changes' if mark else ''}" if number else "commit unknown"


def _joined(tables: Iterable[str | list[Row]]) -> Iterable[str]:
    """Grids as they are; the other rows together in one table."""
    for is_grid, group in groupby(tables, key=lambda table: isinstance(table, str)):
        if is_grid:
            yield from (table for table in group if isinstance(table, str))
        else:
            rows = [row for table in group if not isinstance(table, str) for row in table]
            yield table(HEADER, [cells(row) for row in rows], num_text=len(HEADER) - len(NUMERIC))


def _fits_grid(rows: Sequence[Row]) -> bool:
    first = tuple(rows[0].case)
    return len(rows) > 1 and len(first) == _SHOWN_IN_GRID and all(tuple(row.case) == first for row in rows)


def _grid(rows: Sequence[Row]) -> str:
    """One metric over two keys of the case: the first goes down, the second across."""
    down, across = rows[0].case
    columns = list(dict.fromkeys(row.case[across] for row in rows))
    values = {(row.case[down], row.case[across]): value_text(row.p50, row.unit) for row in rows}
    lines = [
        (cell(left), *(values.get((left, column), "") for column in columns))
        for left in dict.fromkeys(row.case[down] for row in rows)
    ]
    unit = "" if rows[0].unit in ("", SHARE) else f" ({rows[0].unit})"
    header = (f"{down}", *(f"{across} {cell(column)}" for column in columns))
    counts = sorted({row.n for row in rows})
    n = " to ".join(str(one) for one in dict.fromkeys((counts[0], counts[-1])))
    return f"{rows[0].contender}: {rows[0].metric}{unit}, n = {n} in each cell\n\n" + table(header, lines, num_text=0)


def table(header: Sequence[str], lines: Iterable[Sequence[Any]], *, num_text: int) -> str:
    """A table whose first `num_text` columns are words and the others numbers."""
    rule = ["---" if i < num_text else "---:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *lines))


def anchor(name: str) -> str:
    """As GitHub makes it from a heading."""
    return "".join(c for c in name.lower() if c.isalnum() or c in "-_")
