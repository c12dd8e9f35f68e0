"""A second try for PDF files that were cut off: the end, where a PDF says what it holds, is missing.

pypdf finds the objects of such a file by itself when the file at least claims to have an end.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from ondevice.documents.formats.reader import Request

_OBJECT = re.compile(rb"(\d{1,10})\s+(\d{1,5})\s+obj\b")
_CATALOG = re.compile(rb"(\d{1,10})\s+(\d{1,5})\s+obj\b(?:(?!endobj).){0,2000}?/Type\s*/Catalog\b", re.DOTALL)


def with_new_end(request: Request) -> io.BytesIO | None:
    """The file with a trailer for the catalog that it holds; None when there is no catalog to be seen."""
    data = Path(request.path).read_bytes()
    catalogs = list(_CATALOG.finditer(data))
    if not catalogs:
        return None
    catalog = catalogs[-1]  # a file may hold older versions of itself; the last one counts
    size = 1 + max(int(found[1]) for found in _OBJECT.finditer(data))
    end = b"\nendobj\ntrailer\n<< /Root %s %s R /Size %d >>\nstartxref\n0\n%%%%EOF\n" % (catalog[1], catalog[2], size)
    return io.BytesIO(data + end)
