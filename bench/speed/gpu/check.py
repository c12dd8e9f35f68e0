"""`python -m ondevice_bench.speed.gpu.check`: checks that need an NVIDIA GPU, in less than ten minutes.

Every Triton kernel is compiled and held against its reference, whole sessions against those of the CPU; then reading,
decoding, attention and the time to the first token of a long prompt are measured, on random weights of Llama 3.1 8B's
shape where they fit; or, with --model, a model of one's own. It needs torch, triton, transformers, numpy and psutil,
and no network; pytest for the sessions.
Each part runs in a process of its own, so that none takes another with it. Without a GPU it says what is missing; exit
status 2.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from ondevice.config import EngineConfig
from ondevice_bench.results.files import read_result
from ondevice_bench.results.result import Result, new_result, row, write_result
from ondevice_bench.speed.gpu.run import Run

_ROOT = Path(__file__).resolve().parents[3]
_SECONDS = 540.0  # for all parts; what does not fit in is left out
_MISSING, _WRONG = 2, 1
_GRACE = 20.0  # seconds that a part gets to write what it has


class Part(NamedTuple):
    """One part: where its function is, the seconds it may take, and the processes that share it."""

    module: str
    function: str
    seconds: float
    num_processes: int = 1


PARTS = {
    "kernels": Part("ondevice_bench.speed.gpu.correctness", "check_kernels", 120, 14),
    "sessions": Part("ondevice_bench.speed.gpu.correctness", "check_sessions", 120, 8),
    "ceilings": Part("ondevice_bench.speed.gpu.ceilings", "measure_ceilings", 30),
    "reading": Part("ondevice_bench.speed.gpu.reading", "measure_reading", 80),
    "decoding": Part("ondevice_bench.speed.gpu.decoding", "measure_decoding", 110),
    "layers": Part("ondevice_bench.speed.gpu.layers", "measure_layers", 40),
    "memory": Part("ondevice_bench.speed.gpu.reading", "measure_memory", 60),
    "attention": Part("ondevice_bench.speed.gpu.attention", "measure_attention", 60),
    "prompt": Part("ondevice_bench.speed.gpu.prompts", "measure_prompt", 50),
    "specprefill": Part("ondevice_bench.speed.gpu.prompts", "measure_specprefill", 90),
}
MODEL = {"model": Part("ondevice_bench.speed.gpu.real_model", "measure_model", 400)}  # instead, where --model names one


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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="gpu-check", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--out", type=Path, help="write the results here, as JSON")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--model", type=Path, help="a folder or .gguf file: measure that model alone")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="for all parts together")
    parser.add_argument("--share", default="", help=argparse.SUPPRESS)  # I/N: this process is one of a part's
    options = parser.parse_args(arguments)
    parts = list(MODEL) if options.model is not None else options.parts.split(",")
    if options.model is not None and not options.model.exists():
        parser.error(f"--model names {options.model}, and there is nothing")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--parts names {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if lack := missing():
        print(f"gpu-check cannot run here. {lack}", file=sys.stderr)
        return _MISSING
    device = torch.device("cuda", torch.cuda.current_device())
    config = EngineConfig(device="cuda", dtype="bfloat16")
    some = "" if set(parts) == set(PARTS) else f" ARGS='--parts {options.parts}'"
    command = f"make gpu-check{some}" if options.model is None else f"make gpu-bench MODEL_FILE={options.model.name}"
    result = new_result(command, config, device)
    if options.share:
        run = Run(device, result, options.out, options.seconds)
        return _run_part(parts[0], run, options.share, options.model)
    print(f"{result.machine['device']}, torch {torch.__version__}, CUDA {torch.version.cuda}", flush=True)
    return _run_all(parts, result, options.out, options.seconds, options.model)


# -- the driver ------------------------------------------------------------------------------------------


def _run_all(parts: Sequence[str], result: Result, path: Path | None, seconds: float, model: Path | None) -> int:
    """One part after the other, each in processes of its own; what they wrote is put together after each."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("ONDEVICE_CACHE", folder)  # where caches lie otherwise needs a package of its own
        for name in parts:
            left = min((PARTS | MODEL)[name].seconds, end - time.monotonic())
            print(f"\n{name} ({max(left, 0):.0f} s at most)", flush=True)
            began = time.monotonic()
            found = _part_results(name, left, Path(folder), model) if left > _GRACE else []
            took = time.monotonic() - began
            rows = [one for each in found for one in each.rows]
            if not found:
                rows.append(row(name, {"why": "no time was left, or nothing came back"}, "left out", "", [1.0]))
            rows.append(row(name, {}, "time of the part", "s", [took]))
            is_whole = bool(found) and all(each.complete for each in found)
            summary = dict(result.summary)
            for each in found:
                for key, value in each.summary.items():  # parts of one part count together
                    summary[key] = summary.get(key, 0.0) + value if key.startswith(("sessions_", "kernel_")) else value
            summary[f"{name}_complete"] = float(is_whole)
            result = replace(result, rows=(*result.rows, *rows), summary=summary)
            if path is not None:
                write_result(path, result)
    is_whole = all(value for key, value in result.summary.items() if key.endswith("_complete"))
    num_wrong = sum(value for key, value in result.summary.items() if key.endswith("_wrong"))
    if path is not None:
        write_result(path, replace(result, complete=is_whole))
    print("\nsummary")
    for name, value in result.summary.items():
        print(f"  {name:<44} {value:>10.4g}")
    if num_wrong:
        print(f"{num_wrong:.0f} comparisons are WRONG")
    return _WRONG if num_wrong else 0


def _part_results(name: str, seconds: float, folder: Path, model: Path | None) -> list[Result]:
    """Run the processes of one part; what each of them wrote, as far as it came."""
    number = (PARTS | MODEL)[name].num_processes
    paths = [folder / f"{name}.{index}.json" for index in range(number)]
    script = str(_ROOT / "scripts" / "from-checkout")
    running = []
    for index, path in enumerate(paths):
        command = [sys.executable, "-X", "faulthandler", script, "ondevice_bench.speed.gpu.check", "--parts", name]
        command += ["--share", f"{index}/{number}", "--seconds", str(seconds - _GRACE), "--out", str(path)]
        command += [] if model is None else ["--model", str(model.resolve())]
        running.append(subprocess.Popen(command))
    end = time.monotonic() + seconds
    for process in running:
        try:
            process.wait(max(end - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            print(f"  {name}: stopped after {seconds:.0f} s", flush=True)
            process.kill()
            process.wait()
    return [read_result(path) for path in paths if path.exists()]


# -- one process of a part -------------------------------------------------------------------------------


def _run_part(name: str, run: Run, share: str, model: Path | None) -> int:
    part, (index, number) = (PARTS | MODEL)[name], map(int, share.split("/"))
    try:
        measure: Callable[..., None] = getattr(importlib.import_module(part.module), part.function)
        run.keep(is_complete=False)
        if number > 1:
            measure(run, index, number)
        elif model is not None:
            measure(run, model)
        else:
            measure(run)
    except Exception as failure:  # whatever happens is a row: a GPU is seldom at hand to try again
        traceback.print_exc()
        run.leave_out(name, f"{type(failure).__name__}: {failure}")
    run.keep(is_complete=True)
    sys.stdout.flush()
    # A device that failed may hang at the interpreter's end.
    os._exit(_WRONG if run.num_wrong else 0)


if __name__ == "__main__":
    sys.exit(main())
