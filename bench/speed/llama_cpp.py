"""llama.cpp as a contender, with a GGUF file and through `xllamacpp`, a Python package that brings it compiled.

Its weights are quantised where ours are not: what it shows is how fast the same question is answered elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ondevice.errors import ConfigError, ModelError
from ondevice.extras import install

NAME = "llama.cpp"


class LlamaCpp:
    """A server of llama.cpp inside this process.

    Args:
        path: a .gguf file.
        num_slots: tokens that its cache holds.
        num_threads: as many as torch works with.
        shifts: let it drop the oldest tokens once the cache is full (its context shift).

    Raises:
        ConfigError: the package is missing, or the file cannot be read.
    """

    def __init__(self, path: Path, num_slots: int, num_threads: int, *, shifts: bool = False) -> None:
        try:
            import xllamacpp
        except ImportError as error:
            raise ConfigError(
                "llama.cpp needs the package xllamacpp, which is not installed", fix=install("xllamacpp")
            ) from error
        if not path.is_file():
            raise ConfigError("There is no such file", where=str(path), fix="Name a .gguf file.")
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx, params.n_parallel, params.ctx_shift = num_slots, 1, shifts
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = num_threads
        self._server = xllamacpp.Server(params)

    def close(self) -> None:
        """End the server and its threads."""
        del self._server

    def decode(self, ids: Sequence[int], num_new: int) -> float:
        """Tokens per second of `num_new` greedy tokens after `ids`."""
        return self.complete(ids, num_new)["predicted_per_second"]

    def complete(self, ids: Sequence[int], num_new: int) -> dict[str, float]:
        """Write exactly `num_new` greedy tokens after `ids`; what it has read stays in its cache.

        Returns:
            Its own timings: `prompt_ms` of what was not in the cache, `predicted_n`, `predicted_ms`, and others.

        Raises:
            ModelError: it refuses them.
        """
        request = {
            "prompt": list(ids),
            "n_predict": num_new,
            "temperature": 0.0,
            "ignore_eos": True,
            "cache_prompt": True,
        }
        reply = self._server.handle_completions(request)
        if "timings" not in reply:
            raise ModelError(f"llama.cpp says: {reply.get('error', {}).get('message', 'nothing')}")
        timings: dict[str, float] = reply["timings"]
        return timings
