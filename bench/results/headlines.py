"""The figures of the first page of docs/results: under which question each stands, and whom it is held against."""

from __future__ import annotations

from ondevice_bench.results.headline import Headline, Question, Rival


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
            *(
                Headline(
                    f"{what}, 0.5B, 4,096 tokens in {slots} slots, foresight, late reset",
                    "retention_0_5b_foresight",
                    (
                        Rival("full cache", key),
                        *_less(
                            key,
                            ("InfiniPot as published", f"{key}_infinipot-published"),
                            ("InfiniPot by head", f"{key}_infinipot"),
                            ("KVzip's repeat", f"{key}_repeat"),
                        ),
                    ),
                )
                for ratio, slots in ((4, "1,024"), (8, "512"))
                for what, key in (
                    ("nine RULER tasks", f"ruler_share_{ratio}to1"),
                    ("continuing a novel", f"recall_{ratio}to1"),
                )
            ),
            *(
                Headline(
                    f"{what}, 0.5B, {length} in bytes of 512 slots, foresight in 8 bits",
                    run,
                    (Rival("full cache", key), *_less(key, ("in 4 bits", f"{key}_foresight-int4"))),
                )
                for run, ratio, length in (
                    ("retention_0_5b_foresight_codes", 8, "4,096"),
                    ("retention_0_5b_16to1", 16, "8,192"),
                )
                for what, key in (
                    ("nine RULER tasks", f"ruler_share_{ratio}to1"),
                    ("continuing a novel", f"recall_{ratio}to1"),
                )
            ),
            *(
                Headline(
                    f"{what}, 0.5B, 4,096 in bytes of {slots} slots, foresight, k8v4",
                    "retention_0_5b_k8v4",
                    (Rival("full cache", f"{key}_{ratio}to1"),),
                )
                for ratio, slots in ((8, "512"), (16, "256"))
                for what, key in (("nine RULER tasks", "ruler_share"), ("continuing a novel", "recall"))
            ),
            *(
                Headline(
                    f"{what}, 0.5B, 8,192 in bytes of 256 slots, foresight, k8v4",
                    "retention_0_5b_k8v4_32to1",
                    (Rival("full cache", f"{key}_32to1"),),
                )
                for what, key in (("nine RULER tasks", "ruler_share"), ("continuing a novel", "recall"))
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
            Headline(
                "BABILong qa1 to qa5 at 4k, 0.5B, 2,048 slots and tier",
                "babilong_0_5b",
                _less(
                    "mean_qa1_qa5_4k_pot_tier",
                    ("BM25", "mean_qa1_qa5_4k_bm25"),
                    ("MiniLM", "mean_qa1_qa5_4k_minilm"),
                    ("full cache", "mean_qa1_qa5_4k_full"),
                ),
            ),
            Headline(
                "passkeys to 4,096 tokens, five in a text, 135M, 2,048 slots", "passkey_together", figure="accuracy"
            ),
            Headline(
                "passkeys to 4,096 tokens, five in a text, 135M, 2,048 slots and tier",
                "passkey_together_tier",
                figure="accuracy",
            ),
            Headline(
                "passkeys to 131,072 tokens, five in a text, 135M, 2,048 slots and tier of 1 GB",
                "passkey_together_tier_128k",
                figure="accuracy",
            ),
            Headline(
                "passkeys in 131,072 tokens, five depths, 0.5B, 2,048 slots and tier of 2 GB",
                "passkey_0_5b_128k",
                figure="accuracy",
            ),
            Headline(
                "one passkey in 1,000,000 tokens, 0.5B, 4,096 slots and tier", "passkey_0_5b_1m", figure="accuracy"
            ),
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
        "Does it hold for many documents?",
        (
            Headline(
                "LongBench's questions over several documents, found by rare words, 0.5B",
                "shelf_data_0_5b",
                (
                    Rival("the right documents alone", "shelf_share_of_single"),
                    Rival("BM25", "shelf_minus_bm25", kind="difference"),
                ),
            ),
            Headline(
                "LongBench's questions over several documents, found by the index, 0.5B",
                "shelf_data_0_5b",
                (Rival("the right documents alone", "index_share_of_single"),),
            ),
            Headline(
                "a right document among five that the index names, 0.5B",
                "find_0_5b",
                _less("index_found_in_5", ("rare words", "rare_words_found_in_5"), ("BM25", "bm25_found_in_5")),
                figure="index_found_in_5",
            ),
            Headline(
                "naming documents out of 100,000",
                "scale",
                (Rival("a product in NumPy", "index_speedup_vs_numpy"),),
                figure="index_seconds_100k",
                unit="s",
            ),
            Headline(
                "`ondevice batch`, one engine: documents a second",
                "scale",
                (Rival("a plain loop", "engine_rate_ratio"),),
            ),
            Headline(
                "`ondevice batch`, two engines of one thread: documents a second",
                "scale_two",
                (Rival("one engine", "speedup_2_workers"),),
            ),
            Headline(
                "documents lost where worker, command, its node, another node are killed",
                "scale_kills",
                figure="documents_lost",
                unit="",
            ),
        ),
    ),
    Question(
        "How fast is it on two cores with AVX-512? (0.5B from a 4-bit file; peers read the same file)",
        (
            *_peers("peers_0_5b_avx512", "2k"),
            *_peers("peers_0_5b_avx512", "8k"),
            *_peers("peers_0_5b_avx512", "32k"),
            Headline(
                "peak memory, 131,072 tokens, 4,096 slots and tier, beyond the peers' window",
                "peers_0_5b_long",
                figure="peak_memory_bytes_128k",
                unit="bytes",
            ),
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
                (Rival("the paper's estimate", "ttft_share_of_paper_bound"),),
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
