"""SlimInfer: blocks of hidden states are pruned between layers while a prompt is read."""

from __future__ import annotations

from ondevice_bench.results.papers.paper import Claim, Figure, Paper, longbench, rows, summary
from ondevice_bench.results.reading import RECALL

_POT = "InfiniPot CaP-G NuC 0.5 2048/1024"
_BY_HEAD = "InfiniPot CaP-G NuC 0.5 slots by-head 2048/1024 slim auto"
_LENGTHS = {"8k": 8192, "16k": 16384, "24k": 24576, "28k": 28672, "32k": 32768}
_NEVER = "the paper's models need a GPU; small ones over summaries alone"
_LONGBENCH = "ondevice eval longbench --slim auto"
_RANDOM = "random weights of Llama 3.1 8B's shape"
_NO_OPTION = "no option of a command sets them"


def _curve(metric: str, schedule: str) -> Figure:
    name = _POT if schedule == "off" else f"{_POT} slim {schedule}"
    return rows("slim_curve", metric, name, {"schedule": schedule})


SLIMINFER = Paper(
    "SlimInfer",
    "SlimInfer: Accelerating Long-Context LLM Inference via Dynamic Token Pruning",
    "https://arxiv.org/abs/2508.06447",
    "It claims that most tokens of a long prompt can be dropped between layers, for a first token 2.5 times as early, "
    "at nearly the same quality.",
    "Here the memory is the paper's and the speed comes close, but on LongBench a small model loses a third of its "
    "score, and the paper's own scores miss passkeys that a rule of ours about rare words finds.",
    (
        Claim(
            "Table 1: LongBench, LLaMA-3.1-8B",
            "47.65; full cache 48.08",
            "not measured",
            _NEVER,
            command=_LONGBENCH,
        ),
        Claim(
            "Table 1: LongBench, Qwen2.5-7B",
            "47.38; full cache 47.76",
            "contrary",
            "four of its tasks, six texts each of at most 9,000 tokens, with the smallest model of that family: it "
            "loses a third, on questions over several texts and on examples to learn from",
            ours="{slim}; full cache {full}",
            figures=longbench("longbench_papers_0_5b", full="full", slim="paper-sliminfer"),
            holds=("full > slim",),
        ),
        Claim(
            "Table 1: loss of quality against no pruning",
            "under half a point",
            "another test",
            "recall in a pot, which loses most by itself: pruning takes little more; with slots by head, which came "
            "later, nobody has measured it",
            ours="pruned {slim}; pot alone {pot}; pruned, with a host tier {tier}",
            setting="pot of {pot.capacity} slots, a novel",
            figures={
                "slim": rows("recall_slim_6k", RECALL),
                "pot": rows("recall_published_6k", RECALL),
                "tier": rows("recall_slim_host_tier_6k", RECALL),
            },
            holds=("slim < pot", "tier > pot"),
        ),
        Claim(
            "Table 2: memory saved at 8K, 16K, 24K, 28K, 32K tokens, LLaMA-3.1-8B",
            "20.3, 44.5, 52.6, 54.9, 56.6 %",
            "agrees",
            "computed from the shapes of that model, as in the paper; no such model was run",
            ours=", ".join(f"{{at_{name}}}" for name in _LENGTHS),
            model="the shape of LLaMA-3.1-8B",
            figures={
                f"at_{name}": rows("slim_early", "memory saving", "SlimInfer", {"prompt tokens": length})
                for name, length in _LENGTHS.items()
            },
            holds=("at_8k > 20.2", "at_8k < 20.4", "at_32k > 56.5", "at_32k < 56.7"),
        ),
        Claim(
            "Figure 5: time to the first token of 32K tokens over FlashAttention-2, LLaMA-3.1-8B, RTX 4090",
            "2.53x",
            "less",
            "more over our own reading of the whole prompt, but transformers, the paper's baseline, reads that prompt "
            "faster, and over it the gain is below the paper's; nothing was offloaded",
            ours="{gain}: {slim} in place of {whole}; transformers reads as many at {peer}",
            setting="the paper's schedule",
            model=_RANDOM,
            figures={
                "gain": summary("gpu", "slim_ttft_speedup_32k", "x"),
                "slim": rows("gpu", "time to first token", "SlimInfer", {"prompt tokens": 32768}),
                "whole": rows("gpu", "time to first token", "whole prompt", {"prompt tokens": 32768, "look-ahead": 0}),
                "peer": rows("gpu", "reading speed", "transformers", {"model": "llama-3.1-8b", "tokens": 32768}),
            },
            holds=(
                "gain > 2.53",
                "whole > slim",
                "peer > 20150",
                "slim > 0.643",
            ),  # 32,768 tokens at peer's speed over slim: below 2.53
        ),
        Claim(
            "Figure 5: end to end with 16 tokens, the same",
            "1.88x",
            "not measured",
            "the time to the first token alone was taken",
            command="make gpu-check",
        ),
        Claim(
            "Table F: time to the first token of 16K tokens, Jetson AGX Orin",
            "1.62x",
            "another test",
            "two cores instead, some 12,000 tokens, and a pot beside it; no board was ever at hand",
            ours="pruned from layer 6 {early}; as by default, from layer 10, {auto}",
            setting="pot of {pot.capacity} slots",
            figures={
                "early": summary("slim_early", "reading_speedup", "x"),
                "auto": _curve("reading speed ratio", "auto"),
            },
            holds=("early > 1.62", "auto > 1.62"),
        ),
        Claim(
            "Figure 7: layer at which pruning begins",
            "best in the middle, worse before it (no figures)",
            "contrary",
            "the earlier, the lower the loss: a pot forgets so much that what pruning drops is not seen; the file has "
            "no interval",
            ours="loss {early} from layer 2, {middle} from 8, {late} from 15, {off} without",
            setting="pot of {pot.capacity} slots, 24 passages",
            figures={
                "early": _curve("mean loss", "2:50%,4:25%"),
                "middle": _curve("mean loss", "8:50%,16:25%"),
                "late": _curve("mean loss", "15:50%,22:25%"),
                "off": _curve("mean loss", "off"),
            },
            holds=("early < middle", "middle < late"),
        ),
        Claim(
            "Figure A: needle in a haystack, LLaMA-3.1-8B",
            "0.986; full cache 0.984",
            "contrary",
            "by the paper's scores alone passkeys are lost; half of the blocks by rare words finds them, as any "
            "search for those words does",
            ours="by its scores {score}; half by rare words {rarity}",
            setting="4,096 tokens: by its scores over a full cache, as in the paper; by rare words in a pot of 2,048",
            figures={
                "score": rows("passkey_slim_published", "accuracy", "full KV slim auto rarity 0"),
                "rarity": rows("passkey_slim", "accuracy", _BY_HEAD, {"length": 4096}),
            },
            holds=("score < rarity",),
        ),
        Claim(
            "Table 3: scoring a block by its best unit, LongBench",
            "47.65; by its mean 47.45, by its maximum 47.44",
            "not measured",
            "the other two rules are not here",
        ),
        Claim(
            "Table 4: end to end without and with asynchronous transfers, 32K tokens",
            "1.60x and 1.88x",
            "not measured",
            "blocks are brought back before a question, with nothing computed meanwhile",
        ),
        Claim(
            "Table E: most tokens kept to fewest, LongBench and seconds, LLaMA-3.1-8B",
            "47.98 in 3.457 s to 47.65 in 2.959 s",
            "not measured",
            _NEVER,
            command=_LONGBENCH,
        ),
        Claim(
            "Figures C and D: size of blocks and of the window of queries",
            "best at 64 and 4 (no figures)",
            "not measured",
            _NO_OPTION,
        ),
    ),
)
