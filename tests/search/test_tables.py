"""Rows of tables that a question names: which, and how they are told."""

from __future__ import annotations

import re

import pytest

from ondevice.search.tables import rows_named, told_of

HARVEST = """The orchards report what they picked, in tonnes, and which kinds they will plant.
Orchard | Keeper |  | 2024 |  |  | 2025 |
 |  | Apples | Pears | Plums | Apples | Pears | Plums
North | Ida | 10 | 11 | 12 | 13 | 14 | 15
North + Mill | Ole | 20 | 21 | 22 | 23 | 24 | 25
Mill
Mill | Ida | 30 | 31 | 32 | 33 | 34 | 35
Table 1: what was picked in two years in each of the orchards.
"""


def told(question: str, *texts: str, is_csv: bool = False) -> str:
    return told_of(rows_named(question, list(enumerate(texts or (HARVEST,))), is_csv=is_csv), question)


def test_a_row_is_told_with_the_names_of_the_columns_that_are_asked_for() -> None:
    assert told("How many pears did North pick in 2025?") == (
        "A table of the document says: Orchard: North; Keeper: Ida; 2025 Pears: 14.\n\n"
    )


def test_without_a_column_in_the_question_all_columns_are_told() -> None:
    assert told("What is known of the keeper Ole of North + Mill?") == (
        "A table of the document says: Orchard: North + Mill; Keeper: Ole; 2024 Apples: 20; 2024 Pears: 21; "
        "2024 Plums: 22; 2025 Apples: 23; 2025 Pears: 24; 2025 Plums: 25.\n\n"
    )


def test_dots_that_lead_to_the_next_cell_are_not_told() -> None:
    costs = "Action | Labor | Parts\nSensor test ........ | $3,400 . . . . | $0 ...\nWiring ..... | $6,715. | $3,790\n"
    assert told("What do labor and parts of the sensor test cost?", costs) == (
        "A table of the document says: Action: Sensor test; Labor: $3,400; Parts: $0.\n\n"
    )


@pytest.mark.parametrize(
    ("asked", "columns"),
    [
        ("cost per airplane", "; Cost per product: $34."),
        ("cost", "; Cost per product: $34; Cost on foreign operators: $99."),  # a word that all of them have
        ("cost per operator", "; Cost per product: $34; Cost on foreign operators: $99."),  # two words of each
    ],
)
def test_the_column_with_most_of_the_words_is_told(asked: str, columns: str) -> None:
    names = "Action | Labor | Cost per product | Cost on foreign operators"
    costs = f"{names}\nSensor test | $7 | $34 | $99\nWiring | $4 | $5 | $6\n"
    assert told(f"What is the {asked} of the sensor test?", costs).strip().endswith(columns)


def test_letters_in_the_name_of_a_column_are_asked_for_too() -> None:
    names = " | Sea | Sea | Air | Rail\n | Mail | Mail y.o.y | Mail | Mail\n"
    mail = f"{names}May | 7 | 1.5 | 3 | 10\nJune | 8 | 2.5 | 4 | 12\n"
    assert told("How much sea mail in May?", mail).strip().endswith("May; Sea Mail: 7.")
    assert told("How much air mail y.o.y in May?", mail).strip().endswith("May; Air Mail: 3.")
    assert told("How was sea mail y.o.y in June?", mail).strip().endswith("; Sea Mail y.o.y: 2.5.")


def test_a_column_beside_one_whose_name_is_over_several_has_its_own() -> None:
    catch = " | Sea | Sea |\nPort | May | June | Sum\nVisby | 1 | 2 | 3\nSlite | 4 | 5 | 9\n"
    assert told("What is the sum of Visby?", catch).strip().endswith("Port: Visby; Sum: 3.")


@pytest.mark.parametrize(
    "above",
    [
        "## 3. | Ports by sea\n",
        "Table 3. | What each port landed\nby kind, 2007\n",
        "Table 3. | What each port landed |  |  |\n",
        "Table 3. | Ports | by sea\n",
    ],
)
def test_a_title_in_columns_names_none_of_the_table_below(above: str) -> None:
    catch = f"{above}Port | Cod (%) | Eel (%) | Total\nVisby | 0 | 99.0 | 482\nSlite | 3.1 | 10.2 | 1,662\n"
    assert told("What share of eel was there at Visby?", catch).strip().endswith("Port: Visby; Eel (%): 99.0.")


def test_names_over_several_columns_whose_line_ends_early_are_told() -> None:
    plants = "Plant |  | Spring |  |  | Autumn\n | Leaves | Buds | Roots | Leaves | Buds | Roots\n"
    rows = "Rose | 11 | 12 | 13 | 14 | 15 | 16\nLily | 21 | 22 | 23 | 24 | 25 | 26\n"
    assert told("How many autumn roots has the rose?", plants + rows).strip().endswith("Plant: Rose; Autumn Roots: 16.")


def test_a_number_sign_begins_the_names_of_a_file_of_rows() -> None:
    rows = "# Port;Cod;Eel\nVisby;7;9\nSlite;8;6\n"
    assert told("How much eel at Visby?", rows, is_csv=True).strip().endswith("# Port: Visby; Eel: 9.")


@pytest.mark.parametrize("period", ["1991-2001", "2009-10", "2012/13", "1961\u20131971"])
def test_periods_are_names_of_columns(period: str) -> None:
    growth = f"Port | {period} | 2013-14\nVisby | 23.1 | 5.5\nSlite | 4.4 | 6.6\n"
    assert f"Port: Visby; {period}: 23.1" in told("How much did Visby grow in each period, in port?", growth)


def test_two_rows_are_compared() -> None:
    assert told("Which picked more plums in 2024, North or Mill?").count("2024 Plums") == 2


@pytest.mark.parametrize(
    "question",
    [
        "What is the North?",  # one cell, and no column
        "How many cherries were picked?",
        "When were the plums planted?",
    ],
)
def test_a_question_about_no_row_is_told_none(question: str) -> None:
    assert not told(question)


def test_more_rows_than_a_few_are_none() -> None:
    rows = "".join(f"Visby | {day} | {day * 3}\n" for day in range(1, 30))
    assert not told("How much rain fell in Visby?", f"Town | Day | Rain\n{rows}")
    assert told("How much rain fell in Visby on 7?", f"Town | Day | Rain\n{rows}") == (
        "A table of the document says: Town: Visby; Day: 7; Rain: 21.\n\n"
    )


def test_tables_without_names_above_their_columns_are_left_alone() -> None:
    assert not told("What did North pick in 2025?", "North | 2 | 3\nMill | 4 | 5\n")


def test_two_tables_in_a_row_have_names_of_their_own() -> None:
    text = "Lamp | Height\nKlinte | 12\nVisby | 30\nLamp | Keeper | Oil\nKlinte | Ida | 7\nVisby | Ole | 8\n"
    assert (
        told("How much oil does the lamp of Visby burn?", text)
        == "A table of the document says: Lamp: Visby; Keeper: Ole; Oil: 8.\n\n"
    )
    assert (
        told("What height has the lamp of Visby?", text) == "A table of the document says: Lamp: Visby; Height: 30.\n\n"
    )


def test_names_in_an_uneven_number_of_columns() -> None:
    text = " | Size |  |  | Weight |\n | length | width | height | net | gross\nBox | 1 | 2 | 3 | 4 | 5\n"
    assert (
        told("What is the gross weight of the box?", text) == "A table of the document says: Box; Weight gross: 5.\n\n"
    )
    assert told("What is the height of the box?", text).endswith("Weight net: 4; Weight gross: 5.\n\n")


def test_tables_of_text() -> None:
    text = " | Norway | Chile\nCapital | Oslo | Santiago\nCoast | long |\n"
    assert (
        told("What is the capital of Chile?", text)
        == "A table of the document says: Capital; Norway: Oslo; Chile: Santiago.\n\n"
    )


def test_endings_are_no_difference() -> None:
    text = "Dataset | Train | Test\nSquares | 100 | 20\nCircles | 300 | 40\n"
    assert (
        told("How many examples of a square were used for training?", text)
        == "A table of the document says: Dataset: Squares; Train: 100.\n\n"
    )
    assert told("How many circles are tested?", text) == "A table of the document says: Dataset: Circles; Test: 40.\n\n"


def test_markdown_and_commas() -> None:
    text = "| Pump | Flow | Price |\n|---|:-:|---|\n| P-1 | 20 | 300 |\n| P-2 | 25 | 350 |\n"
    assert (
        told("What is the price of the pump P-2?", text) == "A table of the document says: Pump: P-2; Price: 350.\n\n"
    )
    text = 'pump,flow,price\nP-1,20,"1,300"\nP-2,25,"1,350"\n'
    assert (
        told("What is the price of the pump P-2?", text, is_csv=True)
        == "A table of the document says: pump: P-2; price: 1,350.\n\n"
    )


def test_what_a_row_is_called_is_told_with_it() -> None:
    rows = "1/2/2015 | AT&T, Inc. | San Ramon | 219\n3/2/2015 | Brel, Inc. | San Ramon | 102\n"
    text = f"Date | Company | Town | Staff\n{rows}"
    assert told("When did the staff of Brel in San Ramon go?", text) == (
        "A table of the document says: Company: Brel, Inc.; Town: San Ramon; Staff: 102.\n\n"
    )
    text = text.replace(", Inc.", "")
    assert told("How many went at AT&T in San Ramon?", text) == (
        "A table of the document says: Date: 1/2/2015; Company: AT&T; Town: San Ramon; Staff: 219.\n\n"
    )


def test_a_table_that_goes_on_over_a_page_keeps_the_names_of_its_columns() -> None:
    first = "Prices of the mill.\nName | Price | Stock\nOats | 3.50 | 1\nRye | 6.50 | 2\n"
    asked = "What is the price of Barley?"
    told_ = "A table of the document says: Name: Barley; Price: 9.50.\n\n"
    assert told(asked, first, "Wheat | 7.50 | 4\nBarley | 9.50 | 3\n") == told_
    assert told(asked, first, "Wheat | 7.50 | 4\n", "Prices, page 3\nBarley | 9.50 | 3\n") == told_
    assert not told(asked, first, "Wheat | 7.50\nBarley | 9.50\n")  # other columns
    assert not told(asked, first, "So much for the mill, and now for what the farms have to sell:\nBarley | 9.50 | 3\n")
    assert told("What is the weight of Barley?", first, "Name | Weight | Bags\nBarley | 50 | 3\n").count("Weight: 50")


def test_rows_have_their_place() -> None:
    (row,) = rows_named("How many pears did Ole pick in 2025 in North + Mill?", [(3, HARVEST)])
    assert (row.page_index, HARVEST[row.start : row.stop]) == (3, "North + Mill | Ole | 20 | 21 | 22 | 23 | 24 | 25\n")


def test_no_more_is_told_than_is_read_quickly() -> None:
    text = "Name | Note\n" + "".join(f"Ida {i} | {'word ' * 60}\n" for i in range(6))
    assert 600 < len(told("What note is there of Ida?", text)) < 1_300


def test_a_column_without_a_name_is_told_with_the_one_before() -> None:
    text = "Dataset | Train |  | Test\nSquares | 100 | 90 | 20\n"
    assert (
        told("How many squares are trained on?", text)
        == "A table of the document says: Dataset: Squares; Train: 100; 90.\n\n"
    )


@pytest.mark.parametrize("corner", ["", "Region\n", " | "])
def test_a_first_column_without_a_name_moves_no_other(corner: str) -> None:
    text = f"{corner}2003–04 | 2004–05\nIllinois | 124,763 | 123,615\nIndiana | 56,008 | 55,444\nTotal |\n"  # noqa: RUF001
    assert "Illinois; 2003–04: 124,763." in told("How many were there in Illinois in 2003-04?", text)  # noqa: RUF001


def test_names_over_several_columns_have_others_below() -> None:
    names = " | 2021 | 2021 | 2020 | 2020\nQuarter ended | High | Low | High | Low\n"
    text = f"{names}March 31 | 3.02 | 1.72 | 1.95 | 0.70\n"
    words = " | Seat | Seat\nBob | Bern | by the lake\nAnn | Rome | downtown\n"
    assert "Bob; Seat: Bern; Seat: by the lake." in told("Which seat has Bob at the lake?", words)
    assert "March 31; 2021 High: 3.02." in told("What was the high in the quarter ended March 31, 2021?", text)


def test_hostile_tables_take_no_time() -> None:
    dots = "1" + "." * 200_000 + "a"
    assert not told("How many lamps?", f"Lamp | Oil\n{dots} | {dots}\n" + "a | b\n" * 50_000)


YEARS = "Line | FY 2019 | 2020 | 2021 (restated) | Net 2022\nRevenue | 10 | 99 | 12 | 13\nCosts | 1 | 2 | 3 | 4\n"


@pytest.mark.parametrize(
    ("question", "columns"),
    [
        ("In which year between 2019 and 2021 was revenue highest?", 3),
        ("Compare revenue in 2019 with 2021", 3),
        ("What was revenue in 2021?", 1),
        ("What was revenue in 2021 and 2030?", 4),  # which it has not, or calls otherwise
    ],
)
def test_years_are_told_in_other_words_and_with_those_between(question: str, columns: int) -> None:
    assert len(re.findall(r"20\d\d", told(question, YEARS))) == columns


def test_rows_of_several_places_are_told_with_them_unless_one_is_named() -> None:
    head = "Product | 2022 | 2023\n"
    text = f"{head}Widgets | 5 | 7\n\nAnd of the other country this long line tells:\n\n{head}Widgets | 8 | 9\n"
    half = text.index("And of")

    def place(page_index: int, start: int) -> str:
        return "Germany" if start < half else "France"

    def rows(question: str) -> list[str]:
        return [row.told({"2023"}) for row in rows_named(question, [(0, text)], place)]

    assert rows("How many widgets were sold in France in 2023?") == ["Product: Widgets; 2023: 9."]
    assert rows("How many widgets were sold in 2023?") == [
        "Germany: Product: Widgets; 2023: 7.",
        "France: Product: Widgets; 2023: 9.",
    ]


@pytest.mark.parametrize(
    "between",
    ["\nAnother long line tells what the club does.\n2021\n", "2021\n", " |  | Yen |\n |  | 2021 |\n"],
    ids=["apart", "in one go", "rows of one cell"],
)
def test_of_tables_of_several_years_the_one_that_the_lines_above_it_name_is_told(between: str) -> None:
    names, rows = " | Shares | Rest | Total\n", "Start | 5 | 2 | 7\nGifts | 1 | 1 | 2\nEnd | {} | 1 | 9\n"
    text = f"Yen\n2020\n{names}{rows.format(6)}{between}{names}{rows.format(8)}"
    for year, figure in ((2020, 6), (2021, 8)):
        asked = f"What were the shares at the end of {year}?"
        assert told(asked, text).endswith(f"Shares: {figure}.\n\n")
        assert told(asked, text).count("End;") == told(f"How large were gifts in {year}?", text).count("Gifts;") == 1
    assert told("What were the shares at the end?", text).count("End;") == 2


def test_the_mark_between_cells_is_the_one_that_parts_all_lines_alike() -> None:
    text = "Artikel;Preis, EUR\nMutter;2,30\nSchraube;1,10\n"
    assert told("Was ist der Preis von Mutter?", text, is_csv=True) == (
        "A table of the document says: Artikel: Mutter; Preis, EUR: 2,30.\n\n"
    )
