"""ART: decode attention ends once the output of a head has converged."""

from __future__ import annotations

from ondevice_bench.results.papers.paper import Claim, Figure, Paper, longbench, rows, summary

_POT = "InfiniPot CaP-G NuC 0.5 4096/2048"
_CURVE = "art_curve_4096"
_NOT_READ, _LOSS = "share of blocks not read", "mean loss"
_OURS = "thresholds relative to each head's output, calibrated on another text"
_BATCHES = (1, 2, 4, 8)


def _curve(metric: str, rule: str) -> Figure:
    return rows(_CURVE, metric, _POT, {"rule": rule})


def _kernel(contender: str, slots: int) -> Figure:
    return rows("gpu", "time", contender, {"batch": 1, "slots": slots})


ART = Paper(
    "ART",
    "ART: Attention Run-time Termination for Efficient Large Language Model Decoding",
    "https://arxiv.org/abs/2606.00024",
    "It claims 20 % more tokens a second at large batches for half a point of LongBench, by leaving off attention "
    "early.",
    "Here thresholds of our own skip a third of the blocks of a pot for hardly any loss, and a step gains nearly as "
    "much as the paper's at batch 8 alone; the paper's thresholds cost nothing on LongBench, and on a GPU the check "
    "costs more than it saves in small caches.",
    (
        Claim(
            "Table 1: LongBench, Mistral-7B-v0.3, full cache",
            "45.74 with ART, 46.29 without",
            "agrees",
            "four of its tasks, six texts each of at most 9,000 tokens, a small model: with the paper's thresholds no "
            "answer gets another score; how many blocks that left off was not recorded",
            ours="{art} with ART, {full} without",
            figures=longbench("longbench_papers_0_5b", full="full", art="paper-art"),
            holds=("art > 0.39", "full < 0.4"),
        ),
        Claim(
            "Table 1: loss of quality against reading all",
            "0.55 points",
            "another test",
            f"loss of passages of a novel; {_OURS}",
            ours="loss {art} with {share} of the blocks not read, {all} with all",
            setting="pot of {pot.capacity} slots, 24 passages",
            figures={
                "art": _curve(_LOSS, "settings"),
                "share": _curve(_NOT_READ, "settings"),
                "all": _curve(_LOSS, "everything is read"),
            },
            holds=("art > all",),
        ),
        Claim(
            "Table 1: passage retrieval in English",
            "97.66 with ART, 98.44 without",
            "another test",
            "passkeys, and few of them: with the usual thresholds most are lost, as heads that look for one token end "
            "before they come to it",
            ours="usual thresholds {found}",
            setting="pot of {pot.capacity} slots, 16,384 tokens",
            figures={"found": rows("passkey_art", "accuracy", "InfiniPot CaP-G NuC 0.5 slots by-head 2048/1024 + ART")},
            holds=("found < 0.9766",),
        ),
        Claim(
            "Section 4.1: tau 1e-5, phi 1e-3, patience 5",
            "the thresholds of all its tables",
            "not measured",
            "they are there as a preset, and no file has them",
            command="ondevice bench art --preset paper-art",
        ),
        Claim(
            "Figure 6: tokens a second at batches 1, 2, 4, 8, A100",
            "20 % more at large batches",
            "agrees",
            "near the paper's at batch 8 alone, over the same kernel that reads all; a CPU",
            ours=", ".join(f"{{batch_{batch}}}" for batch in _BATCHES),
            setting=f"pot of 4,096 slots; {_OURS}",
            figures={
                f"batch_{batch}": rows(
                    "art", "decoding step over all blocks, speedup", "ART", {"cache": "4096", "batch": batch}
                )
                for batch in _BATCHES
            },
            holds=("batch_8 > 1.1", "batch_8 < 1.3", "batch_1 < 1.1", "batch_2 < 1.1"),
        ),
        Claim(
            "Table 2: without the check of scale",
            "time 78.7 % less, score 19.34 in place of 45.91",
            "agrees",
            "nearly everything is skipped and the loss rises",
            ours="{share} not read, loss {loss}; with it {all_share} and {all_loss}",
            setting="pot of {pot.capacity} slots",
            figures={
                "share": _curve(_NOT_READ, "settings without scale"),
                "loss": _curve(_LOSS, "settings without scale"),
                "all_share": _curve(_NOT_READ, "settings"),
                "all_loss": _curve(_LOSS, "settings"),
            },
            holds=("share > 0.7", "loss > all_loss"),
        ),
        Claim(
            "Table 2: without patience",
            "time 20.1 % less, score 41.54 in place of 45.91",
            "less",
            "more is skipped, but the loss hardly changes: patience is worth little here",
            ours="{share} not read, loss {loss}; with it {all_share} and {all_loss}",
            setting="pot of {pot.capacity} slots",
            figures={
                "share": _curve(_NOT_READ, "settings without patience"),
                "loss": _curve(_LOSS, "settings without patience"),
                "all_share": _curve(_NOT_READ, "settings"),
                "all_loss": _curve(_LOSS, "settings"),
            },
            holds=("share > all_share", "loss > all_loss", "loss < 3.25"),
        ),
        Claim(
            "Table 2: without the check of direction",
            "time 0.8 % less, score 43.87 in place of 45.91",
            "not measured",
            "calibration sets it so wide that it never holds an end back",
            command="ondevice eval art-curve",
        ),
        Claim(
            "Table 3: cost of the check when nothing ends early, A100",
            "1.3 %",
            "contrary",
            "less on a CPU; on a GPU nearly as much as reading itself, so that ART is off there",
            ours="CPU {cpu} %; H100 {gpu} %",
            setting="medians over caches of several sizes",
            figures={
                "cpu": summary("art", "detector_overhead_percent"),
                "gpu": summary("gpu", "detector_overhead_percent"),
            },
            holds=("cpu < 1.3", "gpu > 1.3"),
        ),
        Claim(
            "Figure 7: tau 1e-6 to 1e-4, LongBench",
            "about 46.0 up to 1e-5, then 44.71",
            "agrees",
            "a trade-off as there, in thresholds of another kind: these are relative to the output",
            ours="tau 0.0001: {least} not read, loss {least_loss}; 0.01: {some}, {some_loss}; 0.05: {most}, "
            "{most_loss}",
            setting="pot of {pot.capacity} slots",
            figures={
                "least": _curve(_NOT_READ, "tau 0.0001"),
                "least_loss": _curve(_LOSS, "tau 0.0001"),
                "some": _curve(_NOT_READ, "tau 0.01"),
                "some_loss": _curve(_LOSS, "tau 0.01"),
                "most": _curve(_NOT_READ, "tau 0.05"),
                "most_loss": _curve(_LOSS, "tau 0.05"),
            },
            holds=("least < some", "some < most", "least_loss < some_loss", "some_loss < most_loss"),
        ),
        Claim(
            "Figure 8: time of the kernel by length",
            "the longer, the more is saved (no figures)",
            "contrary",
            "so in a pot, but in a full cache calibration finds no threshold that may end anything",
            ours="{small} % in a pot of 4,096, {large} % of 8,192, {full} % of a full cache of 16,024",
            setting=_OURS,
            figures={
                "small": summary("art", "kernel_time_saving_percent_4096"),
                "large": summary("art", "kernel_time_saving_percent_8192"),
                "full": summary("art", "kernel_time_saving_percent_full_16k"),
            },
            holds=("large > small", "full < 5"),
        ),
        Claim(
            "Figure 8, on a GPU",
            "the longer, the more is saved (no figures)",
            "agrees",
            "slower with few slots, faster with many, over the same kernel that reads all; this part of the run was "
            "cut short",
            model="made-up keys",
            ours="4,096 slots {small} in place of {small_all}; 32,768 slots {large} in place of {large_all}",
            figures={
                "small": _kernel("decode attention, ends early", 4096),
                "small_all": _kernel("decode attention", 4096),
                "large": _kernel("decode attention, ends early", 32768),
                "large_all": _kernel("decode attention", 32768),
            },
            holds=("small > small_all", "large < large_all"),
        ),
        Claim(
            "Table 5: LongBench, LLaMA-3.1-70B, four A100",
            "47.48 with ART, 48.25 without",
            "not measured",
            "needs four GPUs of 80 GB",
        ),
    ),
)
