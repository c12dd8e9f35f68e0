"""The file of a document whose pages are shown: drawn once, remembered within a bound, gone with the document."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ondevice.documents.pictures import PagePicture
from ondevice.errors import DocumentError
from ondevice.serving import page_file
from ondevice.serving.page_file import PageFile


class Drawer:
    """Stands in for the child process; counts."""

    def __init__(self) -> None:
        self.drawn: list[int] = []

    def __call__(self, path: Path, number: int, password: str | None, **beside: object) -> list[PagePicture]:
        self.drawn.append(number)
        if number == 13:
            raise DocumentError("it is too damaged", where="page 13")
        return [PagePicture(b"x" * 1000, 10, 10, "", np.empty((0, 4), np.int32))]


@pytest.fixture
def drawer(monkeypatch: pytest.MonkeyPatch) -> Drawer:
    drawer = Drawer()
    monkeypatch.setattr(page_file, "draw_pages", drawer)
    return drawer


def test_a_page_is_drawn_once_and_so_is_a_failure(drawer: Drawer) -> None:
    file = PageFile(Path("a.pdf"))
    assert file.page(1) is file.page(1)
    for _ in range(2):
        with pytest.raises(DocumentError, match="too damaged"):
            file.page(13)
    assert drawer.drawn == [1, 13]


def test_pictures_are_remembered_within_a_bound(drawer: Drawer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_file, "MOST_BYTES", 3000)
    file = PageFile(Path("a.pdf"))
    for number in (1, 2, 3, 4, 4, 1):
        file.page(number)
    assert drawer.drawn == [1, 2, 3, 4, 1], "the oldest had to go"


def test_one_page_is_drawn_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_file, "_PATIENCE_SECONDS", 0.01)
    with page_file._drawing, pytest.raises(DocumentError, match="other pages are being drawn"):
        PageFile(Path("a.pdf")).page(1)
