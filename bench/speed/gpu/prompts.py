"""Time to the first token of a whole prompt on a GPU: SlimInfer's pruning, and SpecPrefill."""

from __future__ import annotations

import time

import torch

from ondevice.prefill.pruning import Pruning, slim_steps, stored_tokens
from ondevice_bench.results.result import row
from ondevice_bench.speed.gpu.run import LARGE, SMALL, Run, large_decoder
from ondevice_bench.speed.slim import PAPER
from ondevice_bench.speed.specprefill import random_pair, run_ttft, summary_of

_PROMPT_TOKENS = 32_768
_PROMPT_STEP = 4096  # tokens of a pass, where a prompt is read in several


def measure_prompt(run: Run) -> None:
    """Time to the first token of a whole prompt in one pass, with and without SlimInfer's pruning."""
    name, decoder = large_decoder(run)
    layers = len(decoder.parts.layers)
    if name != LARGE:
        run.leave_out("the time to the first token", "the paper's schedule is for Llama 3.1 8B, which does not fit")
        return
    ids = torch.randint(0, 256, (1, _PROMPT_TOKENS), device=run.device)
    seconds: dict[str, list[float]] = {}
    for _ in range(3):
        for contender in ("full KV", "SlimInfer"):
            steps = slim_steps(PAPER, layers) if contender == "SlimInfer" else ()
            stored = stored_tokens(steps, PAPER, _PROMPT_TOKENS, layers)
            capacities = tuple(min(size + PAPER.window + PAPER.block_size, _PROMPT_TOKENS) for size in stored)
            pot = decoder.new_pot(_PROMPT_TOKENS, capacities=capacities)
            pruning = Pruning(steps, PAPER, _PROMPT_TOKENS, 0, is_first=True) if steps else None
            decoder.synchronize()
            began = time.perf_counter()
            out = decoder.forward(ids, pot, pruning=pruning)
            decoder.head.likeliest(out.hidden_states[:, -1])
            seconds.setdefault(contender, []).append(time.perf_counter() - began)
            del pot, out, pruning
    case = {"model": name, "prompt tokens": _PROMPT_TOKENS}
    for contender, values in seconds.items():
        run.add([row(contender, case, "time to first token", "s", values[1:])])  # the first warmed up
    run.summary["slim_ttft_speedup_32k"] = min(seconds["full KV"][1:]) / min(seconds["SlimInfer"][1:])


def measure_specprefill(run: Run) -> None:
    """Time to the first token with SpecPrefill, a 1B speculator before an 8B model, beside the bound of its FLOPs."""
    if torch.cuda.mem_get_info(run.device)[0] < 32e9:
        run.leave_out("SpecPrefill", "an 8B and a 1B model with their caches take 32 GB")
        return
    pair = random_pair(LARGE, SMALL, device=run.device, dtype=torch.bfloat16)
    for num_tokens in (8_192, _PROMPT_TOKENS):
        for num_lookahead in (0, 8):
            if not run.has_time:
                run.leave_out(f"SpecPrefill at {num_tokens} tokens, look-ahead {num_lookahead}", "no time is left")
                continue
            run.add(run_ttft(pair, num_tokens, num_lookahead=num_lookahead, step_size=_PROMPT_STEP, rounds=3))
    # Without look-ahead, at the longest prompt that was measured: the bound does not know of look-ahead.
    plain = [one for one in run.rows if one.case.get("look-ahead") == 0]
    longest = max((one.case["prompt tokens"] for one in plain), default=0)
    run.summary |= summary_of([one for one in plain if one.case["prompt tokens"] == longest])
