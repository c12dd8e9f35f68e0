"""The first page of docs/results: where this is ahead of others, where behind, and what it is worth alone.

Which figures stand there `headlines` says; on which side one stands is decided by its value alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ondevice.results.charts import curve_of
from ondevice.results.headlines import HEADLINES, Headline
from ondevice.results.results import Result

_LEVEL = 0.02  # a ratio so near to 1, or a difference so near to 0, is no lead
_PICTURES = ("ruler_0_5b_4k", "babilong_0_5b", "passkey_infinipot", "qa_1_5b", "perplexity_0_5b")
_SIDES: tuple[tuple[str, Callable[[float], bool]], ...] = (
    ("Ahead", lambda lead: lead > _LEVEL),
    ("Behind", lambda lead: lead < -_LEVEL),
    ("Level", lambda lead: abs(lead) <= _LEVEL),
)


def front_page(results: Mapping[str, Result], origin: str, page_of: Callable[[Result], str]) -> str:
    """Markdown of the first page.

    Args:
        results: by the name of their file.
        origin: the line that says where pages come from.
        page_of: the page that a result is on.
    """
    measured = [(line, value) for line in HEADLINES if (value := line.value(results)) is not None]
    parts = [
        "# Results",
        origin,
        "Every line has its command, machine and commit behind the link. Ratios are of speed "
        "where nothing else is said; what is above 1 is better here, of memory what is below.",
    ]
    for title, belongs in _SIDES:
        lines = [(line, value) for line, value in measured if line.against and belongs(line.lead(value))]
        parts += _table(title, lines, results, page_of)
    parts += _table("Alone", [(line, value) for line, value in measured if not line.against], results, page_of)
    pictures = [(name, curve) for name in _PICTURES if name in results and (curve := curve_of(results[name]))]
    parts += [f"![{name}: {curve.title}]({name}.svg)" for name, curve in pictures]
    pages = sorted({page_of(result) for result in results.values() if result.complete})
    parts.append("All pages: " + ", ".join(f"[{page.removesuffix('.md')}]({page})" for page in pages) + ".")
    return "\n\n".join(parts) + "\n"


def _table(
    title: str, lines: list[tuple[Headline, float]], results: Mapping[str, Result], page_of: Callable[[Result], str]
) -> list[str]:
    if not lines:
        return []
    rows = ["| what | against | | run |", "| --- | --- | ---: | --- |"]
    for line, value in lines:
        result = results[line.run]
        link = f"[{result.date[:10]}]({page_of(result)}#{line.run})"
        rows.append(f"| {line.what} | {line.against} | {line.shown(value)} | {link} |")
    return [f"## {title}", "\n".join(rows)]
