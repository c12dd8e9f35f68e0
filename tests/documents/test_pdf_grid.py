"""Tables of a PDF whose rules are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pypdfium2 as pdfium
import pytest

from ondevice.documents.formats.opening import open_document
from ondevice.documents.formats.pdf_rules import grids_on
from ondevice.documents.formats.reader import Request
from tests.builders.documents import make_pdf

COLUMNS, ROWS = (50, 150, 300, 450), (750, 720, 660, 620)  # edges of the cells
Text = tuple[float, float, str]
HEAD: list[Text] = [(55, 732, "Source"), (155, 732, "Definition"), (305, 732, "Examples")]
BODY: list[Text] = [
    *(
        (55, 702, "Stationary"),
        (155, 702, "emissions of ten tons"),
        (155, 688, "per year or more of"),
        (155, 674, "one"),
    ),
    *((305, 702, "utilities and mines,"), (305, 688, "refineries"), (55, 642, "Mobile"), (155, 642, "from motors")),
    (305, 642, "cars"),
]
READ = (
    "Source | Definition | Examples\n"
    "Stationary | emissions of ten tons per year or more of one | utilities and mines, refineries\n"
    "Mobile | from motors | cars\n"
)


def line(x: float, y: float, to_x: float, to_y: float) -> bytes:
    """A rule that is stroked."""
    return f"{x} {y} m {to_x} {to_y} l S\n".encode()


def bar(x: float, y: float, to_x: float, to_y: float) -> bytes:
    """A rule as Word draws it: filled, half a point thick."""
    return f"{x} {y} {max(to_x - x, 0.5)} {max(to_y - y, 0.5)} re f\n".encode()


def grid(draw=line, columns: Sequence[float] = COLUMNS, rows: Sequence[float] = ROWS) -> bytes:
    level = [draw(columns[0], y, columns[-1], y) for y in rows]
    return b"".join([*level, *(draw(x, rows[-1], x, rows[0]) for x in columns)])


def boxes() -> bytes:
    """Every cell a box of its own, whose path is closed."""
    return b"".join(
        f"{left} {low} m {right} {low} l {right} {high} l {left} {high} l s\n".encode()
        for left, right in pairwise(COLUMNS)
        for high, low in pairwise(ROWS)
    )


def text_of(tmp_path: Path, rules: bytes, texts: Sequence[Text], size: float = 10) -> str:
    words = "".join(f"BT /F1 {size} Tf 1 0 0 1 {x} {y} Tm ({text}) Tj ET\n" for x, y, text in texts)
    path = make_pdf(tmp_path / "a.pdf", rules + words.encode())
    return next(iter(open_document(Request(str(path))).pages)).text


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(grid(), id="strokes"),
        pytest.param(grid(bar), id="bars"),
        pytest.param(boxes(), id="boxes"),
        pytest.param(
            b"2 0 0 2 0 0 cm " + grid(columns=[x / 2 for x in COLUMNS], rows=[y / 2 for y in ROWS]), id="scaled"
        ),
        pytest.param(
            b"".join([*(line(50, y, 450, y) for y in ROWS), *(line(x, 620, x, 750) for x in COLUMNS[1:-1])]),
            id="open at its sides",
        ),
    ],
)
def test_cells_of_several_lines_are_what_the_rules_enclose(tmp_path: Path, rules: bytes) -> None:
    scale = b"0.5 0 0 0.5 0 0 cm\n" if rules.startswith(b"2 ") else b""
    assert text_of(tmp_path, rules + scale, HEAD + BODY) == READ


def test_text_around_a_table_stays_above_and_below_it_in_whatever_order_it_is_drawn(tmp_path: Path) -> None:
    around: list[Text] = [(50, 770, "above the table"), (50, 600, "below the table")]
    assert text_of(tmp_path, grid(), [*around, *HEAD, *BODY]) == f"above the table\n{READ}below the table\n"
    assert text_of(tmp_path, grid(), [*HEAD, *BODY, *around]) == f"above the table\n{READ}below the table\n"


def test_a_cell_over_several_rows_or_columns_is_told_in_each(tmp_path: Path) -> None:
    rules = b"".join([*(line(50, y, 450, y) for y in ROWS), line(50, 620, 50, 750), line(150, 620, 150, 750)])
    rules += line(300, 620, 300, 720) + line(450, 620, 450, 750)
    texts: list[Text] = [(55, 732, "Age"), (155, 732, "Share"), (55, 690, "young"), (155, 690, "4"), (305, 690, "5")]
    read = text_of(tmp_path, rules, [*texts, (55, 640, "old"), (155, 640, "6"), (305, 640, "7")])
    assert read == "Age | Share | Share\nyoung | 4 | 5\nold | 6 | 7\n"


FIGURES: list[Text] = [
    *((55, 702, "North"), (155, 702, "12"), (305, 702, "13"), (55, 688, "South"), (155, 688, "14"), (305, 688, "15")),
    *((55, 642, "Sum"), (155, 642, "26"), (305, 642, "28")),
]


def test_rules_around_several_rows_of_figures_do_not_join_them(tmp_path: Path) -> None:
    read = text_of(tmp_path, grid(), [*HEAD, *FIGURES])
    assert read == "Source | Definition | Examples\nNorth | 12 | 13\nSouth | 14 | 15\nSum | 26 | 28\n"


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param([(55, 732, "a line that goes over the rules of the table"), *BODY], id="over a rule"),
        pytest.param([*HEAD, *BODY, (448, 642, "beyond")], id="over the edge"),
        pytest.param([(55, 732, "Only one")], id="nearly empty"),
    ],
)
def test_a_grid_whose_cells_do_not_hold_the_text_is_no_table(tmp_path: Path, texts: list[Text]) -> None:
    drawn, plain = text_of(tmp_path, grid(), texts), text_of(tmp_path, b"", texts)
    assert drawn == plain


def test_a_chart_with_many_lines_and_a_frame_are_no_grids(tmp_path: Path) -> None:
    many = b"".join(line(10 + i % 70 * 8, 20 + i, 15 + i % 70 * 8, 20 + i) for i in range(5100))
    frame = b"20 20 500 700 re S\n"
    for rules in (many + grid(), frame, grid(columns=(50, 450))):
        page = pdfium.PdfDocument(make_pdf(tmp_path / "a.pdf", rules))[0]
        assert grids_on(page) == []
