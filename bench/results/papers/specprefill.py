"""SpecPrefill: a small model selects the part of a prompt that the large one reads."""

from __future__ import annotations

from ondevice_bench.results.papers.paper import Claim, Figure, Paper, longbench, rows, summary
from ondevice_bench.results.tables import SHARE

_SHAPES = "llama-3.1-8b-small / llama-3.2-1b-small"
_GAIN = "time to first token, speedup"
_KEEP = "specprefill_keep"
_LARGE = "needs eight GPUs of 80 GB"
_RANDOM = "random weights of the shapes of Llama 3.1 8B and 3.2 1B"
_RANDOM_SMALL = "random weights of two small shapes, of which the one takes a fraction of the other's work"
_OWN = "the speculator is the first layers of the model itself"


def _cpu(keep: int, look_ahead: int = 0) -> Figure:
    case = {"models": _SHAPES, "look-ahead": look_ahead}
    return rows("specprefill", _GAIN, f"SpecPrefill {keep} %", case)


def _gpu(keep: int, tokens: int, look_ahead: int = 0) -> Figure:
    return rows("gpu", _GAIN, f"SpecPrefill {keep} %", {"prompt tokens": tokens, "look-ahead": look_ahead})


def _quality(task: str, metric: str, contender: str, keep: int) -> Figure:
    return rows(_KEEP, metric, contender, {"task": task, "keep %": keep})


SPECPREFILL = Paper(
    "SpecPrefill",
    "Speculative Prefill: Turbocharging TTFT with Lightweight and Training-Free Token Importance Estimation",
    "https://arxiv.org/abs/2502.02789",
    "It claims that a tenth of the tokens, selected by a small model, keeps nearly all of the quality, for a first "
    "token up to 7.7 times as early.",
    "Here the time is what the paper's formula allows, and passkeys are found, but passages of the text are lost at "
    "every share below 90 %; where one trained model selects for another, a tenth of a text answers less well than "
    "all of it.",
    (
        Claim(
            "Table 1: LongBench, LLaMA-3.1-70B, keep 10, 30, 50 %",
            "52.74, 53.92, 53.59; whole prompt 53.55",
            "less",
            "four of its tasks, four texts each of at most 9,000 tokens, a small pair: a tenth of the tokens loses "
            "more than the paper's point, and 30 % is in between",
            ours="10 % {at_10}, 30 % {at_30}; whole prompt {whole}",
            setting="the 0.5B of the same family selects, with a look-ahead of 8",
            figures=longbench(
                "longbench_pair_1_5b", whole="full", at_10="paper-specprefill-10", at_30="paper-specprefill-30"
            ),
            holds=("whole > at_30", "at_30 > at_10"),
        ),
        Claim(
            "Table 1: quality at keep 10, 30, 50 and 90 %",
            "LongBench 52.74, 53.92, 53.59, 53.27; whole prompt 53.55",
            "contrary",
            f"loss of passages of a novel, which any token may matter for; {_OWN}",
            ours="loss {at_10}, {at_30}, {at_50}, {at_90}; whole prompt {whole}; cut off at the keep {cut_10}, "
            "{cut_30}, {cut_50}, {cut_90}",
            setting="12 passages",
            figures={
                "whole": _quality("recall", "loss", "full KV", 100),
                **{f"at_{keep}": _quality("recall", "loss", "SpecPrefill full", keep) for keep in (10, 30, 50, 90)},
                **{f"cut_{keep}": _quality("recall", "loss", "truncation", keep) for keep in (10, 30, 50, 90)},
            },
            holds=(
                "at_10 > at_30",
                "at_30 > at_50",
                "at_50 > whole",
                "at_90 < whole",
                "at_50 < cut_50",
                "at_10 < cut_10",
            ),
        ),
        Claim(
            "Table 2: RULER without aggregation, LLaMA-3.1-70B, keep 10 %, 4K tokens",
            "88.2; whole prompt 92.3",
            "another test",
            f"passkeys, which a selection finds by what stands out; {_OWN}",
            ours="{full}; whole prompt {whole}; cut off at the keep {cut}",
            setting="a full cache of what is kept",
            figures={
                "full": _quality("passkey", "accuracy", "SpecPrefill full", 10),
                "whole": _quality("passkey", "accuracy", "full KV", 100),
                "cut": _quality("passkey", "accuracy", "truncation", 10),
            },
            holds=("full > cut",),
        ),
        Claim(
            "Figures 2 and 8: raw scores, pooled, and with 8 tokens of look-ahead",
            "each better than the one before (no figures)",
            "contrary",
            "pooling helps; looking ahead loses at small shares and gains at half",
            ours="loss at 10 % {raw_10}, {full_10}, {lah_10}; at 50 % {raw_50}, {full_50}, {lah_50}",
            setting=f"12 passages; {_OWN}",
            figures={
                f"{name}_{keep}": _quality("recall", "loss", contender, keep)
                for keep in (10, 50)
                for name, contender in (
                    ("raw", "SpecPrefill raw"),
                    ("full", "SpecPrefill full"),
                    ("lah", "SpecPrefill full LAH 8"),
                )
            },
            holds=("full_10 < raw_10", "lah_10 > full_10", "full_50 < raw_50", "lah_50 < full_50"),
        ),
        Claim(
            "Figure 3: time to the first token, LLaMA-3.1-405B by 8B, keep 10 %, eight H200",
            "up to 7.66x",
            "less",
            "8B by 1B, a pair that is closer in size, so that less can be gained",
            ours="8,192 tokens {short}; 32,768 tokens {long}",
            model=_RANDOM,
            figures={"short": _gpu(10, 8192), "long": _gpu(10, 32768)},
            holds=("short < 7.66", "long < 7.66", "long > short"),
        ),
        Claim(
            "Figure 3: the same, by keep",
            "the fewer, the faster (no figures but one)",
            "agrees",
            "a pair of small shapes on a CPU",
            ours="10 % {at_10}; 30 % {at_30}; 50 % {at_50}",
            setting="2,048 tokens",
            model=_RANDOM_SMALL,
            figures={"at_10": _cpu(10), "at_30": _cpu(30), "at_50": _cpu(50)},
            holds=("at_10 > at_30", "at_30 > at_50"),
        ),
        Claim(
            "Figure 4: with 8 tokens of look-ahead",
            "a gain (no figures)",
            "less",
            "at 8,192 tokens most of the gain is gone: the steps ahead take a fixed time",
            ours="8,192 tokens {short}; 32,768 tokens {long}; without look-ahead {short_0} and {long_0}",
            setting="keep 10 %",
            model=_RANDOM,
            figures={
                "short": _gpu(10, 8192, 8),
                "long": _gpu(10, 32768, 8),
                "short_0": _gpu(10, 8192),
                "long_0": _gpu(10, 32768),
            },
            holds=("short < short_0", "long < long_0", "short < 1.7"),
        ),
        Claim(
            "Figure 9: measured over what the formula allows",
            "7.66x of 7.72x",
            "agrees",
            "the bound by the paper's formula, which counts all logits, is reached",
            ours="CPU {cpu}, at worst {cpu_worst}; H100 {gpu}, at worst {gpu_worst}",
            setting="without look-ahead",
            model="random weights",
            figures={
                "cpu": summary("specprefill", "ttft_share_of_paper_bound", SHARE),
                "cpu_worst": summary("specprefill", "ttft_share_of_paper_bound_worst", SHARE),
                "gpu": summary("gpu", "ttft_share_of_paper_bound", SHARE),
                "gpu_worst": summary("gpu", "ttft_share_of_paper_bound_worst", SHARE),
            },
            holds=("cpu > 0.95", "gpu > 0.95"),
        ),
        Claim(
            "Section 3.4: the same small model drafts the answer",
            "the two combine (no figures)",
            "contrary",
            f"{_OWN}, and hardly a draft is accepted: answers are the same, but slower",
            ours="{accepted} accepted, {speed} of the speed, {equal} of the answers equal; given up where they do not "
            "pay {fallback}",
            setting="50 prompts",
            figures={
                "accepted": summary("specprefill", "speculative_acceptance", SHARE),
                "speed": summary("specprefill", "speculative_speedup", "x"),
                "equal": summary("specprefill", "speculative_greedy_equal", SHARE),
                "fallback": summary("specprefill", "speculative_speedup_with_fallback", "x"),
            },
            holds=("speed < 1", "fallback < 1", "equal > 0.99"),
        ),
        Claim(
            "Section 6: models of one family agree on what matters",
            "8B for 70B and 405B (no figures)",
            "not measured",
            "a trained pair of 0.5B and 1.5B is in the catalogue and fits, and was never run",
            command="ondevice eval specprefill --speculator qwen2.5-coder-0.5b",
        ),
        Claim(
            "Figure 1: queries a second, LLaMA-3.1-405B",
            "up to 7x",
            "not measured",
            f"{_LARGE} and a server for many users",
        ),
        Claim(
            "Figure 5: over MInference, LLaMA-3.1-70B",
            "2.54 to 6.54x",
            "not measured",
            _LARGE,
        ),
        Claim(
            "Figure 2: LongBench by task, LLaMA-3.1-405B",
            "kept at 10 % but for summaries (no figures)",
            "not measured",
            _LARGE,
        ),
    ),
)
