"""Workbooks (.xlsx, .xlsm, .xlsb, .xls, .ods): each sheet as a table, by calamine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import reduce
from typing import Any

from python_calamine import CalamineError, CalamineWorkbook, PasswordError, SheetVisibleEnum

from ondevice.documents.formats.archive import Archive
from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.rows import are_names, table_parts
from ondevice.documents.types import Page
from ondevice.errors import DocumentError, DocumentTooComplex, PasswordRequired

_BETWEEN = " | "
_CELL = re.compile(rb'<c r="([A-Z]{1,3})(\d{1,7})"[^>]*[^>/]>')  # that holds something
_MAX_CELLS = 20_000_000  # of the rectangle around a sheet's cells, which calamine takes memory for


def open_sheets(request: Request) -> Reader:
    """The workbook, sheet by sheet."""
    try:
        book = CalamineWorkbook.from_filelike(request.open())
    except PasswordError as error:
        fix = "Open it in its own program, save it without a password, then open that."
        raise PasswordRequired("the workbook is protected with a password", where=request.name, fix=fix) from error
    return Reader("xlsx", "sheet", _pages(book, request), len(book.sheets_metadata) or None)


def _pages(book: CalamineWorkbook, request: Request) -> Iterator[Page]:
    for number, about in enumerate(book.sheets_metadata[request.first - 1 :], request.first):
        title = about.name + ("" if about.visible == SheetVisibleEnum.Visible else " (hidden sheet)")
        try:
            _require_near(request, about.name)
            rows = _rows(book, number - 1)
        except (CalamineError, DocumentError) as error:
            why = error.what if isinstance(error, DocumentError) else "it is damaged"
            yield Page(number, "", "unreadable", f"sheet {number} ({title}) was given up: {why}")
            continue
        table = "".join(table_parts(rows, lambda row: are_names(row.split(_BETWEEN))))
        if table:
            yield Page(number, normalize(f"{title}\n\n{table}").replace("\f", "\n"))
        else:
            yield Page(number, "", "blank", f"sheet {number} ({title}) is blank")


def _require_near(request: Request, name: str) -> None:
    """Raise unless calamine, which ends the process where memory fails, can hold the sheet; for .xlsx alone."""
    if request.open().read(2) != b"PK":
        return
    with Archive(request.open(), request.name) as archive:
        parts = archive.relations(main := "xl/workbook.xml")
        sheets = archive.read_xml(main).iter() if parts else ()
        ids = [value for one in sheets if one.get("name") == name for value in one.attrib.values()]
        member = next((parts[value][1] for value in ids if value in parts), "")
        cells = _CELL.findall(archive.read(member)) if member.endswith(".xml") else []
    columns = max((_column(letters) for letters in {letters for letters, _ in cells}), default=0)
    if columns * max((int(row) for _, row in cells), default=0) > _MAX_CELLS:
        fix = "Delete the cell that lies far from the others."
        raise DocumentTooComplex("its cells lie too far apart", where=request.name, fix=fix)


def _column(letters: bytes) -> int:
    return reduce(lambda number, letter: 26 * number + letter - 64, letters, 0)


def _rows(book: CalamineWorkbook, index: int) -> list[str]:
    """Rows that hold something; a merged cell stands in all of its rows and columns."""
    sheet = book.get_sheet_by_index(index)
    values: list[list[Any]] = sheet.to_python(skip_empty_area=False)
    for (top, left), (bottom, right) in sheet.merged_cell_ranges or ():
        for row in values[top : bottom + 1]:
            row[left : right + 1] = [values[top][left]] * len(row[left : right + 1])
    rows = (_BETWEEN.join(map(_shown, row)).rstrip(_BETWEEN) for row in values)
    return [row + "\n" for row in rows if row]


def _shown(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return " ".join(str(value).split())
