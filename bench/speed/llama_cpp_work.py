"""The program of llama.cpp in `bench peers`, run by the Python of any environment: this project is not imported there.

A task comes as JSON on standard input, its figures go as JSON to standard output; llama.cpp's log is on standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

_BATCH = 512  # tokens of one pass: what both packages compute at once by default
_CACHE_TYPE = "f16"  # of keys and values: the default of both


class _Peer(Protocol):
    def read(self, ids: list[int]) -> None: ...

    def answer(self, ids: list[int], num_new: int) -> tuple[float, int, float]: ...


class _LlamaCppPython:
    """`llama-cpp-python`, which makes one token at a time and keeps in its cache what two prompts begin with."""

    def __init__(self, llama_cpp: Any, task: dict[str, Any]) -> None:
        self._llama = llama_cpp.Llama(
            task["gguf"],
            n_ctx=task["num_slots"],
            n_batch=_BATCH,
            n_ubatch=_BATCH,
            n_threads=task["num_threads"],
            n_threads_batch=task["num_threads"],
            flash_attn=task["flash_attention"],
            verbose=True,  # the log says how large its cache is
        )

    def read(self, ids: list[int]) -> None:
        self._llama.reset()
        self._llama.eval(ids)

    def answer(self, ids: list[int], num_new: int) -> tuple[float, int, float]:
        began, tokens = time.perf_counter(), self._llama.generate(ids, temp=0.0)
        times = []
        for _ in range(num_new):
            next(tokens)
            times.append(time.perf_counter())
        return times[0] - began, len(times), times[-1] - times[0]

    @staticmethod
    def system_info(llama_cpp: Any) -> str:
        return str(llama_cpp.llama_print_system_info().decode())


class _XLlamaCpp:
    """`xllamacpp`, a server inside this process, by its own clock; it can shift what its cache holds."""

    def __init__(self, xllamacpp: Any, task: dict[str, Any]) -> None:
        params, flash = xllamacpp.CommonParams(), xllamacpp.llama_flash_attn_type
        params.model.path = task["gguf"]
        params.n_ctx, params.n_parallel, params.ctx_shift = task["num_slots"], 1, task["shifts"]
        params.n_batch = params.n_ubatch = _BATCH
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = task["num_threads"]
        params.flash_attn_type = (
            flash.LLAMA_FLASH_ATTN_TYPE_ENABLED if task["flash_attention"] else flash.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        # Every contender is warmed up by the caller, outside its loading time, and no other prompt comes back later.
        params.warmup, params.cache_ram_mib = False, 0
        params.verbosity = 4  # from which on the log says how large its cache is
        self._server = xllamacpp.Server(params)

    def read(self, ids: list[int]) -> None:
        self._complete(ids, 1)

    def answer(self, ids: list[int], num_new: int) -> tuple[float, int, float]:
        timings = self._complete(ids, num_new)
        # Its clock of the prompt stops, and that of the answer starts, once the first token is there.
        return timings["prompt_ms"] / 1e3, int(timings["predicted_n"]), timings["predicted_ms"] / 1e3

    def _complete(self, ids: list[int], num_new: int) -> dict[str, float]:
        request = {"prompt": ids, "n_predict": num_new, "temperature": 0.0, "ignore_eos": True, "cache_prompt": True}
        reply = self._server.handle_completions(request)
        if "timings" not in reply:
            raise RuntimeError(reply.get("error", {}).get("message", "nothing"))
        timings: dict[str, float] = reply["timings"]
        return timings

    @staticmethod
    def system_info(xllamacpp: Any) -> str:
        return str(xllamacpp.get_system_info())


_PACKAGES: dict[str, tuple[str, Any]] = {
    "llama-cpp-python": ("llama_cpp", _LlamaCppPython),
    "xllamacpp": ("xllamacpp", _XLlamaCpp),
}


def main() -> None:
    """Say which packages are here where the task names none, else read the text and answer every question."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what llama.cpp prints is no figure
    task: dict[str, Any] = json.load(sys.stdin)
    try:
        done = _work(task) if task else {"builds": [*_builds()]}
    except Exception as error:
        done = {"error": _text(error)}
    with out:
        json.dump(done, out)


def _builds() -> Iterator[dict[str, Any]]:
    for package, (module, peer) in _PACKAGES.items():
        try:
            number = version(package)
        except PackageNotFoundError:
            continue
        try:
            info = " ".join(peer.system_info(import_module(module)).split())
        except Exception as error:  # its work will fail, too, and then it is known why
            info = _text(error)
        about = {"package": package, "version": number, "system_info": info}
        yield {**about, "n_batch": _BATCH, "n_ubatch": _BATCH, "cache_type": _CACHE_TYPE}


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _work(task: dict[str, Any]) -> dict[str, Any]:
    ids, (name, contender) = task["ids"], _PACKAGES[task["package"]]
    module, began = import_module(name), time.perf_counter()
    peer: _Peer = contender(module, task)
    loaded = time.perf_counter()
    peer.read(ids[: task["warm_up"]][::-1])  # backwards: the text itself must not be in the cache yet
    reading = time.perf_counter()
    peer.read(ids)
    read = time.perf_counter()
    answers = [peer.answer([*ids, *question], task["new_tokens"]) for question in task["question_ids"]]
    return {
        "load_seconds": loaded - began,
        "reading_seconds": read - reading,
        "answers": answers,
        "peak_bytes": _peak_bytes(),
    }


def _peak_bytes() -> int:
    """Not `getrusage` where there is better: that counts the process which started this one, too."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
