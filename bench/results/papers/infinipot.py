"""InfiniPot: a cache of fixed size that is distilled whenever it is full."""

from __future__ import annotations

from ondevice_bench.results.papers.paper import Claim, Paper, longbench, rows
from ondevice_bench.results.reading import RECALL

_LAST = {"tokens": 3840}  # of the text, after the last distillation
_HITS = "hit_rate_0_5b"
_WORDINGS = "wordings_0_5b"
_LONG = {"model": "llama-3.1-8b", "tokens": 98304}
_RANDOM = "random weights of Llama 3.1 8B's shape"
_NEVER = "the paper's models need a GPU; small ones over summaries alone"
_LONGBENCH = "ondevice eval longbench"


INFINIPOT = Paper(
    "InfiniPot",
    "InfiniPot: Infinite Context Processing on Memory-Constrained LLMs",
    "https://arxiv.org/abs/2410.01518",
    "It claims that a pot of 4,096 tokens answers nearly as well as a full cache, and finds a passkey in a million "
    "tokens.",
    "Here memory stays flat, but as published the pot holds little more of a text than slots at random, and "
    "StreamingLLM and H2O hold more; [slots by head](methods.md#slots-by-head) and the [host "
    "tier](methods.md#the-host-tier), which are not in the paper, make the difference.",
    (
        Claim(
            "Table 1: LongBench, LLaMA-3-8B, 4K slots",
            "41.50; truncation 37.20, TOVA 36.26, SirLLM 35.43, full cache 42.91",
            "no statement",
            "five of its tasks, six texts each of at most 9,000 tokens, a small model: as published the pot stands "
            "between truncation and a full cache, as in the paper, but every interval overlaps the next",
            ours="{published}; truncation {truncation}, StreamingLLM {streaming}, full cache {full}; passages of BM25 "
            "{bm25}",
            setting="pot of {pot.capacity} slots",
            figures=longbench(
                "longbench_0_5b",
                published="infinipot-published",
                truncation="truncation",
                streaming="streaming-llm",
                full="full",
                bm25="bm25",
            ),
            holds=("published > truncation", "published > streaming", "full > published"),
        ),
        Claim(
            "Table 1: LongBench, Mistral-7B-v0.3, 4K slots",
            "44.22; truncation 40.07, full cache 47.84",
            "not measured",
            _NEVER,
            command=_LONGBENCH,
        ),
        Claim(
            "Table 1: order of the policies in one pot",
            "InfiniPot, then truncation, TOVA, SirLLM",
            "contrary",
            "recall in place of LongBench: as published it is level with chance and last of the policies",
            ours="recall: as published {published}; SirLLM {sirllm}; TOVA {tova}; SnapKV {snapkv}; StreamingLLM "
            "{streaming}; H2O {h2o}; at random {random}; with slots by head, which are ours, {by_head}",
            setting="pot of {pot.capacity} slots, a novel",
            figures={
                "published": rows("recall_published_6k", RECALL),
                "sirllm": rows("recall_sirllm_6k", RECALL),
                "tova": rows("recall_tova_6k", RECALL),
                "snapkv": rows("recall_snapkv_6k", RECALL),
                "streaming": rows("recall_streaming_6k", RECALL),
                "h2o": rows("recall_h2o_6k", RECALL),
                "random": rows("recall_random_6k", RECALL),
                "by_head": rows("recall_infinipot_6k", RECALL),
            },
            holds=("snapkv > published", "tova > published", "sirllm > published", "h2o > published", "by_head > h2o"),
        ),
        Claim(
            "Table 1: LongBench, LLaMA-2-7B, 2K slots",
            "31.32; truncation 31.24, H2O 31.01, StreamingLLM 29.87",
            "another test",
            "RULER, one question a task; the intervals overlap, so this ranks nobody, but all lose most of a full "
            "cache",
            ours="InfiniPot {pot}; H2O {h2o}; StreamingLLM {streaming}; SirLLM {sirllm}; full cache {full}",
            setting="pot of {pot.capacity} slots, texts of 4,096 tokens",
            figures={
                "pot": rows("ruler_0_5b_4k", "RULER score", "infinipot"),
                "h2o": rows("ruler_0_5b_4k", "RULER score", "h2o"),
                "streaming": rows("ruler_0_5b_4k", "RULER score", "streaming-llm"),
                "sirllm": rows("ruler_0_5b_4k", "RULER score", "sirllm"),
                "full": rows("ruler_0_5b_4k", "RULER score", "full"),
            },
            holds=("full > pot", "full > sirllm"),
        ),
        Claim(
            "Figure 2: hit rate of the pot, HotpotQA, 4K slots",
            "with a catalyst far above none; none is like a sliding window (no figures)",
            "contrary",
            "the catalyst alone is a little above chance, with novelty below it, and StreamingLLM is ahead; one text, "
            "no interval",
            ours="catalyst alone {cap}; asked in it {asked}; with novelty {both}; StreamingLLM {streaming}; at random "
            "{random}",
            setting="pot of {pot.capacity} slots, 3,840 tokens read",
            figures={
                "cap": rows(_HITS, "hit rate", "published-alpha-0", _LAST),
                "asked": rows(_HITS, "hit rate", "published-asked", _LAST),
                "both": rows(_HITS, "hit rate", "infinipot-published", _LAST),
                "streaming": rows(_HITS, "hit rate", "streaming-llm", _LAST),
                "random": rows(_HITS, "hit rate", "random", _LAST),
            },
            holds=("cap > random", "both < random", "streaming > cap", "streaming > asked"),
        ),
        Claim(
            "Figure 3: tokens kept with and without novelty",
            "their overlap falls with every distillation (no figures)",
            "agrees",
            "it falls here, too; the row before says that it does not help",
            ours="{first} after the first distillation, {last} after the last",
            setting="pot of {pot.capacity} slots",
            figures={
                "first": rows(_HITS, "overlap with the catalyst alone", "infinipot-published", {"tokens": 768}),
                "last": rows(_HITS, "overlap with the catalyst alone", "infinipot-published", _LAST),
            },
            holds=("first > last",),
        ),
        Claim(
            "Table 2: wording of the catalyst, LLaMA-3-8B, LongBench",
            "general 39.56, its variants 39.48 and 38.90, unrelated 38.76, placeholder 38.27, question 41.50",
            "no statement",
            "recall over the few passages of one text, without an interval in the file; with the question never "
            "measured",
            ours="general {general}; its variants {v1} and {v2}; unrelated {unrelated}; placeholder {placeholder}",
            setting="a pot a quarter of the text",
            figures={
                "general": rows(_WORDINGS, RECALL, "infinipot-published"),
                "v1": rows(_WORDINGS, RECALL, "published-general-v1"),
                "v2": rows(_WORDINGS, RECALL, "published-general-v2"),
                "unrelated": rows(_WORDINGS, RECALL, "published-unrelated"),
                "placeholder": rows(_WORDINGS, RECALL, "published-placeholder"),
            },
        ),
        Claim(
            "Table 3: share of novelty 0, 25, 50, 75, 100 %, LLaMA-3-8B, LongBench",
            "39.89, 40.65, 41.50, 41.08, 35.43",
            "no statement",
            "as in the row before: all five lie within a few points",
            ours="{none}, {quarter}, {half}, {most}, {all}",
            setting="a pot a quarter of the text",
            figures={
                "none": rows(_WORDINGS, RECALL, "published-alpha-0"),
                "quarter": rows(_WORDINGS, RECALL, "published-alpha-0.25"),
                "half": rows(_WORDINGS, RECALL, "infinipot-published"),
                "most": rows(_WORDINGS, RECALL, "published-alpha-0.75"),
                "all": rows(_WORDINGS, RECALL, "published-alpha-1"),
            },
        ),
        Claim(
            "Table 4: passkey in 4K to 128K tokens, the pot alone, Mistral-7B-v0.3, 4K slots",
            "100 at every depth",
            "agrees",
            "but of short texts alone: nothing longer is in a file of the pot as published",
            ours="3,000 tokens in {pot.capacity} slots {short}; 4,096 tokens in twice as many, by head, {longer}",
            figures={
                "short": rows("passkey_3k_even_always", "accuracy", "InfiniPot CaP-G NuC 0.5 1024/512"),
                "longer": rows("passkey_135m_none", "accuracy", "InfiniPot CaP-G NuC 0.5 slots by-head 2048/1024"),
            },
        ),
        Claim(
            "Table 4: passkey in 128K and 1M tokens",
            "100 at every depth; 90, 95 and 100",
            "another test",
            "ours has the host tier beside the pot, and the words of the question alone find the block of the key",
            ours="131,072 tokens {long}; 1,000,000 tokens {million}, one question",
            setting="pot of {pot.capacity} slots and a host tier",
            figures={
                "long": rows(
                    "passkey_0_5b_128k", "accuracy", "InfiniPot CaP-G NuC 0.5 2048/1024 + host tier", {"length": 131072}
                ),
                "million": rows(
                    "passkey_0_5b_1m", "accuracy", "InfiniPot CaP-G NuC 0.5 2048/1024 + host tier", {"length": 1000000}
                ),
            },
        ),
        Claim(
            "Figure 7, Table 5: memory, Mistral-7B, 10K and 90K tokens",
            "20.60 and 20.71 GB",
            "agrees",
            "flat, up to a million tokens",
            ours="{first} after 34,304 tokens, {last} after 1,048,576",
            model="random weights of Llama 3.2 1B's shape",
            figures={
                "first": rows("gpu", "memory in use", "pot", {"model": "llama-3.2-1b", "tokens": 34304}),
                "last": rows("gpu", "memory in use", "pot", {"model": "llama-3.2-1b", "tokens": 1048576}),
            },
        ),
        Claim(
            "Table 5: share of distillation in the time to the first token, 10K to 90K tokens",
            "3.64 to 1.30 %",
            "less",
            "choosing what stays costs several times as much, novelty included",
            ours="of each token {forward} in the model, {novelty} for its novelty, {distillation} for distillation, "
            "{host} elsewhere",
            model=_RANDOM,
            figures={
                part: rows("gpu", "time a token", f"pot: {part}", _LONG)
                for part in ("forward", "novelty", "distillation", "host")
            },
            holds=("distillation > 2.5", "novelty > 2.5"),  # of some 50 us together
        ),
        Claim(
            "Table 5: time to the first token of 90K tokens, Mistral-7B, A100",
            "9.77 s",
            "no statement",
            "a faster GPU and another model; transformers with a full cache reads 32,768 tokens faster than the pot",
            ours="98,304 tokens at {speed}; transformers 32,768 at {full}",
            model=_RANDOM,
            figures={
                "speed": rows("gpu", "reading speed", "pot", _LONG),
                "full": rows("gpu", "reading speed", "transformers", {"model": "llama-3.1-8b", "tokens": 32768}),
            },
            holds=("full > speed",),
        ),
        Claim(
            "Figure 6: pots of 1K to 8K slots",
            "above truncation at every size (no figures)",
            "not measured",
            _NEVER,
            command=_LONGBENCH,
        ),
        Claim(
            "Table 7: LLaMA-3.2-3B, 4K slots, LongBench",
            "41.47; truncation 37.51, full cache 44.75",
            "not measured",
            _NEVER,
            command=_LONGBENCH,
        ),
    ),
)
