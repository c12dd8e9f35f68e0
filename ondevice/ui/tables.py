"""Tables as files that a spreadsheet opens."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute


def as_csv(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as CSV. No cell is taken for a formula: what it says may be somebody else's."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(head)
    writer.writerows([f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in row] for row in rows)
    return text.getvalue()
