"""The figures of the first page of docs/results: which of them stand there, and how each is held against its peer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ondevice.results.results import Result
from ondevice.results.tables import SHARE, value_text

_ALONE = "a pot alone that gives each head the slots it needs"
_NINE = "Qwen2.5-Coder-0.5B, one row of each of nine RULER tasks, 4,096 tokens"
_POT = f"{_NINE} in 1,024 slots"
_MEMORY = "SmolLM2-135M continues a novel from inside, 6,000 tokens read in 2,048 slots"


_SHELVES: tuple[tuple[str, str, Literal["ratio", "difference"]], ...] = (
    ("the right document alone", "shelf_share_of_single", "ratio"),
    ("BM25 passages of all", "shelf_minus_bm25", "difference"),
)
_SCANS: tuple[tuple[str, str], ...] = (
    ("the same question to 1,024 slots with host tier", "ask"),
    ("the same question to a full cache", "full"),
)


@dataclass(frozen=True, slots=True)
class Headline:
    """A figure of the first page.

    Attributes:
        what: was measured.
        against: whom; "" where it stands alone.
        run: name of the file.
        key: in its summary; the figure is its value, less that of `minus` where there is one, or less the same of
            another file, `minus_run`.
        kind: a ratio is held against 1 and a difference against 0; a share stands alone.
        less_is_better: for instance of memory.
    """

    what: str
    against: str
    run: str
    key: str
    minus: str = ""
    kind: Literal["ratio", "difference", "share"] = "ratio"
    less_is_better: bool = False
    minus_run: str = ""

    def value(self, results: Mapping[str, Result]) -> float | None:
        """None where it was not measured."""
        figures = []
        for run, key in self._places:
            result = results.get(run)
            if result is None or not result.complete or key not in result.summary:
                return None
            figures.append(result.summary[key])
        value, *less = figures
        return value - sum(less)

    def lead(self, value: float) -> float:
        """How far ahead it is; below 0: behind."""
        by = value - (1.0 if self.kind == "ratio" else 0.0)
        return -by if self.less_is_better else by

    def shown(self, value: float) -> str:
        if self.kind == "ratio":
            return f"{value:.2f}x"
        return f"{value:+.2f}" if self.kind == "difference" else value_text(value, SHARE)

    @property
    def _places(self) -> list[tuple[str, str]]:
        """File and key of what is subtracted from the first."""
        less = [(self.minus_run or self.run, self.minus or self.key)] if self.minus or self.minus_run else []
        return [(self.run, self.key), *less]


def _ruler(name: str, label: str) -> Headline:
    what = f"score, InfiniPot as published, alone; {_POT}"
    return Headline(what, label, "ruler_0_5b_4k", "average_infinipot", f"average_{name}", "difference")


def _peers(size: str) -> tuple[Headline, ...]:
    run, tokens = "peers_0_5b", f"{int(size[:-1]) * 1024:,} tokens of Qwen2.5-Coder-0.5B in 4 bits"
    return (
        Headline(f"reading, {tokens}", "llama.cpp", run, f"reading_ratio_vs_llama_cpp_{size}"),
        Headline(f"reading, {tokens}", "transformers in float32", run, f"reading_ratio_vs_transformers_{size}"),
        Headline(f"decoding after {tokens}", "llama.cpp", run, f"decode_ratio_vs_llama_cpp_{size}"),
        Headline(
            f"first token of the second question, {tokens}",
            "llama.cpp",
            run,
            f"second_question_ratio_vs_llama_cpp_{size}",
        ),
        Headline(
            f"peak memory of the process, {tokens}",
            "llama.cpp",
            run,
            f"peak_memory_ratio_vs_llama_cpp_{size}",
            less_is_better=True,
        ),
    )


def _babilong(length: str, minus: str, label: str) -> Headline:
    what = f"three stories of each of BABILong's qa1 to qa5 at {length}, Qwen2.5-Coder-0.5B, 2,048 slots with host tier"
    key = f"mean_qa1_qa5_{length}"
    return Headline(what, label, "babilong_0_5b", f"{key}_pot_tier", f"{key}_{minus}", "difference")


HEADLINES = (
    Headline(
        "F1 of ten questions to two pages of 11,000 tokens, all of it kept, 1.5B",
        "BM25 passages of 2,048 tokens",
        "qa_1_5b",
        "default_minus_bm25",
        kind="difference",
    ),
    Headline(
        "F1 of ten questions to two pages of 11,000 tokens, all of it kept, 1.5B",
        "truncation to 2,048 tokens",
        "qa_1_5b",
        "default_minus_truncation",
        kind="difference",
    ),
    Headline(
        "F1 of 14 questions to three pages of 11,000 tokens in 4,096 slots with host tier, 1.5B",
        "BM25 passages of 4,096 tokens",
        "qa_1_5b_pot",
        "default_minus_bm25",
        kind="difference",
    ),
    Headline(
        "F1 of 14 questions to three pages of 11,000 tokens in 4,096 slots with host tier, 0.5B",
        "BM25 passages of 4,096 tokens",
        "qa_0_5b_pot",
        "default_minus_bm25",
        kind="difference",
    ),
    Headline(f"score with host tier; {_POT}", "a full cache", "ruler_0_5b_4k", "share_of_full_kv_pot_tier"),
    Headline(
        f"score, InfiniPot as published, alone; {_POT}", "a full cache", "ruler_0_5b_4k", "share_of_full_kv_infinipot"
    ),
    _ruler("sirllm", "SirLLM"),
    _ruler("streaming-llm", "StreamingLLM"),
    _ruler("h2o", "H2O"),
    _ruler("tova", "TOVA"),
    _ruler("snapkv", "SnapKV"),
    _ruler("random", "tokens by chance"),
    Headline(
        f"score with host tier; {_POT}",
        "BM25 passages of 1,024 tokens",
        "ruler_0_5b_4k",
        "average_pot_tier",
        "average_bm25",
        "difference",
    ),
    *(
        _babilong("4k", name, label)
        for name, label in (("bm25", "BM25 passages"), ("minilm", "MiniLM passages"), ("full", "a full cache"))
    ),
    Headline(f"{_MEMORY}, {_ALONE}", "a full cache", "recall_infinipot_6k", "recovered_share"),
    *(
        Headline(
            f"share of a full cache's; {_MEMORY}, {_ALONE}",
            label,
            "recall_infinipot_6k",
            "recovered_share",
            minus_run=f"recall_{run}_6k",
            kind="difference",
        )
        for label, run in (
            ("InfiniPot as published", "published"),
            ("SirLLM", "sirllm"),
            ("SnapKV", "snapkv"),
            ("H2O", "h2o"),
            ("TOVA", "tova"),
            ("StreamingLLM", "streaming"),
            ("tokens by chance", "random"),
        )
    ),
    Headline(f"{_MEMORY}, with host tier", "a full cache", "recall_host_tier_6k", "recovered_share"),
    *(
        Headline(f"score at 4:1; {_NINE}, {how}", "a full cache", "retention_0_5b", f"ruler_share_4to1{key}")
        for how, key in ((_ALONE, ""), ("InfiniPot as published, alone", "_infinipot-published"))
    ),
    Headline(
        f"score at 4:1; {_NINE}, {_ALONE}, with a late reset", "a full cache", "retention_0_5b_late", "ruler_share_4to1"
    ),
    *(
        Headline(
            "score; one question over a shelf of five documents of 2,048 tokens, 1,024 slots with host tier, "
            "Qwen2.5-Coder-0.5B",
            against,
            "shelf_0_5b",
            key,
            kind=kind,
        )
        for against, key, kind in _SHELVES
    ),
    *(
        Headline(
            f"{what}, `ondevice scan` of 4,096 tokens of a novel with 6 to 10 codes, names or dates in it, "
            "Qwen2.5-Coder-0.5B",
            against,
            "scan_0_5b",
            f"scan_{key}",
            f"{name}_{key}",
            "difference",
            less_is_better,
        )
        for what, key, less_is_better in (
            ("share of a list that is found", "recall", False),
            ("how wrong a number is, as a share of it", "count_error", True),
        )
        for against, name in _SCANS
    ),
    Headline(
        "perplexity of the next 128 tokens while a novel is read into 2,048 slots, Qwen2.5-Coder-0.5B, 8,000 tokens",
        "a full cache",
        "perplexity_0_5b",
        "perplexity_pot",
        "perplexity_full",
        "difference",
        less_is_better=True,
    ),
    Headline(
        "perplexity of the next 128 tokens while a novel is read into 2,048 slots, Qwen2.5-Coder-0.5B, 8,000 tokens",
        "StreamingLLM",
        "perplexity_0_5b",
        "perplexity_pot",
        "perplexity_streaming-llm",
        "difference",
        less_is_better=True,
    ),
    Headline(
        "passkey at 4,096 to 65,536 tokens in 2,048 slots, five depths, two keys each",
        "",
        "passkey_infinipot",
        "accuracy",
        kind="share",
    ),
    *_peers("8k"),
    Headline(
        "reading 65,536 tokens into 2,048 slots, SmolLM2-135M in float32",
        "transformers, a prompt of 2,048",
        "ingest",
        "reading_ratio_vs_transformers_2k",
    ),
    Headline(
        "decoding after 1,024 and 2,000 tokens, SmolLM2-135M in float32",
        "transformers' generate",
        "decode",
        "decode_ratio_vs_transformers",
    ),
    Headline(
        "reading with the weights of a 4-bit file as stored, Qwen2.5-Coder-0.5B",
        "unpacked to float32",
        "quantized_0_5b",
        "reading_speedup_stored",
    ),
    Headline(
        "decoding with the weights of a 4-bit file as stored, Qwen2.5-Coder-0.5B",
        "unpacked to float32",
        "quantized_0_5b",
        "decode_speedup_stored",
    ),
    Headline("reading with `--slim auto`, SmolLM2-135M", "without", "slim", "reading_speedup"),
    Headline(
        "time to the first token with SpecPrefill at 10 to 50 % of 2,048 tokens",
        "the paper's estimate",
        "specprefill",
        "ttft_share_of_bound",
    ),
    Headline(
        "decoding with drafts by the first layers, SmolLM2-135M",
        "without",
        "specprefill",
        "speculative_speedup_with_fallback",
    ),
    Headline(
        "decoding with a full cache, replaced in place",
        "StreamingLLM with its copies",
        "equip_decoding",
        "end_to_end_vs_streaming_geomean",
    ),
    Headline(
        "decoding with a full cache, replaced in place, where the C library keeps freed memory",
        "StreamingLLM with its copies",
        "equip_decoding",
        "end_to_end_vs_streaming_memory_kept_geomean",
    ),
    Headline(
        "one H100, decoding with a pot, shape of Llama 3.1 8B",
        "transformers' generate",
        "gpu",
        "decode_ratio_vs_generate_8b_1500",
    ),
    Headline(
        "one H100, reading 8,192 tokens, shape of Llama 3.1 8B",
        "transformers",
        "gpu_reading",
        "reading_ratio_vs_transformers_8k",
    ),
    Headline(
        "one H100, attention with an early end (`--art`)", "the same kernel without", "gpu", "ending_speedup_vs_decode"
    ),
)
