"""The English tasks of LongBench v1: prompts, longest answers and metrics, as published (THUDM/LongBench, MIT)."""

from __future__ import annotations

from dataclasses import dataclass

from ondevice_bench.quality import scores
from ondevice_bench.quality.scores import Score

_PASSAGES = "Only give me the answer and do not output any other words."
_CONCISE = "asconcisely as you can, using a single phrase if possible. Do not provide any explanation."  # as published
_QASPER = (
    "as concisely as you can, using a single phrase or sentence if possible. If the question cannot be answered based "
    'on the information in the article, write "unanswerable". If the question is a yes/no question, answer "yes", '
    '"no", or "unanswerable". Do not provide any explanation.'
)


@dataclass(frozen=True, slots=True)
class Task:
    """One task.

    Attributes:
        head, tail: its prompt before and after the context; `tail` holds `{input}` where the task has one.
        max_new_tokens: of an answer.
        score: its metric.
        chat: whether a chat template goes around the prompt; not around the few-shot tasks and code.
        first_line: whether the answer is cut to its first line before it is scored.
        stops_at_newline: whether a line break ends the answer.
    """

    head: str
    tail: str
    max_new_tokens: int
    score: Score
    chat: bool = True
    first_line: bool = False
    stops_at_newline: bool = False

    def question(self, input: str) -> str:
        """The text after the context."""
        return self.tail.replace("{input}", input)

    def scored(self, answer: str) -> str:
        """The part of an answer that counts."""
        return scores.first_line(answer) if self.first_line else answer

    def is_settled(self, answer: str) -> bool:
        """True if what may still come no longer matters."""
        if self.stops_at_newline and "\n" in answer[1:]:
            return True
        if self.first_line:
            return "\n" in answer.lstrip("\n")
        if self.score is scores.code_similarity:
            return scores.first_code_line(answer.rpartition("\n")[0]) not in (None, "")
        return False

    def rate(self, answer: str, references: tuple[str, ...], classes: tuple[str, ...]) -> float:
        """The score of an answer, 0 to 1."""
        return scores.best(self.score, self.scored(answer), references, classes)


def _passages() -> Task:
    return Task(
        f"Answer the question based on the given passages. {_PASSAGES}\n\nThe following are given passages.\n",
        f"\n\nAnswer the question based on the given passages. {_PASSAGES}\n\nQuestion: {{input}}\nAnswer:",
        32,
        scores.qa_f1,
    )


TASKS = {
    "narrativeqa": Task(
        "You are given a story, which can be either a novel or a movie script, and a question. Answer the question "
        f"{_CONCISE}\n\nStory: ",
        f"\n\nNow, answer the question based on the story {_CONCISE}\n\nQuestion: {{input}}\n\nAnswer:",
        128,
        scores.qa_f1,
    ),
    "qasper": Task(
        f"You are given a scientific article and a question. Answer the question {_QASPER}\n\nArticle: ",
        f"\n\n Answer the question based on the above article {_QASPER}\n\nQuestion: {{input}}\n\nAnswer:",
        128,
        scores.qa_f1,
    ),
    "multifieldqa_en": Task(
        "Read the following text and answer briefly.\n\n",
        "\n\nNow, answer the following question based on the above text, only give me the answer and do not output any "
        "other words.\n\nQuestion: {input}\nAnswer:",
        64,
        scores.qa_f1,
    ),
    "hotpotqa": _passages(),
    "2wikimqa": _passages(),
    "musique": _passages(),
    "gov_report": Task(
        "You are given a report by a government agency. Write a one-page summary of the report.\n\nReport:\n",
        "\n\nNow, write a one-page summary of the report.\n\nSummary:",
        512,
        scores.rouge_l,
    ),
    "qmsum": Task(
        "You are given a meeting transcript and a query containing a question or instruction. Answer the query in one "
        "or more sentences.\n\nTranscript:\n",
        "\n\nNow, answer the query based on the above meeting transcript in one or more sentences.\n\n"
        "Query: {input}\nAnswer:",
        512,
        scores.rouge_l,
    ),
    "multi_news": Task(
        "You are given several news passages. Write a one-page summary of all news. \n\nNews:\n",
        "\n\nNow, write a one-page summary of all the news.\n\nSummary:",
        512,
        scores.rouge_l,
    ),
    "trec": Task(
        "Please determine the type of the question below. Here are some examples of questions.\n\n",
        "\n{input}",
        64,
        scores.classification,
        chat=False,
        first_line=True,
    ),
    "triviaqa": Task(
        f"Answer the question based on the given passage. {_PASSAGES} The following are some examples.\n\n",
        "\n\n{input}",
        32,
        scores.qa_f1,
        chat=False,
        first_line=True,
    ),
    "samsum": Task(
        "Summarize the dialogue into a few short sentences. The following are some examples.\n\n",
        "\n\n{input}",
        128,
        scores.rouge_l,
        chat=False,
        first_line=True,
        stops_at_newline=True,
    ),
    "passage_count": Task(
        "There are some paragraphs below sourced from Wikipedia. Some of them may be duplicates. Please carefully read "
        "these paragraphs and determine how many unique paragraphs there are after removing duplicates. In other "
        "words, how many non-repeating paragraphs are there in total?\n\n",
        "\n\nPlease enter the final count of unique paragraphs after removing duplicates. The output format should "
        "only contain the number, such as 1, 2, 3, and so on.\n\nThe final answer is: ",
        32,
        scores.count,
    ),
    "passage_retrieval_en": Task(
        "Here are 30 paragraphs from Wikipedia, along with an abstract. Please determine which paragraph the abstract "
        "is from.\n\n",
        "\n\nThe following is an abstract.\n\n{input}\n\nPlease enter the number of the paragraph that the abstract is "
        'from. The answer format must be like "Paragraph 1", "Paragraph 2", etc.\n\nThe answer is: ',
        32,
        scores.retrieval,
    ),
    "lcc": Task(
        "Please complete the code given below. \n", "Next line of code:\n", 64, scores.code_similarity, chat=False
    ),
    "repobench-p": Task(
        "Please complete the code given below. \n",
        "{input}Next line of code:\n",
        64,
        scores.code_similarity,
        chat=False,
    ),
}
