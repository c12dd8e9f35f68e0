"""The page of the papers: every headline table and figure in a row, with ours from the result files, or the gap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ondevice_bench.results.age import MOST_COMMITS
from ondevice_bench.results.markdown import anchor, commit_text, page_of, table
from ondevice_bench.results.papers.art import ART
from ondevice_bench.results.papers.equip import EQUIP
from ondevice_bench.results.papers.infinipot import INFINIPOT
from ondevice_bench.results.papers.lookup import Results, filled, result_of
from ondevice_bench.results.papers.paper import Claim
from ondevice_bench.results.papers.sliminfer import SLIMINFER
from ondevice_bench.results.papers.specprefill import SPECPREFILL
from ondevice_bench.results.result import Result

PAPERS = (INFINIPOT, EQUIP, SLIMINFER, ART, SPECPREFILL)
PAGE = "papers.md"

_ORIGIN = "Made by `ondevice results` from `bench/results/papers` and the files in `bench/results`. Do not edit."
_INTRODUCTION = f"""\
Five papers are built in here: one keeps a cache of fixed size, one writes into it, three skip work. Each table below
has the headline figures of one of them, the figures of ours that come closest, and what is missing.

**Nothing here repeats a paper in its own setting.** Their models have 7 to 405 billion parameters, on GPUs of 24 GB or
more or on a server's 60 cores. Ours have mostly 0.1 or 0.5 billion, on two cores. What ran on a GPU had random weights,
on which time and memory do not depend. That says something about the speed of a method, and little about its quality.

- **agrees**: the same order or the same figure. **more**, **less**: a larger or a smaller gain than the paper's.
  **contrary**: our figures say the opposite. **no statement**: differences like noise, or settings too far apart.
- **another test**: the paper's own was not run, and ours is of a like kind. **not measured**: there is no file.
- "(no figures)" stands where the paper has a plot or a sentence alone.
- Scores over several questions have their number n and an interval of 95 %. Speeds and times are medians; their ranges
  are on the page of the run. A range "a to b" is over several cases.
- **recall** is how well a model continues a passage of a text that it has read, as a share of what a full cache brings.
- **old** is a run from before more than {MOST_COMMITS} commits. The code has changed since."""


def papers_page(results: Results, old: Mapping[str, str], pages: str, files: str) -> str:
    """Markdown of the page.

    Args:
        results: those that are finished, by the name of their file.
        old: those that are too old, and how old they are; see `age`.
        pages: folder of the pages of results, seen from this page.
        files: folder of the files, seen from this page.

    Raises:
        ResultError: a figure that a row names is in no file.
    """
    parts = ["# The papers and this project", _ORIGIN, _INTRODUCTION, _counts()]
    for paper in PAPERS:
        lines = [_line(claim, results, old, pages) for claim in paper.claims]
        header = ("in the paper", "its figure", "ours", "compared", "our setting", "run")
        parts += [
            f"## {paper.name}",
            f"[{paper.title}]({paper.link}). {paper.claim} {paper.finding}",
            table(header, lines, num_text=len(header)),
            _runs(paper.files(), results, old, files),
        ]
    return "\n\n".join(parts) + "\n"


def missing_files(results: Mapping[str, Any]) -> list[str]:
    """Files that the page needs and that are not there."""
    return [name for name in dict.fromkeys(name for paper in PAPERS for name in paper.files()) if name not in results]


def _counts() -> str:
    """A table of the papers: their rows, and how many have figures of ours."""
    lines = [
        (
            f"[{paper.name}](#{anchor(paper.name)})",
            str(len(paper.claims)),
            str(sum(bool(claim.figures) for claim in paper.claims)),
            str(sum(not claim.figures for claim in paper.claims)),
        )
        for paper in PAPERS
    ]
    return table(("paper", "rows", "with a figure of ours", "not measured"), lines, num_text=1)


def _line(claim: Claim, results: Results, old: Mapping[str, str], pages: str) -> tuple[str, ...]:
    found = [(name, result_of(name, results, claim.place)) for name in claim.files]
    links = [f"[{name}]({pages}/{page_of(one)}#{anchor(name)}){' (old)' if name in old else ''}" for name, one in found]
    where = "; ".join(filter(None, (*_run_on(claim, [one for _, one in found]), filled(claim.setting, claim, results))))
    return (
        claim.place,
        claim.paper,
        filled(claim.ours, claim, results),
        f"**{claim.verdict}**: {filled(claim.says, claim, results)}",
        where,
        ", ".join(links) or (f"none; `{claim.command}`" if claim.command else "none"),
    )


def _run_on(claim: Claim, found: Iterable[Result]) -> Iterable[str]:
    """Models and machines of the results of a row, each once."""
    if claim.model is not None:
        yield claim.model
    else:
        yield from dict.fromkeys(str(one.config["model"]) for one in found if one.config.get("model", "auto") != "auto")
    yield from dict.fromkeys(_machine(one) for one in found)


def _machine(result: Result) -> str:
    cores = result.machine["cores"]
    return f"{result.machine['device']} with {cores} core{'s' * (cores > 1)}"


def _runs(names: Iterable[str], results: Results, old: Mapping[str, str], files: str) -> str:
    lines = [
        (
            f"[{name}]({files}/{name}.json)",
            f"{result.date[:10]}{', old' if name in old else ''}",
            commit_text(result.commit),
            f"`{result.command}`",
        )
        for name in names
        for result in (results[name],)
    ]
    return table(("file", "date", "commit", "command"), lines, num_text=4)
