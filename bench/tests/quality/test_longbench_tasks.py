"""The tasks of LongBench: prompts as published, lengths, and when what may still come no longer matters."""

from __future__ import annotations

import pytest

from ondevice_bench.quality.longbench_tasks import TASKS
from ondevice_bench.quality.scores import classification, code_similarity, count, qa_f1, retrieval, rouge_l

LENGTHS = {
    "narrativeqa": 128, "qasper": 128, "multifieldqa_en": 64, "hotpotqa": 32, "2wikimqa": 32, "musique": 32,
    "gov_report": 512, "qmsum": 512, "multi_news": 512, "trec": 64, "triviaqa": 32, "samsum": 128,
    "passage_count": 32, "passage_retrieval_en": 32, "lcc": 64, "repobench-p": 64,
}  # fmt: skip


def test_the_tasks_are_the_published_ones() -> None:
    assert {name: task.max_new_tokens for name, task in TASKS.items()} == LENGTHS
    assert {name for name, task in TASKS.items() if not task.chat} == {
        "trec", "triviaqa", "samsum", "lcc", "repobench-p",
    }  # fmt: skip
    assert {name for name, task in TASKS.items() if task.first_line} == {"trec", "triviaqa", "samsum"}
    assert {name for name, task in TASKS.items() if task.stops_at_newline} == {"samsum"}
    by_score = {name: task.score for name, task in TASKS.items() if task.score is not qa_f1}
    assert by_score == {
        "gov_report": rouge_l, "qmsum": rouge_l, "multi_news": rouge_l, "samsum": rouge_l, "trec": classification,
        "passage_count": count, "passage_retrieval_en": retrieval, "lcc": code_similarity,
        "repobench-p": code_similarity,
    }  # fmt: skip


def test_prompts_are_the_published_ones() -> None:
    def prompt(name: str) -> str:
        return f"{TASKS[name].head}CONTEXT{TASKS[name].question('INPUT {x}')}"

    assert prompt("hotpotqa") == (
        "Answer the question based on the given passages. Only give me the answer and do not output any other words."
        "\n\nThe following are given passages.\nCONTEXT\n\nAnswer the question based on the given passages. Only give "
        "me the answer and do not output any other words.\n\nQuestion: INPUT {x}\nAnswer:"
    )
    assert prompt("narrativeqa").endswith(
        "Now, answer the question based on the story asconcisely as you can, using a single phrase if possible. Do not "
        "provide any explanation.\n\nQuestion: INPUT {x}\n\nAnswer:"
    )
    assert prompt("trec") == (
        "Please determine the type of the question below. Here are some examples of questions.\n\nCONTEXT\nINPUT {x}"
    )
    assert prompt("repobench-p") == "Please complete the code given below. \nCONTEXTINPUT {x}Next line of code:\n"
    assert prompt("multi_news") == (
        "You are given several news passages. Write a one-page summary of all news. \n\nNews:\nCONTEXT\n\nNow, write a "
        "one-page summary of all the news.\n\nSummary:"
    )


@pytest.mark.parametrize("name", TASKS)
def test_an_answer_that_is_settled_scores_as_a_longer_one(name: str) -> None:
    task, answer = TASKS[name], "\nParagraph 7 City\n# x\n  foo = 1\nbar = 2\n"
    references, classes = ("Paragraph 7 City",), ("City", "Date")
    for end in range(len(answer) + 1):
        if task.is_settled(answer[:end]) and not task.stops_at_newline:
            whole = task.rate(answer, references, classes)
            assert task.rate(answer[:end], references, classes) == whole
            break
    else:
        assert task.stops_at_newline or not (task.first_line or task.score is code_similarity)


def test_samsum_stops_at_a_line_break_and_code_after_its_first_line() -> None:
    assert TASKS["samsum"].is_settled("They met.\n")
    assert not TASKS["samsum"].is_settled("\nThey met.")
    assert not TASKS["lcc"].is_settled("# a comment\n")
    assert not TASKS["lcc"].is_settled("# a comment\n  x = 1")
    assert TASKS["lcc"].is_settled("# a comment\n  x = 1\n")
    assert not TASKS["qasper"].is_settled("Yes\nNo\n")
    assert TASKS["trec"].rate("\nCity\nDate", ("City",), ("City", "Date")) == 1.0
