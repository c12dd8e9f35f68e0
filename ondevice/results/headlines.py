"""The figures of the first page of docs/results: under which question each stands, and whom it is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ondevice.results.results import Result
from ondevice.results.tables import SHARE, value_text

Kind = Literal["ratio", "difference"]


@dataclass(frozen=True, slots=True)
class Rival:
    """Whom a measurement is held against.

    Attributes:
        name: as a reader knows it.
        key: in the summary of the run; the figure is its value, less that of `minus` where there is one.
        kind: a ratio is held against 1 and a difference against 0.
        less_is_better: for instance of memory.
    """

    name: str
    key: str
    minus: str = ""
    kind: Kind = "ratio"
    less_is_better: bool = False

    def value(self, result: Result) -> float | None:
        """None where it was not measured."""
        keys = [self.key, *([self.minus] if self.minus else [])]
        if any(key not in result.summary for key in keys):
            return None
        value, *less = (result.summary[key] for key in keys)
        return value - sum(less)

    def lead(self, value: float) -> float:
        """How far ahead it is; below 0: behind."""
        by = value - (1.0 if self.kind == "ratio" else 0.0)
        return -by if self.less_is_better else by

    def shown(self, value: float) -> str:
        return f"{value:.2f}x" if self.kind == "ratio" else f"{value:+.2f}"


@dataclass(frozen=True, slots=True)
class Headline:
    """One measurement: one line.

    Attributes:
        what: was measured, in a few words.
        run: name of its file.
        rivals: whom it is held against; nobody: it stands alone.
        share: key of a share that is shown after `what`.
    """

    what: str
    run: str
    rivals: tuple[Rival, ...] = ()
    share: str = ""

    def result(self, results: Mapping[str, Result]) -> Result | None:
        """The finished run, if there is one."""
        result = results.get(self.run)
        return result if result is not None and result.complete else None

    def text(self, result: Result) -> str:
        return f"{self.what}: {value_text(result.summary[self.share], SHARE)}" if self.share else self.what


@dataclass(frozen=True, slots=True)
class Question:
    """What a reader wants to know; `pictures` are of runs."""

    text: str
    lines: tuple[Headline, ...]
    pictures: tuple[str, ...] = ()


def _less(key: str, *rivals: tuple[str, str], less_is_better: bool = False) -> tuple[Rival, ...]:
    """Differences from figures of the same run: name and key of each rival."""
    return tuple(Rival(name, key, minus, "difference", less_is_better) for name, minus in rivals)


def _peers(run: str, size: str) -> tuple[Headline, ...]:
    tokens = f"{int(size[:-1]) * 1024:,} tokens"
    peers = (("llama.cpp", "llama_cpp"), ("transformers", "transformers"))

    def rivals(key: str, less_is_better: bool = False) -> tuple[Rival, ...]:
        return tuple(Rival(name, f"{key}_vs_{peer}_{size}", less_is_better=less_is_better) for name, peer in peers)

    return (
        Headline(f"reading {tokens}", run, rivals("reading_ratio")),
        Headline(f"decoding after {tokens}", run, rivals("decode_ratio")),
        Headline(f"first token of the second question, {tokens}", run, rivals("second_question_ratio")),
        Headline(f"peak memory, {tokens}", run, rivals("peak_memory_ratio", less_is_better=True)),
    )


_POLICIES = (
    ("SirLLM", "sirllm"),
    ("SnapKV", "snapkv"),
    ("H2O", "h2o"),
    ("TOVA", "tova"),
    ("StreamingLLM", "streaming-llm"),
    ("chance", "random"),
)


def _policies(key: str) -> tuple[tuple[str, str], ...]:
    return tuple((label, f"{key}_{name}") for label, name in _POLICIES)


def _babilong(length: str, run: str, how: str) -> Headline:
    key = f"mean_qa1_qa5_{length}"
    rivals = tuple(
        (label, f"{key}_{name}") for label, name in (("BM25", "bm25"), ("MiniLM", "minilm"), ("full cache", "full"))
    )
    return Headline(f"BABILong qa1 to qa5 at {how}, 0.5B, 2,048 slots and tier", run, _less(f"{key}_pot_tier", *rivals))


QUESTIONS = (
    Question(
        "Does a small pot remember what it has read?",
        (
            Headline(
                "continuing a novel, 135M, 4,096 tokens in 1,024 slots",
                "retention_135m",
                (
                    Rival("full cache", "recall_4to1"),
                    *_less(
                        "recall_4to1",
                        ("InfiniPot as published", "recall_4to1_infinipot-published"),
                        *_policies("recall_4to1"),
                    ),
                ),
            ),
            Headline(
                "continuing a novel, 0.5B, 4,096 tokens in 1,024 slots",
                "retention_0_5b",
                (
                    Rival("full cache", "recall_4to1"),
                    *_less("recall_4to1", ("InfiniPot as published", "recall_4to1_infinipot-published")),
                ),
            ),
            Headline(
                "continuing a novel, 135M, 6,000 tokens in 2,048 slots and tier",
                "recall_host_tier_6k",
                (Rival("full cache", "recovered_share"),),
            ),
            Headline(
                "nine RULER tasks, 0.5B, 4,096 tokens in 1,024 slots",
                "retention_0_5b",
                (
                    Rival("full cache", "ruler_share_4to1"),
                    *_less("ruler_share_4to1", ("InfiniPot as published", "ruler_share_4to1_infinipot-published")),
                ),
            ),
            Headline(
                "nine RULER tasks, InfiniPot as published, 0.5B, 1,024 slots",
                "ruler_0_5b_4k",
                (
                    Rival("full cache", "share_of_full_kv_infinipot"),
                    *_less("average_infinipot", *_policies("average")),
                ),
            ),
            Headline(
                "nine RULER tasks, 0.5B, 1,024 slots and tier",
                "ruler_0_5b_4k",
                (
                    Rival("full cache", "share_of_full_kv_pot_tier"),
                    *_less("average_pot_tier", ("BM25", "average_bm25")),
                ),
            ),
            _babilong("4k", "babilong_0_5b", "4k"),
            *(
                _babilong(f"{length}_together", "babilong_together_0_5b", f"{length}, stories in one book")
                for length in ("16k", "64k", "128k")
            ),
            Headline(
                "passkeys to 4,096 tokens, five in a text, 135M, 2,048 slots", "passkey_together", share="accuracy"
            ),
            Headline(
                "passkeys to 4,096 tokens, five in a text, 135M, 2,048 slots and tier",
                "passkey_together_tier",
                share="accuracy",
            ),
            Headline("one passkey in 1,000,000 tokens, with tier", "passkey_1m", share="accuracy"),
            Headline(
                "perplexity while a novel is read, 0.5B, 8,000 tokens, 2,048 slots",
                "perplexity_0_5b",
                _less(
                    "perplexity_pot",
                    ("full cache", "perplexity_full"),
                    ("StreamingLLM", "perplexity_streaming-llm"),
                    less_is_better=True,
                ),
            ),
        ),
        ("retention_135m", "passkey_together", "passkey_together_tier", "babilong_0_5b", "perplexity_0_5b"),
    ),
    Question(
        "Does it answer better than the alternatives?",
        (
            Headline(
                "ten questions to two pages of 11,000 tokens, all kept, 1.5B, F1",
                "qa_1_5b",
                (
                    Rival("BM25, 2,048 tokens", "default_minus_bm25", kind="difference"),
                    Rival("truncation to 2,048", "default_minus_truncation", kind="difference"),
                ),
            ),
            *(
                Headline(
                    f"14 questions to three pages of 11,000 tokens, 4,096 slots and tier, {model}, F1",
                    run,
                    (Rival("BM25, 4,096 tokens", "default_minus_bm25", kind="difference"),),
                )
                for model, run in (("1.5B", "qa_1_5b_pot"), ("0.5B", "qa_0_5b_pot"))
            ),
            Headline(
                "LongBench, a few rows a task, 4,096 slots and tier, 0.5B",
                "longbench_0_5b",
                _less("average_pot_tier", ("BM25", "average_bm25"), ("truncation", "average_truncation")),
            ),
            Headline(
                "one question over five documents, 1,024 slots and tier, 0.5B",
                "shelf_0_5b",
                (
                    Rival("the right document alone", "shelf_share_of_single"),
                    Rival("BM25", "shelf_minus_bm25", kind="difference"),
                ),
            ),
            Headline(
                "`ondevice scan`, 4,096 tokens, 0.5B: share of a list found",
                "scan_0_5b",
                _less("scan_recall", ("asking the pot", "ask_recall"), ("asking a full cache", "full_recall")),
            ),
            Headline(
                "`ondevice scan`, 4,096 tokens, 0.5B: error of a count",
                "scan_0_5b",
                _less(
                    "scan_count_error",
                    ("asking the pot", "ask_count_error"),
                    ("asking a full cache", "full_count_error"),
                    less_is_better=True,
                ),
            ),
        ),
        ("qa_1_5b",),
    ),
    Question(
        "How fast is it on two cores with AVX-512? (0.5B from a 4-bit file; peers read the same file)",
        (
            *_peers("peers_0_5b_avx512", "2k"),
            *_peers("peers_0_5b_avx512", "8k"),
            *_peers("peers_0_5b_avx512", "32k"),
            *_peers("peers_0_5b_long", "128k"),
            Headline(
                "reading 65,536 tokens into 2,048 slots, 135M in float32",
                "ingest",
                (Rival("transformers, 2,048 tokens", "reading_ratio_vs_transformers_2k"),),
            ),
            Headline(
                "decoding, 135M in float32",
                "decode",
                (Rival("transformers' generate", "decode_ratio_vs_transformers"),),
            ),
        ),
    ),
    Question(
        "What does each method add?",
        (
            Headline("stored 4-bit weights: reading", "quantized_0_5b", (Rival("float32", "reading_speedup_stored"),)),
            Headline("stored 4-bit weights: decoding", "quantized_0_5b", (Rival("float32", "decode_speedup_stored"),)),
            Headline("SlimInfer, `--slim 6:50%,12:25%`: reading", "slim_early", (Rival("without", "reading_speedup"),)),
            Headline(
                "SpecPrefill: first token, 10 to 50 % of 2,048 tokens read",
                "specprefill",
                (Rival("the paper's estimate", "ttft_share_of_bound"),),
            ),
            Headline(
                "drafts by the first layers: decoding",
                "specprefill",
                (Rival("without", "speculative_speedup_with_fallback"),),
            ),
            Headline(
                "EQUIP, replacing in place: decoding with a full cache",
                "equip_decoding",
                (
                    Rival("StreamingLLM's copies", "end_to_end_vs_streaming_geomean"),
                    Rival("H2O's copies", "end_to_end_vs_h2o_geomean"),
                ),
            ),
            Headline(
                "EQUIP where the C library keeps freed memory",
                "equip_decoding",
                (
                    Rival("StreamingLLM's copies", "end_to_end_vs_streaming_memory_kept_geomean"),
                    Rival("H2O's copies", "end_to_end_vs_h2o_memory_kept_geomean"),
                ),
            ),
        ),
    ),
    Question(
        "And on a GPU? (one H100, random weights in the shape of Llama 3.1 8B)",
        (
            Headline("decoding with a pot", "gpu", (Rival("transformers", "decode_ratio_vs_generate_8b_1500"),)),
            Headline(
                "reading 8,192 tokens", "gpu_reading", (Rival("transformers", "reading_ratio_vs_transformers_8k"),)
            ),
            Headline(
                "attention with an early end (`--art`)",
                "gpu",
                (Rival("the same kernel without", "ending_speedup_vs_decode"),),
            ),
        ),
    ),
)
