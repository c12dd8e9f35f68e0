"""Search for the document that a question is about: the rows, and a measurement of two ways to choose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ondevice.config import PotConfig
from ondevice.documents import Document
from ondevice.errors import ConfigError
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.quality.run_find import measure_finding, read_rows
from tests.builders.models import plain_config, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = Engine(tiny_loaded(), plain_config(pot=PotConfig(capacity=512, num_kept=128, reserve=96)))
ROWS = (
    ("Who lit the lamp?", "Passage 1:\nAnn Lee lit the lamp.\nPassage 2:\nA boat went out at noon.\n", ["Ann Lee"]),
    ("Did it rain?", "Passage 1:\nIt rained.\nPassage 2:\nIt did not.\n", ["yes"]),
    ("Which hill?", "Passage 1:\nRain fell on Gallow Hill.\nPassage 2:\nGallow Hill is high.\n", ["Gallow Hill"]),
)  # fmt: skip


def setup() -> Setup:
    def nothing_to_open(path: Path) -> Document:
        raise AssertionError(path)

    return Setup(ENGINE, lambda *stage: None, nothing_to_open, {}, (), None)


def write(path: Path) -> Path:
    lines = [json.dumps({"input": text, "context": context, "answers": found}) for text, context, found in ROWS]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_passages_are_documents_and_only_those_with_the_answer_are_right(tmp_path: Path) -> None:
    documents, questions = read_rows([write(tmp_path / "rows.jsonl")], None)
    assert len(documents) == 6
    assert [(one.text, one.right) for one in questions] == [("Who lit the lamp?", (0,))], (
        "all passages, or none, say little"
    )
    (tmp_path / "other.jsonl").write_text("{}", encoding="utf-8")
    for wrong in ("other.jsonl", "none.jsonl"):
        with pytest.raises(ConfigError, match="no file of LongBench"):
            read_rows([tmp_path / wrong], None)
    (tmp_path / "empty.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="No row"):
        read_rows([tmp_path / "empty.jsonl"], None)


def test_two_ways_to_choose_are_measured(tmp_path: Path) -> None:
    table = measure_finding(setup(), [write(tmp_path / "rows.jsonl")], None, 64)
    assert table.summary["bm25_found_in_1"] == 1.0
    assert 0.0 <= table.summary["index_found_in_1"] <= table.summary["index_found_in_10"] == 1.0
    assert {one.contender for one in table.rows} == {"index", "bm25"}
    shares = {f"{one.contender}_found_in_{one.case['among']}": one.p50 for one in table.rows}
    assert shares == table.summary
