"""EQUIP: tokens that are evicted from a cache are overwritten in place."""

from __future__ import annotations

from ondevice_bench.results.papers.paper import Claim, Figure, Paper, rows, summary

_DECODING = "equip_decoding"
_UPDATES = "equip_updates"
_UPDATE = "KV update, speedup"
_STEP = "inter-token latency, cache full, speedup"
_END = "end to end, 4,096 tokens, from sampled steps, speedup"
_BY_PART = "inter-token latency by optimisation, speedup"
_CUT = "cut and attention, speedup"
_SMALL, _LIKE = "SmolLM2-135M-Instruct", "llama-2-like"  # the second is half as deep and wide as Llama 2 7B
_KEPT = ", freed memory kept"
_RANDOM = "random weights of Llama 2 7B's shape at half its depth and width"
_BOTH = f"smollm2 (135M), and larger {_RANDOM}"
_NO_GPU_BASELINE = "its baselines, StreamingLLM and H2O by shifting, are not here for a GPU"
_COMMAND = "ondevice bench equip"


def _grid(metric: str, model: str, batch: int, cache: int, more: str = "") -> Figure:
    return rows(_DECODING, metric, f"EQUIP StreamingLLM on {model}{more}", {"batch": batch, "cache": cache})


EQUIP = Paper(
    "EQUIP",
    "EQUIP: EQUivariant preserving In-Place updates for Efficient token-pruning, ACL 2026",
    "https://openreview.net/forum?id=v3MSIxFjqe",
    "It claims that evicting in place gives the same answers faster than shifting the cache, most with large batches.",
    "Here the gain on a CPU is near the paper's or above, but much of it is fresh memory that the baseline asks for "
    "in each step; at batch 1, which is what the product runs, little is left, and on a GPU overwriting is slower "
    "than appending.",
    (
        Claim(
            "Abstract, Figure 7a: end to end over StreamingLLM, 60-core Xeon, Llama 2",
            "1.62x",
            "more",
            "a smaller model on two cores; under half is left at batch 8 once the baseline keeps its freed memory",
            ours="{gain}; memory kept {kept}",
            setting="means over batches 1 to 16; memory kept of batch 8 alone",
            model=_RANDOM,
            figures={
                "gain": summary(_DECODING, "end_to_end_vs_streaming_geomean", "x"),
                "kept": summary(_DECODING, "end_to_end_vs_streaming_memory_kept_geomean", "x"),
            },
            holds=("gain > 1.62", "kept > 1.62"),
        ),
        Claim(
            "Abstract, section 5.1.1: end to end over H2O, the same",
            "3.45x in the one, 4.48x in the other",
            "less",
            "near the paper's; under half is left at batch 8 once the baseline keeps its freed memory",
            ours="{gain}; memory kept {kept}",
            setting="as in the row before",
            model=_RANDOM,
            figures={
                "gain": summary(_DECODING, "end_to_end_vs_h2o_geomean", "x"),
                "kept": summary(_DECODING, "end_to_end_vs_h2o_memory_kept_geomean", "x"),
            },
            holds=("gain < 4.48", "kept < 3.45"),
        ),
        Claim(
            "Table 2: batch 1, 4,096 tokens, cache of 756, Llama 2 7B",
            "1.07x",
            "agrees",
            "little at batch 1",
            ours="135M {small}; larger {like}",
            setting="cache of 512",
            model=_BOTH,
            figures={"small": _grid(_END, _SMALL, 1, 512), "like": _grid(_END, _LIKE, 1, 512)},
            holds=("small < 1.2", "like < 1.2"),
        ),
        Claim(
            "Table 2: batch 8",
            "2.45x",
            "agrees",
            "on either side of the paper's; with freed memory kept a little below",
            ours="135M {small}; larger {like}; memory kept {kept}",
            setting="cache of 512",
            model=_BOTH,
            figures={
                "small": _grid(_END, _SMALL, 8, 512),
                "like": _grid(_END, _LIKE, 8, 512),
                "kept": _grid(_END, _LIKE, 8, 512, _KEPT),
            },
            holds=("small < 2.45", "like > 2.45", "kept < 2.45"),
        ),
        Claim(
            "Appendix D.5: latency between tokens, batch 8, caches of 512 and 1,024",
            "1.53x and 1.93x",
            "more",
            "also with freed memory kept",
            ours="135M {small} and {small_large}; larger {like} and {like_large}; memory kept {kept} and {kept_large}",
            model=_BOTH,
            figures={
                "small": _grid(_STEP, _SMALL, 8, 512),
                "small_large": _grid(_STEP, _SMALL, 8, 1024),
                "like": _grid(_STEP, _LIKE, 8, 512),
                "like_large": _grid(_STEP, _LIKE, 8, 1024),
                "kept": _grid(_STEP, _LIKE, 8, 512, _KEPT),
                "kept_large": _grid(_STEP, _LIKE, 8, 1024, _KEPT),
            },
            holds=("small > 1.53", "small_large > 1.93", "kept > 1.53", "kept_large > 1.93"),
        ),
        Claim(
            "Table 6: KV update over StreamingLLM, Xeon, cache of 1,024, 64 evicted",
            "26.54 to 50.58x",
            "agrees",
            "with freed memory kept it is a third",
            ours="{gain}; memory kept {kept}",
            setting="the paper's shapes",
            model="",
            figures={
                "gain": rows(_UPDATES, _UPDATE, "EQUIP StreamingLLM"),
                "kept": rows(_UPDATES, _UPDATE, f"EQUIP StreamingLLM{_KEPT}"),
            },
            holds=("gain > 26.54", "gain < 50.58", "kept < 26.54"),
        ),
        Claim(
            "Table 6: KV update over H2O, the same",
            "11.62 to 39.90x",
            "agrees",
            "with freed memory kept it is under half",
            ours="{gain}; memory kept {kept}",
            setting="the paper's shapes",
            model="",
            figures={
                "gain": rows(_UPDATES, _UPDATE, "EQUIP H2O"),
                "kept": rows(_UPDATES, _UPDATE, f"EQUIP H2O{_KEPT}"),
            },
            holds=("gain > 11.62", "gain < 39.90", "kept > 9", "kept < 20"),
        ),
        Claim(
            "Table 7: attention with SnapKV and LagKV, Llama 2 7B, MI210, batch 128",
            "2.89x and 4.06x",
            "another test",
            "a CPU and batch 8; the order of the two is the other way round",
            ours="{snapkv} and {lagkv}",
            setting="the shapes of Llama 2 7B",
            model="",
            figures={
                "snapkv": rows(_UPDATES, _CUT, "EQUIP SnapKV", {"model": "Llama 2 7B"}),
                "lagkv": rows(_UPDATES, _CUT, "EQUIP LagKV", {"model": "Llama 2 7B"}),
            },
            holds=("snapkv > lagkv",),
        ),
        Claim(
            "Figure 8b: both optimisations together, Llama 2 30B, batch 16",
            "1.50 to 1.64x",
            "more",
            "each alone brings little, as in the paper; our fastest does without cached halves, but that is not the "
            "paper's",
            ours="cached halves alone {caching}; in place alone {place}; both {both}; rotating the sinks alone {sinks}",
            setting="batch 8, cache of 512",
            model=_RANDOM,
            figures={
                "caching": rows(_DECODING, _BY_PART, "StreamingLLM + RoPE caching"),
                "place": rows(_DECODING, _BY_PART, "StreamingLLM + in place"),
                "both": rows(_DECODING, _BY_PART, "StreamingLLM + in place + RoPE caching"),
                "sinks": rows(_DECODING, _BY_PART, "StreamingLLM + in place + sink-only rotation"),
            },
            holds=("both > 1.64", "both > caching", "both > place", "sinks > both"),
        ),
        Claim(
            "Appendix D.11: memory of the cached halves",
            "50 % of the cache",
            "agrees",
            "and a little more for the rotation",
            ours="{more} beside {keys}",
            setting="batch 8, cache of 512",
            model=_RANDOM,
            figures={
                "more": rows(_DECODING, "memory beyond keys and values", "StreamingLLM + in place + RoPE caching"),
                "keys": rows(_DECODING, "cache size", "StreamingLLM"),
            },
        ),
        Claim(
            "Figure 9: end to end on a GPU, MI210",
            "1.33 to 1.73x over StreamingLLM",
            "contrary",
            f"{_NO_GPU_BASELINE}; overwriting decodes slower than appending to a cache with room, since it leaves the "
            "graph of recorded calls",
            ours="8B overwriting {old}, appending {new}; 1B {old_small} and {new_small}",
            model="random weights of the shapes of Llama 3.1 8B and 3.2 1B",
            figures={
                "old": rows(
                    "gpu", "decoding speed", "pot, over old slots", {"model": "llama-3.1-8b", "cached tokens": 1500}
                ),
                "new": rows("gpu", "decoding speed", "pot", {"model": "llama-3.1-8b", "cached tokens": 1500}),
                "old_small": rows(
                    "gpu", "decoding speed", "pot, over old slots", {"model": "llama-3.2-1b", "cached tokens": 1500}
                ),
                "new_small": rows("gpu", "decoding speed", "pot", {"model": "llama-3.2-1b", "cached tokens": 1500}),
            },
            holds=("old < new", "old_small < new_small"),
        ),
        Claim(
            "Table 4: A100, Llama 2 7B, batches 8, 16, 32",
            "1.15x, 1.39x, 1.58x",
            "not measured",
            _NO_GPU_BASELINE,
        ),
        Claim(
            "Table 9: perplexity, Llama 2 7B",
            "the same with and without, 11.19 at a cache of 512",
            "not measured",
            "tests hold both against each other, but the file of that run is gone",
            command=f"{_COMMAND} --parts proofs",
        ),
        Claim(
            "Figure 10: paged attention over vLLM, batch 32, 4K and 16K tokens, CPU",
            "7.44x and 16.58x",
            "not measured",
            "a paged pot is in the laboratory alone, and vLLM is not",
        ),
        Claim(
            "Section 5.4: with speculative decoding",
            "1.47 to 1.67x",
            "not measured",
            "drafts end where slots are overwritten",
        ),
    ),
)
