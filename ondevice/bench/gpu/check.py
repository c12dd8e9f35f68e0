"""`python -m ondevice.bench.gpu.check`: checks that need an NVIDIA GPU, in a few minutes.

Every Triton kernel is compiled and held against its reference; then attention, decoding as a CUDA graph, how much
several tokens at once round otherwise than one by one, and the time to the first token of a long prompt are measured,
on random weights of Llama 3.1 8B's shape where they fit. It needs torch, triton, transformers, numpy and psutil, and
no network. Without a GPU it says what is missing; exit status 2.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ondevice.config import EngineConfig
from ondevice.errors import OndeviceError
from ondevice.results.results import Result, Row, new_result, row, write_result

if TYPE_CHECKING:
    from ondevice.model.decoder import Decoder

PARTS = ("kernels", "attention", "graph", "drafts", "prompt", "specprefill")
_SECONDS = 480.0  # for all parts; what does not fit in is left out
_PROMPT_TOKENS = 32_768
_PROMPT_STEP = 4096  # tokens of a pass, where a prompt is read in several
_POT_SLOTS = (4096, 16_384)
_NEW_TOKENS = 64
_MISSING, _WRONG = 2, 1


class Run:
    """The rows and the summary so far, and the time that is left."""

    def __init__(self, device: torch.device, seconds: float = _SECONDS) -> None:
        self.device, self.rows, self.summary, self.left_out = device, list[Row](), dict[str, float](), list[str]()
        self.num_wrong = 0
        self._end = time.monotonic() + seconds

    @property
    def has_time(self) -> bool:
        return time.monotonic() < self._end

    def add(self, rows: Sequence[Row]) -> None:
        """Keep rows and print them."""
        self.rows += rows
        for one in rows:
            case = ", ".join(f"{name} {value}" for name, value in one.case.items())
            print(f"  {case:<28} {one.contender:<30} {one.metric:<16} {one.p50:>11.4g} {one.unit}", flush=True)

    def leave_out(self, what: str, why: object) -> None:
        self.left_out.append(what)
        print(f"  left out: {what}: {why}", flush=True)


def missing() -> str:
    """Reason why this machine cannot run the check; "" where it can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: its kernels are what is checked."
    if not torch.cuda.is_available():
        build = torch.version.cuda or "none"
        return (
            f"torch sees no NVIDIA GPU (its CUDA version is {build}). A driver, or a CUDA build of torch, is missing."
        )
    return ""


def check_kernels(run: Run) -> None:
    """Every case of `kernel_cases`, compiled for this GPU."""
    from ondevice.bench.gpu.kernel_cases import kernel_cases

    worst: dict[str, float] = {}
    for case in kernel_cases():
        try:
            error = case.error(run.device)
        except Exception as failure:  # a kernel that does not compile: the others are to be heard of too
            error = float("inf")
            print(f"  {type(failure).__name__}: {str(failure)[:500]}")
        worst[case.kernel] = max(worst.get(case.kernel, 0.0), error / case.tolerance)
        if not error <= case.tolerance:
            run.num_wrong += 1
            print(f"  WRONG: {case}: error {error:.3g}, and {case.tolerance:.3g} is allowed")
    finite = {kernel: min(ratio, 1e9) for kernel, ratio in worst.items()}  # JSON has no infinity
    run.add([row(kernel, {}, "worst error", "of what is allowed", [ratio]) for kernel, ratio in finite.items()])
    run.summary["kernel_cases_wrong"] = float(run.num_wrong)


def measure_attention(run: Run) -> None:
    """Times of attention kernels."""
    from ondevice.bench.gpu import attention as gpu_attention

    for rows in _all(gpu_attention.decode_rows(run.device), gpu_attention.other_rows(run.device)):
        run.add(rows)
        if not run.has_time:
            run.leave_out("the other sizes of attention", "no time is left")
            break
    run.summary |= gpu_attention.summary_of(run.rows)


def measure_graph(run: Run) -> None:
    """Decoding from a full pot: the decoder's `forward`, and the same step eagerly and as a graph."""
    from ondevice.bench.gpu.graph import StaticStep, decoder_run
    from ondevice.model.decoder import Decoder

    name, decoder = _decoder(run)
    assert isinstance(decoder, Decoder)
    for slots in _POT_SLOTS:
        pot, case = decoder.new_pot(slots), {"model": name, "slots": slots}
        static = StaticStep(decoder, pot)
        static.capture()
        static.run(4, as_graph=True)
        eager, expected = static.run(_NEW_TOKENS, as_graph=False)
        graph, tokens = static.run(_NEW_TOKENS, as_graph=True)
        static.reset()
        decoder_run(decoder, pot, 4)
        static.reset()
        forward, theirs = decoder_run(decoder, pot, _NEW_TOKENS)
        run.add(
            [
                row("Decoder.forward", case, "decoding speed", "tokens/s", [forward]),
                row("static step", case, "decoding speed", "tokens/s", [eager]),
                row("static step, CUDA graph", case, "decoding speed", "tokens/s", [graph]),
                row("static step, CUDA graph", case, "same tokens as eager", "", [float(tokens == expected)]),
                row("static step", case, "same tokens as forward", "share", [_agreement(expected, theirs)]),
            ]
        )
        run.summary[f"graph_speedup_{slots}"] = graph / forward
        if tokens != expected:
            run.num_wrong += 1
        del static, pot
        torch.cuda.empty_cache()


def measure_drafts(run: Run) -> None:
    """Distance between logits of tokens read at once and one by one: `drafting` calls less a tie."""
    from ondevice.model.decoder import Decoder

    name, decoder = _decoder(run)
    assert isinstance(decoder, Decoder)
    units = logit_deviation(decoder, num_cached=1024, num_tokens=4, rounds=16)
    case = {"model": name, "tokens at once": 4}
    run.add([row("Decoder.forward", case, "largest deviation of a logit", "last places of the largest", [units])])
    run.summary["draft_logit_deviation"] = units


@torch.inference_mode()
def logit_deviation(decoder: Decoder, *, num_cached: int, num_tokens: int, rounds: int) -> float:
    """The largest distance between logits of `num_tokens` tokens at once and one by one, after `num_cached` tokens, in
    units in the last place of the largest logit."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, decoder.parts.vocab_size, (1, num_cached + rounds * num_tokens), generator=generator)
    ids, pot, worst = ids.to(decoder.device), decoder.new_pot(ids.shape[1]), 0.0
    decoder.forward(ids[:, :num_cached], pot)
    for part in ids[:, num_cached:].split(num_tokens, dim=1):
        with pot.savepoint():
            together = decoder.head.logits(decoder.forward(part, pot).hidden_states)
        alone = [decoder.head.logits(decoder.forward(token, pot).hidden_states) for token in part.split(1, dim=1)]
        expected = torch.cat(alone, dim=1)
        unit = torch.finfo(expected.dtype).eps * expected.float().abs().amax(dim=-1)
        distance = (together.float() - expected.float()).abs().amax(dim=-1)
        worst = max(worst, float((distance / unit).max()))
    return worst


def measure_prompt(run: Run) -> None:
    """Time to the first token of a whole prompt in one pass, with and without SlimInfer's pruning."""
    from ondevice.bench.slim import PAPER
    from ondevice.model.decoder import Decoder
    from ondevice.prefill.pruning import Pruning, slim_steps, stored_tokens

    name, decoder = _decoder(run)
    assert isinstance(decoder, Decoder)
    layers = len(decoder.parts.layers)
    if name != "llama-3.1-8b":
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
            int(decoder.head.logits(out.hidden_states[:, -1]).argmax())
            seconds.setdefault(contender, []).append(time.perf_counter() - began)
            del pot, out, pruning
    case = {"model": name, "prompt tokens": _PROMPT_TOKENS}
    for contender, values in seconds.items():
        run.add([row(contender, case, "time to first token", "s", values[1:])])  # the first warmed up
    run.summary["slim_ttft_speedup_32k"] = min(seconds["full KV"][1:]) / min(seconds["SlimInfer"][1:])


def measure_specprefill(run: Run) -> None:
    """Time to the first token with SpecPrefill, a 1B speculator before an 8B model, beside the bound of its FLOPs."""
    from ondevice.bench.specprefill import random_pair, run_ttft, summary_of

    _decoders.clear()  # the pair has weights of its own
    torch.cuda.empty_cache()
    if torch.cuda.mem_get_info(run.device)[0] < 32e9:
        run.leave_out("SpecPrefill", "an 8B and a 1B model with their caches take 32 GB")
        return
    pair = random_pair("llama-3.1-8b", "llama-3.2-1b", device=run.device, dtype=torch.bfloat16)
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


_decoders: dict[str, object] = {}


def _decoder(run: Run) -> tuple[str, object]:
    """A decoder over random weights of the largest shape that fits with some room, and its name; made once."""
    from ondevice.bench.random_model import random_model
    from ondevice.model.decoder import Decoder

    if not _decoders:
        free = torch.cuda.mem_get_info(run.device)[0]
        name = "llama-3.1-8b" if free > 26e9 else "llama-2-like"
        _decoders[name] = Decoder(random_model(name, device=run.device, dtype=torch.bfloat16).model)
    return next(iter(_decoders.items()))


def _agreement(tokens: list[int], others: list[int]) -> float:
    """The share of the tokens before the first one that differs."""
    same = [one == other for one, other in zip(tokens, others, strict=True)]
    return (same.index(False) if False in same else len(same)) / len(same)


def _all(*parts: Iterator[list[Row]]) -> Iterator[list[Row]]:
    for part in parts:
        yield from part


_MEASURES: dict[str, Callable[[Run], None]] = {
    "kernels": check_kernels,
    "attention": measure_attention,
    "graph": measure_graph,
    "drafts": measure_drafts,
    "prompt": measure_prompt,
    "specprefill": measure_specprefill,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="gpu-check", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--out", type=Path, help="write the results here, as JSON")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    options = parser.parse_args(arguments)
    parts = options.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--parts names {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if lack := missing():
        print(f"gpu-check cannot run here. {lack}", file=sys.stderr)
        return _MISSING
    device = torch.device("cuda", torch.cuda.current_device())
    run = Run(device)
    config = EngineConfig(device="cuda", dtype="bfloat16")
    result = new_result(f"gpu_check --parts {options.parts}", config, device)
    print(f"{result.machine['device']}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    for part in parts:
        print(f"\n{part}: {_MEASURES[part].__doc__}")
        try:
            if run.has_time:
                _MEASURES[part](run)
            else:
                run.leave_out(part, "no time is left")
        except (OndeviceError, RuntimeError) as failure:  # too little memory, or something this GPU cannot do
            run.leave_out(part, str(failure)[:500])
        _keep(options.out, replace(result, rows=tuple(run.rows), summary=run.summary))
    done = replace(result, rows=tuple(run.rows), summary=run.summary, complete=not run.left_out and not run.num_wrong)
    _keep(options.out, done)
    print("\nsummary")
    for name, value in run.summary.items():
        print(f"  {name:<36} {value:>10.4g}")
    if run.num_wrong:
        print(f"{run.num_wrong} comparisons are WRONG")
    return _WRONG if run.num_wrong else 0


def _keep(path: Path | None, result: Result) -> None:
    """Write what there is after every part: a run that is stopped leaves its figures."""
    if path is not None:
        write_result(path, result)


if __name__ == "__main__":
    sys.exit(main())
