"""`ondevice models list`, `fetch` and `remove`: the catalogue, and what of it is on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from ondevice import words
from ondevice.cli.options import AsJson
from ondevice.cli.progress import ProgressDisplay
from ondevice.cli.terminal import err, errors_shown, out, print_json, say
from ondevice.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from ondevice.model.loading.catalogue import CatalogueModel
    from ondevice.model.loading.recommend import Recommendation

BEST = "auto"


def list_models(as_json: AsJson = False) -> None:
    """The models of the catalogue, and which of them are on this machine."""
    with errors_shown(as_json):
        from ondevice.model.loading.catalogue import CATALOGUE
        from ondevice.model.loading.stored import choices, stored

        best, rows = choices(_suited())[0].model, []
        table = Table("name", "licence", "window", "download", "", box=None)
        for row in CATALOGUE.values():
            path = stored(row)
            where = "here" if path is not None else "" if _may_be_read(row) else "here, and may not be read"
            marks = filter(None, (where, "auto" if row is best else "", "" if row.was_run else "not run by us"))
            texts = row.name, row.licence, words.count(row.window), words.size(row.fetch_bytes), ", ".join(marks)
            table.add_row(*map(Text, texts))
            facts = {name: getattr(row, name) for name in ("name", "title", "family", "licence", "window")}
            facts |= {"bytes": row.fetch_bytes, "sha256": row.sha256, "path": str(path) if path is not None else None}
            rows.append(facts | {"is_best_here": row is best, "was_run": row.was_run})
        out().print(table)
        say("Not run by us: its family is tested here with small weights, the model itself never was.")
        if as_json:
            print_json({"models": rows})


def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of the list; auto: what suits this machine.")] = (
        BEST
    ),
    as_json: AsJson = False,
) -> None:
    """Bring a model to this machine and check every byte of it; later starts need no network."""
    with errors_shown(as_json), ProgressDisplay(err()) as display:
        from ondevice.model.loading import stored

        row = _row(name)
        path = stored.ensure(row, display.stage, verify=True)
        display.clear()
        say(f"{row.title} is complete, in {path}")
        if as_json:
            print_json({"name": row.name, "path": str(path)})


def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of the list.")], as_json: AsJson = False
) -> None:
    """Delete a model from this machine; it can be fetched again."""
    with errors_shown(as_json):
        from ondevice.model.loading import stored

        row = _row(name)
        freed = stored.remove(row)
        say(f"{row.title}: {words.size(freed)} are free again." if freed else f"{row.title} was not on this machine.")
        if as_json:
            print_json({"name": row.name, "bytes_freed": freed})


def _may_be_read(row: CatalogueModel) -> bool:
    from ondevice.model.loading.stored import require_readable

    try:
        require_readable(row)
    except ModelError:
        return False
    return True


def _suited() -> list[Recommendation]:
    from ondevice.model.loading.placement import choose_device, recommendations_for

    return list(recommendations_for(choose_device("auto")))


def _row(name: str) -> CatalogueModel:
    from ondevice.model.loading.catalogue import CATALOGUE, find

    if name == BEST:
        return _suited()[0].model
    row = find(name)
    if row is None:
        raise ConfigError(f"There is no model {name!r} in the catalogue", fix=f"Name one of {', '.join(CATALOGUE)}.")
    return row
