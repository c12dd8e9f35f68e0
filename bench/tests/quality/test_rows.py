"""Rows of LongBench and of L-Eval: what becomes of them, which are chosen, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ondevice.errors import ConfigError
from ondevice_bench.quality.rows import Text, read_texts, select

CHOICE = "What was blue?\n\n (A) a boat\n (B) a bird \n (C) (none)\n (D) the sea"
LONGBENCH = {
    "input": "Who lit it?", "context": "A keeper.", "answers": ["keeper", "the keeper"], "length": 2,
    "dataset": "qasper", "language": "en", "all_classes": None, "_id": "abc",
}  # fmt: skip
LEVAL = {
    "input": "The sea was blue.",
    "instructions": ["How was it? ", CHOICE],
    "outputs": ["blue", "(D) the sea"],
    "source": "quality",
    "evaluation": "exam",
}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n", encoding="utf-8")
    return path


def test_a_row_of_longbench_has_one_question(tmp_path: Path) -> None:
    classes = LONGBENCH | {"all_classes": ["City"], "dataset": "trec"}
    one, other = read_texts(write(tmp_path / "rows.jsonl", LONGBENCH, classes))
    assert (one.task, one.name, one.text) == ("qasper", "abc", "A keeper.")
    (question,) = one.questions
    assert (question.text, question.references, question.choices) == ("Who lit it?", ("keeper", "the keeper"), ())
    assert other.questions[0].classes == ("City",)


def test_a_row_of_l_eval_has_many_and_choices_apart(tmp_path: Path) -> None:
    (text,) = read_texts(write(tmp_path / "quality.jsonl", LEVAL))
    assert (text.task, text.name) == ("quality", "1")
    free, choice = text.questions
    assert (free.text, free.references, free.choices) == ("How was it?", ("blue",), ())
    assert choice.text == "What was blue?"
    assert choice.choices == ("a boat", "a bird", "(none)", "the sea")
    assert choice.references == ("D",)


@pytest.mark.parametrize("right", ["Dover", "E", "the sea"])
def test_what_names_no_choice_is_a_free_answer(tmp_path: Path, right: str) -> None:
    row = LEVAL | {"instructions": [CHOICE], "outputs": [right]}
    (question,) = read_texts(write(tmp_path / "a.jsonl", row))[0].questions
    assert question.choices == ()
    assert question.references == (right,)


def test_rows_for_people_or_a_judge_are_left_out_and_a_folder_is_read_in_order(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", LEVAL, LEVAL | {"evaluation": "human"}, LEVAL | {"evaluation": "LLM"})
    write(tmp_path / "a.jsonl", LONGBENCH)
    (tmp_path / "note.txt").write_text("no row")
    assert [(text.task, text.name) for text in read_texts(tmp_path)] == [("qasper", "abc"), ("b", "1")]


@pytest.mark.parametrize("line", ["no json", "[]", '{"input": "a"}', '{"context": 3, "input": "", "answers": []}'])
def test_what_is_no_row_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "rows.jsonl", LONGBENCH)
    path.write_text(path.read_text().strip() + "\n" + line)
    with pytest.raises(ConfigError, match="Line 2 is no row"):
        read_texts(path)


def test_missing_files_and_empty_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_texts(tmp_path / "missing.jsonl")
    with pytest.raises(ConfigError, match="There is no row"):
        read_texts(tmp_path)


def texts(path: Path) -> list[Text]:
    rows = [
        LEVAL | {"input": "x" * size, "instructions": [f"q{i}" for i in range(9)], "outputs": ["a"] * 9}
        for size in range(10, 60)
    ]
    return read_texts(write(path / "rows.jsonl", *rows))


def test_the_seed_decides_which_texts_and_questions_are_chosen(tmp_path: Path) -> None:
    def chosen(seed: int, limit: int | None = 5, questions: int | None = 3) -> list[Text]:
        found = select(texts(tmp_path), seed, limit=limit, questions=questions, lengths=(None, None), count=len)
        return [text for text, _ in found]

    assert chosen(0) == chosen(0)
    assert chosen(0) != chosen(1)
    assert chosen(0, limit=9)[:5] == chosen(0), "more texts go on where fewer ended"
    assert len({text.name for text in chosen(0, None)}) == 50
    numbers = [[question.number for question in text.questions] for text in chosen(0)]
    assert all(len(of) == 3 and of == sorted(of) for of in numbers)
    assert len({tuple(of) for of in numbers}) > 1
    assert all(len(text.questions) == 9 for text in chosen(0, questions=None))


def test_texts_are_chosen_by_their_length(tmp_path: Path) -> None:
    found = list(select(texts(tmp_path), 0, limit=None, questions=None, lengths=(20, 30), count=len))
    assert sorted(num_tokens for _, num_tokens in found) == list(range(20, 31))
    few = list(select(texts(tmp_path), 0, limit=4, questions=None, lengths=(20, 30), count=len))
    assert few == found[:4]
