"""`ondevice results`: docs/results and docs/papers.md, from the files that the commands wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ondevice.cli.terminal import errors_shown, say
from ondevice.errors import OndeviceError


def results(
    source: Annotated[Path, typer.Option("--from", help="Folder with the JSON files.")] = Path("bench/results"),
    target: Annotated[Path, typer.Option("--to", help="Folder for the Markdown pages.")] = Path("docs/results"),
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail when a page is not up to date.")] = False,
    complete: Annotated[
        bool, typer.Option("--complete", help="Add to the files first what can be derived from what is in them.")
    ] = False,
) -> None:
    """Make the tables of the documentation from measured results."""
    with errors_shown(as_json=False):
        from ondevice_bench.quality.pot_sizes import completed
        from ondevice_bench.results.age import old_results, read_list
        from ondevice_bench.results.files import read_result
        from ondevice_bench.results.markdown import OLD, make_pages
        from ondevice_bench.results.papers.page import PAGE, missing_files, papers_page
        from ondevice_bench.results.result import DIRTY, ResultError, write_result, write_text

        files = sorted(source.glob("*.json"))
        if not files:
            raise ResultError("There are no results", where=str(source), fix="Measure something with --out first.")
        found = {path.stem: read_result(path) for path in files}
        if changed := [name for name, result in found.items() if result.commit.endswith(DIRTY)]:
            raise ResultError(
                f"Measured from a checkout with uncommitted changes: {', '.join(changed)}",
                where=str(source),
                fix="Measure again from a clean commit, or remove the files.",
            )
        if complete:
            for path in files:
                if (whole := completed(found[path.stem])) != found[path.stem]:
                    write_result(path, whole)
                    found[path.stem] = whole
        # What was old when the pages were made stays so: a check must not fail because commits went by.
        old = read_list(_text_of(target / OLD) or "") if check else old_results(found, source)
        pages = {target / name: text for name, text in make_pages(found, source.as_posix(), old).items()}
        finished = {name: result for name, result in found.items() if result.complete}
        papers = target.parent / PAGE
        # A folder of some other runs has no such page; where there is one, a file that it needs must not be missing.
        if papers.is_file() or not missing_files(finished):
            pages[papers] = papers_page(finished, old, target.name, os.path.relpath(source, papers.parent))
        stale = [path for path, text in pages.items() if _text_of(path) != text]
        if check and stale:
            raise OndeviceError(
                f"Pages are not what the results say: {', '.join(path.name for path in stale)}",
                where=str(target),
                fix="Run ondevice results.",
            )
        for path in stale:
            write_text(path, pages[path])
        if unfinished := [name for name, result in found.items() if not result.complete]:
            say(f"Left out, because they are unfinished: {', '.join(unfinished)}", "yellow")
        say(f"{len(pages)} pages from {len(files)} files; {len(stale)} written.")


def _text_of(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
