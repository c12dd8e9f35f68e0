"""Documents that were damaged, or made to do harm: each gives text, or is refused by name, in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from ondevice.bench.reliability.damaged_documents import KINDS, sound
from ondevice.bench.reliability.hostile import spoil_documents
from ondevice.documents import read


@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_what_is_spoilt_was_sound(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(sound(kind))
    document = read(path)
    assert document.kind == kind
    assert [page.problem_code for page in document.pages] == [""] * len(document.pages)
    assert "The lamp was lit at dusk, écru and bright" in document.pages[0].text


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_no_damaged_document_does_harm(part: int, tmp_path: Path) -> None:
    """2,000 in all."""
    *_, tally = spoil_documents(tmp_path, 250, 250 * part)
    assert tally.others == []
    assert tally.slowest < 60.0, "seconds: what opening a file may take"
    assert min(tally.num_fine, tally.num_refused) > 25
