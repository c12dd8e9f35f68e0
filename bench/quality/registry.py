"""The commands of `ondevice eval`: a row for each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from ondevice_bench.quality.entry import FLOATS, INTS, Entry, Option

_SCHEDULES = (
    "off 15:50%,22:25% auto 10:50% 8:50%,16:25% 6:50%,12:25% 4:50%,8:25% 2:50%,4:25% 10:25%,20:12.5% 6:25%,12:12.5%"
)
_TAUS = "1e-4,3e-4,1e-3,2e-3,3e-3,5e-3,1e-2,2e-2,5e-2"
_TEXT = Option("text", Path, "The document to read and recall.", ...)
_TOKENS = Option("tokens", int, "Read only its beginning.", shown="all of it")
_BEGINNING = Option("tokens", int, "Read only the beginning of the text.", 2048)
_SPANS = Option("spans", int, "Places that are recalled.", 12, min=1)
_DEPTHS = Option("depths", FLOATS, "Where the key is hidden, as shares of the text.", "0.1,0.5,0.9")
_CHOICE_OF_ROWS = (
    Option(
        "contenders",
        str,
        "Who answers: default, pot, pot+tier, full, truncation, bm25, minilm, fused, none; oracle, which is shown the "
        "right passage, and oracle+, others beside it; pot-int8, pot-k8v4 and pot-int4 in the bytes of the pot, "
        "pot-int8-bf16 and pot-int4-bf16 in those of a bfloat16 cache; foresight-int8, foresight-k8v4, foresight-int4 "
        "in those of the pot; a policy, without a host tier; or paper-sliminfer, paper-art, paper-specprefill-10, -30, "
        "-50: a full cache of what a paper's method reads for one question.",
        "",
        shown="all but policies",
    ),
    Option(
        "budget", int, "Tokens that each contender holds, question and answer among them.", shown="--capacity", min=16
    ),
    Option("min_tokens", int, "Leave shorter texts out."),
    Option("max_tokens", int, "Leave longer texts out."),
)
_LENGTH = Option("length", int, "Tokens of a passkey prompt.", 2048)

EVALUATIONS = (
    Entry(
        "passkey",
        "ondevice_bench.quality.run_passkey",
        "Hide a number in a long text and ask for it.",
        (
            Option("lengths", INTS, "Prompt lengths in tokens.", "4096,16384"),
            _DEPTHS,
            Option("trials", int, "Trials for each length and depth.", 1),
            Option(
                "late_question",
                bool,
                "Whether the question comes only after reading, or is the catalyst that the text is read with.",
                True,
                flag="--late-question/--known-question",
            ),
            Option(
                "together",
                bool,
                "Hide the keys of all depths in one text, each with a name, and read that once: faster, and harder.",
                False,
                flag="--together",
            ),
        ),
        resumes=True,
        grid="lengths",
    ),
    Entry(
        "answers",
        "ondevice_bench.quality.run_answers",
        "Ask questions about documents, and answer them in several ways: pot, full cache, search, the right passage.",
        (
            Option("data", Path, "Rows of L-Eval or LongBench: a .jsonl file, or a folder of them.", ...),
            Option("limit", int, "Documents, at most.", min=1, shown="all"),
            Option("questions", int, "Questions to each document, at most.", min=1, shown="all"),
            *_CHOICE_OF_ROWS,
            Option("new_tokens", int, "The longest answer, in tokens.", 64, min=1),
            Option(
                "half", Literal["both", "choose", "report"], "Half of the documents: one to choose settings by.", "both"
            ),
            Option("foreign", int, "Questions of other documents put to each, which it should refuse.", 1, min=0),
            Option(
                "readings",
                Path,
                "Folder that keeps what was read, for the next run; to be emptied where reading itself has changed.",
                shown="nothing is kept",
            ),
        ),
        resumes=True,
        grid="contenders",
        fits_text=True,
    ),
    Entry(
        "tables",
        "ondevice_bench.quality.run_tables",
        "Ask for the cells of made tables: with the rows told that a question names, and without.",
        (
            Option("tables", int, "Tables that are made.", 12, min=1),
            Option("questions", int, "Cells of each that are asked for.", 8, min=1),
        ),
    ),
    Entry(
        "longbench",
        "ondevice_bench.quality.run_longbench",
        "LongBench v1 in English, with its own prompts and metrics: pot, full cache, truncation, retrieval.",
        (
            Option("data", Path, "Rows of LongBench: a .jsonl file, or a folder of them.", ...),
            Option("tasks", str, "Tasks, with commas between them.", "", shown="all"),
            Option("limit", int, "Rows of each task, at most.", min=1, shown="all"),
            *_CHOICE_OF_ROWS,
        ),
        resumes=True,
        grid="contenders",
        fits_text=True,
    ),
    Entry(
        "ruler",
        "ondevice_bench.quality.run_ruler",
        "The 13 tasks of RULER at any length: needles, variables, words and questions; policies and retrieval.",
        (
            Option("length", int, "Tokens of a prompt with its answer.", 4096, min=64),
            Option("rows", int, "Rows of each task.", 5, min=1),
            Option("tasks", str, "Tasks, with commas between them.", "", shown="all"),
            Option("text", Path, "The text that needles are hidden in, where RULER takes essays."),
            Option("squad", Path, "SQuAD 2.0 as published (.json), for qa_1."),
            Option("hotpot", Path, "HotpotQA with distractors as published (.json), for qa_2."),
            *_CHOICE_OF_ROWS[:2],
        ),
        resumes=True,
        grid="contenders",
    ),
    Entry(
        "babilong",
        "ondevice_bench.quality.run_babilong",
        "Tasks qa1 to qa5 of BABILong at any length: facts of a story among the sentences of a book.",
        (
            Option("data", Path, "The folder of bAbI's files in English, as published (qa1_..._test.txt).", ...),
            Option("text", Path, "The text that stories are told in."),
            Option("lengths", INTS, "Tokens of a prompt with its answer; 0: the story alone.", "0,4096,16384"),
            Option("rows", int, "Stories of each task, the same at every length.", 10, min=1),
            Option("tasks", str, "Tasks, with commas between them.", "", shown="all"),
            Option(
                "together",
                bool,
                "Tell all stories in one book, each with words of its own, and read that once: faster, and harder.",
                False,
                flag="--together",
            ),
            *_CHOICE_OF_ROWS[:2],
        ),
        resumes=True,
        grid="lengths",
    ),
    Entry(
        "recall",
        "ondevice_bench.quality.recall",
        "Continue a document from inside it, after reading all of it, beside a full cache and no document at all.",
        (_TEXT, _TOKENS, _SPANS),
    ),
    Entry(
        "retention",
        "ondevice_bench.quality.run_retention",
        "Policies by compression: what pots of several sizes still know of a text, and how fast it is read into them.",
        (
            replace(_TEXT, help="The text to read and recall, and that needles are hidden in."),
            Option("length", int, "Tokens of a text.", 4096, min=512),
            Option("ratios", INTS, "How many times as many tokens a text has as the pot has slots.", "4,8"),
            Option(
                "policies",
                str,
                "Contenders as for `eval ruler`; the first is that of the figures without a name.",
                "infinipot,infinipot-published,repeat,streaming-llm,random",
            ),
            Option("rows", int, "Rows of each of RULER's nine tasks without questions; 0: recall alone.", 1, min=0),
            _SPANS,
        ),
        resumes=True,
        grid="ratios",
    ),
    Entry(
        "hit-rate",
        "ondevice_bench.quality.hit_rate",
        "How much of what questions look at in a full cache a pot holds after each distillation.",
        (
            replace(_TEXT, help="The text to read."),
            _BEGINNING,
            replace(_SPANS, default=12, help="Places of the text whose words are the questions."),
            Option(
                "contenders",
                str,
                "As for `eval ruler`, and published-asked, whose catalyst is the question.",
                "infinipot-published,published-asked,published-alpha-1,infinipot,streaming-llm,random",
            ),
            _CHOICE_OF_ROWS[1],
        ),
    ),
    Entry(
        "collection",
        "ondevice_bench.quality.run_collection",
        "LongBench's questions over passages, each a document: asked together, beside the right ones and search.",
        (
            Option("data", Path, "Rows of hotpotqa, 2wikimqa, musique: a .jsonl file, or a folder of them.", ...),
            Option("limit", int, "Rows of each task, at most.", min=1, shown="all"),
            Option("new_tokens", int, "The longest answer, in tokens.", 64, min=1),
        ),
        resumes=True,
        fits_text=True,
    ),
    Entry(
        "find",
        "ondevice_bench.quality.run_find",
        "Which of many documents a question is about: the index of the library, beside BM25.",
        (
            Option("data", Path, "Rows of LongBench over several passages: a .jsonl file, or a folder of them.", ...),
            Option("limit", int, "Rows of each file, at most.", min=1, shown="all"),
            Option("tokens", int, "Tokens of a document, at most.", 512, min=64),
        ),
    ),
    Entry(
        "scan",
        "ondevice_bench.quality.run_scan",
        "List and count things over a text: by a scan, by asking, by a search, with a full cache.",
        (
            replace(_TEXT, help="The text among whose sentences the things are scattered."),
            Option("lengths", INTS, "Tokens of a document.", "4096,8192"),
            Option("trials", int, "Documents of each length; codes, names and dates take turns.", 3, min=1),
        ),
        resumes=True,
        grid="lengths",
    ),
    Entry(
        "changes",
        "ondevice_bench.quality.run_changes",
        "Ask what changed between two versions of a text: the comparison, a search, a full cache of both.",
        (
            replace(_TEXT, help="The text among whose sentences the changes stand."),
            Option("lengths", INTS, "Tokens of a version.", "2048"),
            Option("trials", int, "Pairs of versions of each length.", 8, min=1),
        ),
        resumes=True,
    ),
    Entry(
        "perplexity",
        "ondevice_bench.quality.perplexity",
        "How well the next tokens of a text are predicted while it is read: pot, StreamingLLM, a full cache.",
        (
            replace(_TEXT, help="The text to read."),
            _TOKENS,
            Option("places", int, "Places, evenly over the text, at which reading stops.", 16, min=1),
            replace(_CHOICE_OF_ROWS[0], help="Policies, pot, pot+tier, full.", shown="pot,streaming-llm,full"),
            _CHOICE_OF_ROWS[1],
        ),
    ),
    Entry(
        "sources",
        "ondevice_bench.quality.sources",
        "Hide a sentence in a text and ask for it: is it among the passages that the answer is said to have looked at?",
        (
            replace(_TEXT, help="The text that sentences are hidden in."),
            Option("trials", int, "Sentences to hide, one at a time.", 24, min=1),
        ),
    ),
    Entry(
        "art-curve",
        "ondevice_bench.quality.art_curve",
        "How much of the pot rules of run-time termination leave unread, and how much of the text they lose.",
        (
            _TEXT,
            Option(
                "taus",
                FLOATS,
                "Thresholds, each for all heads, with the patience that is usual without a calibration.",
                _TAUS,
            ),
            _TOKENS,
            _SPANS,
        ),
    ),
    Entry(
        "slim-curve",
        "ondevice_bench.quality.slim_curve",
        "How much faster pruning schedules read, and how much of the text they lose: the trade-off as a curve.",
        (
            _TEXT,
            Option("schedules", str, "Pruning schedules as for --slim, with spaces between.", _SCHEDULES),
            _TOKENS,
            _SPANS,
        ),
    ),
    Entry(
        "specprefill",
        "ondevice_bench.quality.specprefill",
        "What SpecPrefill loses at several shares: passkey and recall, in three variants, beside truncation.",
        (
            _TEXT,
            Option("keeps", INTS, "Shares of the prompt that are read, in per cent.", "10,30,50,70,90"),
            _LENGTH,
            replace(_DEPTHS, default="0.1,0.3,0.5,0.7,0.9"),
            Option("trials", int, "Trials for each depth.", 2, min=1),
            _BEGINNING,
            replace(_SPANS, default=6),
        ),
    ),
    Entry(
        "speculator",
        "ondevice_bench.quality.speculator",
        "What a speculator finds: how much of the place that answers a question it lets through, by its settings.",
        (
            _TEXT,
            Option("keeps", INTS, "Shares of the prompt that go on, in per cent.", "10,20,30,50"),
            Option("layer_counts", INTS, "Layers of the speculator, where it is the model's own.", "4,15,30"),
            Option("look_aheads", INTS, "Tokens that the speculator adds to the prompt.", "1,4,8"),
            _LENGTH,
            Option("trials", int, "Passkey prompts for each of five places of the key.", 2, min=1),
            _BEGINNING,
            replace(_SPANS, default=16),
        ),
    ),
)
