"""Workbooks (.xlsx, .xlsm, .xlsb, .xls, .ods): each sheet as a table, by calamine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from python_calamine import CalamineError, CalamineWorkbook, PasswordError, SheetVisibleEnum

from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.rows import are_names, table_parts
from ondevice.documents.types import Page
from ondevice.errors import PasswordRequired

_BETWEEN = " | "


def open_sheets(request: Request) -> Reader:
    """The workbook, sheet by sheet."""
    try:
        book = CalamineWorkbook.from_filelike(request.open())
    except PasswordError as error:
        fix = "Open it in its own program, save it without a password, then open that."
        raise PasswordRequired("the workbook is protected with a password", where=request.name, fix=fix) from error
    return Reader("xlsx", "sheet", _pages(book, request.first), len(book.sheets_metadata) or None)


def _pages(book: CalamineWorkbook, first: int) -> Iterator[Page]:
    for number, about in enumerate(book.sheets_metadata[first - 1 :], first):
        title = about.name + ("" if about.visible == SheetVisibleEnum.Visible else " (hidden sheet)")
        try:
            rows = _rows(book, number - 1)
        except CalamineError as error:
            yield Page(number, "", "unreadable", f"sheet {number} ({title}) was given up: {type(error).__name__}")
            continue
        table = "".join(table_parts(rows, lambda row: are_names(row.split(_BETWEEN))))
        if table.strip():
            yield Page(number, normalize(f"{title}\n\n{table}").replace("\f", "\n"))
        else:
            yield Page(number, "", "blank", f"sheet {number} ({title}) is blank")


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
