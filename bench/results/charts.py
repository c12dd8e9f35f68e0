"""Pictures of docs/results as SVG, made from the rows of results and from nothing else: same rows, same picture."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ondevice.errors import OndeviceError
from ondevice.extras import install
from ondevice_bench.results.result import Result, Row
from ondevice_bench.results.tables import fold_trials


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve: two metrics of the same case against each other, each point named by a key of the case.

    Without a `label`, `x` is a key of the case itself, every contender is a line, and further metrics `more` each have
    a panel beside `y`.
    """

    x: str
    y: str
    label: str
    more: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.y} over {self.x}"


@dataclass(frozen=True, slots=True)
class Bars:
    """A bar chart: the mean of all rows of each contender, in a panel for each value of a key of the case, and one
    for the mean over those panels."""

    panel: str
    title: str


@dataclass(frozen=True, slots=True)
class Heat:
    """A field: the mean of a metric for each pair of values of two keys of the case, where both have several."""

    x: str
    y: str
    metric: str

    @property
    def title(self) -> str:
        return f"{self.metric} by {self.x} and {self.y}"


Picture = Curve | Bars | Heat
_STYLE = {"svg.hashsalt": "ondevice", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
# By the beginning of the command that measures them.
CURVES: Mapping[str, Picture] = {
    "ondevice eval slim-curve": Curve("reading speed ratio", "mean loss", "schedule"),
    "ondevice eval art-curve": Curve("share of blocks not read", "mean loss", "rule"),
    "ondevice eval specprefill": Curve("keep %", "accuracy", "", more=("loss",)),
    "ondevice eval passkey": Heat("length", "depth", "accuracy"),
    "ondevice eval hit-rate": Curve("tokens", "hit rate", "", more=("overlap with the catalyst alone",)),
    "ondevice eval retention": Curve("budget", "recall of a full cache's", ""),
    "ondevice bench distillation": Curve("tokens", "share of the time", "", more=("reading speed",)),
    "ondevice eval perplexity": Curve("tokens", "loss", ""),
    "ondevice eval ruler": Bars("task", "scores of the contenders"),
    "ondevice eval babilong": Bars("task", "scores of the contenders"),
    "ondevice eval answers": Bars("task", "scores of the contenders"),
    "ondevice eval longbench": Bars("task", "scores of the contenders"),
    "ondevice eval collection": Bars("task", "scores of the contenders"),
}
_BAR_COLUMNS = 4  # panels side by side


def curve_of(result: Result) -> Picture | None:
    """The picture that a result is drawn as, if any."""
    curve = next((curve for command, curve in CURVES.items() if result.command.startswith(command)), None)
    if isinstance(curve, Heat) and any(len({row.case[key] for row in result.rows}) < 2 for key in (curve.x, curve.y)):
        return None
    if isinstance(curve, Curve) and not curve.label and _num_points(result, curve) < 2:
        return None
    return curve


def _num_points(result: Result, curve: Curve) -> int:
    return len({row.case[curve.x] for row in result.rows if row.metric == curve.y})


def draw(result: Result, curve: Picture) -> str:
    """The SVG of a result.

    Raises:
        OndeviceError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OndeviceError(
            "Curves are drawn with matplotlib, which is not installed", fix=install("matplotlib>=3.10")
        ) from error
    if isinstance(curve, Bars):
        return _draw_bars(result, curve)
    if isinstance(curve, Heat):
        return _draw_heat(result, curve)
    if not curve.label:
        return _draw_lines(result, curve)
    values = {metric: {_case(row): row for row in result.rows if row.metric == metric} for metric in (curve.x, curve.y)}
    points = sorted((x.p50, values[curve.y][case].p50, str(x.case[curve.label])) for case, x in values[curve.x].items())
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8.0, 4.0), layout="constrained")
        axes = figure.add_subplot()
        for number, (x, y, name) in enumerate(points, start=1):  # names beside the points would lie over each other
            axes.plot(x, y, "o", color="#2459a9", label=f"{number}  {name}")
            axes.annotate(str(number), (x, y), xytext=(4, 4), textcoords="offset points")
        units = {row.metric: row.unit for row in result.rows}
        axes.set_xlabel(f"{curve.x} ({units[curve.x]})")
        axes.set_ylabel(f"{curve.y} ({units[curve.y]})")
        axes.margins(0.15)
        axes.grid(alpha=0.3)
        figure.legend(loc="outside right upper", handlelength=0, markerscale=0, frameon=False)
        return _svg(figure)


def _draw_lines(result: Result, curve: Curve) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    metrics = (curve.y, *curve.more)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(4.0 * len(metrics) + 2.0, 4.0), layout="constrained")
        for panel, metric in zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True):
            rows = fold_trials([row for row in result.rows if row.metric == metric])
            for name in dict.fromkeys(row.contender for row in rows):
                points = sorted((row.case[curve.x], row.p50) for row in rows if row.contender == name)
                # A contender with one point has no curve: it is what the others are held against.
                if len(points) == 1:
                    panel.axhline(points[0][1], color="0.5", linestyle="--", label=name)
                else:
                    panel.plot(*zip(*points, strict=True), "o-", label=name)
            panel.set_xlabel(curve.x)
            panel.set_ylabel(f"{metric} ({rows[0].unit})" if rows and rows[0].unit else metric)
            panel.grid(alpha=0.3)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", frameon=False)
        return _svg(figure)


def _draw_bars(result: Result, bars: Bars) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    scores: dict[str, dict[str, list[float]]] = {}  # by panel and contender, of the panel's first metric
    metrics: dict[str, str] = {}
    for row in result.rows:
        panel = str(row.case[bars.panel])
        if metrics.setdefault(panel, row.metric) == row.metric:
            scores.setdefault(panel, {}).setdefault(row.contender, []).append(row.p50)
    means = {panel: {name: 100 * float(np.mean(values)) for name, values in of.items()} for panel, of in scores.items()}
    names = list(dict.fromkeys(row.contender for row in result.rows))
    if len(means) > 1:
        over = {name: [of[name] for of in means.values() if name in of] for name in names}
        means = {
            f"mean over each {bars.panel}": {name: float(np.mean(values)) for name, values in over.items()}
        } | means
    columns = min(len(means), _BAR_COLUMNS)
    lines = -(-len(means) // columns)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(3.0 * columns + 1.0, (0.25 * len(names) + 0.8) * lines), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False, sharey=True, sharex=True).flat
        for axes, (title, of) in zip(panels, means.items(), strict=False):
            shown = [(at, of[name]) for at, name in enumerate(names) if name in of]
            drawn = axes.barh(*zip(*shown, strict=True), color="#2459a9")
            axes.bar_label(drawn, fmt="%.1f", padding=2)
            axes.set_title(title)
            axes.set_yticks(range(len(names)), names)
            axes.margins(x=0.2)
        figure.axes[0].invert_yaxis()  # the first contender on top; the others share the axis
        for axes in figure.axes[len(means) :]:
            axes.set_axis_off()
        return _svg(figure)


def _draw_heat(result: Result, heat: Heat) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    rows = [row for row in result.rows if row.metric == heat.metric]
    across, down = (sorted({row.case[key] for row in rows}) for key in (heat.x, heat.y))
    field = np.full((len(down), len(across)), np.nan)
    for at, y in enumerate(down):
        for over, x in enumerate(across):
            values = [row.p50 for row in rows if row.case[heat.x] == x and row.case[heat.y] == y]
            field[at, over] = np.mean(values) if values else np.nan
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(0.9 * len(across) + 2.5, 0.45 * len(down) + 1.2), layout="constrained")
        axes = figure.add_subplot()
        axes.imshow(field, vmin=0.0, vmax=1.0, cmap="cividis", aspect="auto")
        for at, over in np.ndindex(*field.shape):
            if not np.isnan(field[at, over]):
                colour = "black" if field[at, over] > 0.5 else "white"
                axes.text(over, at, f"{field[at, over]:.0%}", ha="center", va="center", color=colour)
        axes.set_xticks(range(len(across)), [f"{x:,}" for x in across])
        axes.set_yticks(range(len(down)), [f"{y:.0%}" for y in down])
        axes.set_xlabel(f"{heat.x} (tokens)")
        axes.set_ylabel(heat.y)
        return _svg(figure)


def _svg(figure: Any) -> str:
    picture = io.StringIO()
    figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": None})
    return picture.getvalue()


def _case(row: Row) -> tuple[object, ...]:
    return tuple(row.case.values())
