"""Curves of docs/results as SVG, made from the rows of results and from nothing else: same rows, same picture."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ondevice.errors import OndeviceError
from ondevice.results.results import Result, Row


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


_STYLE = {"svg.hashsalt": "ondevice", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
# By the beginning of the command that measures them.
CURVES: Mapping[str, Curve] = {
    "ondevice eval slim-curve": Curve("reading speed ratio", "mean loss", "schedule"),
    "ondevice eval art-curve": Curve("share of blocks not read", "mean loss", "rule"),
    "ondevice eval specprefill": Curve("keep %", "accuracy", "", more=("loss",)),
}


def curve_of(result: Result) -> Curve | None:
    """The curve that a result is drawn as, if any."""
    return next((curve for command, curve in CURVES.items() if result.command.startswith(command)), None)


def draw(result: Result, curve: Curve) -> str:
    """The SVG of a result.

    Raises:
        OndeviceError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OndeviceError(
            "Curves are drawn with matplotlib, which is not installed", fix="pip install 'ondevice[dev]'."
        ) from error
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
            rows = [row for row in result.rows if row.metric == metric]
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


def _svg(figure: Any) -> str:
    picture = io.StringIO()
    figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": None})
    return picture.getvalue()


def _case(row: Row) -> tuple[object, ...]:
    return tuple(row.case.values())
