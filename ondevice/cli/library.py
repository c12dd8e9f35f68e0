"""`ondevice library list` and `delete`: the documents that the app has saved."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ondevice import words
from ondevice.cli.terminal import errors_shown, out, print_json, printable, say

_ID_LETTERS = 8  # enough to tell entries apart


def list_entries(
    as_json: Annotated[bool, typer.Option("--json", help="Print the entries as JSON in the last line.")] = False,
) -> None:
    """List the saved documents, the newest first."""
    with errors_shown(as_json):
        from ondevice.library.library import Library

        library = Library()
        library.require_readable()
        entries = library.entries()
        table = Table("id", "name", "tokens", "model", "on disk", "saved", box=None)
        for entry in entries:
            about = entry.id[:_ID_LETTERS], entry.title, f"{entry.num_tokens:,}", entry.model
            texts = *about, words.size(entry.size_bytes), entry.problem or entry.saved
            table.add_row(*map(Text, map(printable, texts)))
        if entries:
            out().print(table)
            total = words.size(library.size_bytes())
            say(f"{words.plural(len(entries), 'document')}, {total} on disk: what several have in common counts once.")
        else:
            say(f"Nothing is saved in {library.folder}.")
        if as_json:
            names = ("id", "title", "document", "num_tokens", "model", "size_bytes", "saved", "problem")
            print_json({"entries": [{name: getattr(entry, name) for name in names} for entry in entries]})


def delete(
    entry: Annotated[str, typer.Argument(metavar="ID", help="Its id, or the beginning of it.")],
    is_sure: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a saved document with its pot, its text and its conversation."""
    with errors_shown(as_json=False):
        from ondevice.errors import LibraryError
        from ondevice.library.library import Library

        library = Library()
        library.require_readable()
        found = [one for one in library.entries() if entry and one.id.startswith(entry)]
        if len(found) != 1:
            what = f"{len(found)} entries begin with {entry}" if found else f"No entry begins with {entry}"
            raise LibraryError(what, fix="See `ondevice library list`.")
        if is_sure or typer.confirm(f"Delete {printable(found[0].title)}?", err=True):
            left = library.delete(found[0].id)
            say(left or f"Deleted {printable(found[0].title)}.", "yellow" if left else "dim")
