"""The part of kvpress in `bench peers`, run by the Python of its own environment: this program is not imported there.

A task comes as JSON on standard input, its figures go as JSON to standard output.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import kvpress  # type: ignore[import-not-found]  # it is in that environment
import torch
import transformers


def main() -> None:
    """Read the text, drop what the press drops of it, and answer every question greedily from what is left."""
    task: dict[str, Any] = json.load(sys.stdin)
    torch.set_num_threads(task["num_threads"])
    torch.set_grad_enabled(False)
    path = Path(task["gguf"])
    load, loading = transformers.AutoModelForCausalLM.from_pretrained, time.perf_counter()
    model = load(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    load_seconds = time.perf_counter() - loading
    ids = torch.tensor([task["ids"]])
    press = kvpress.ExpectedAttentionPress(compression_ratio=max(1.0 - task["num_kept"] / ids.shape[1], 0.0))
    _read(model, ids[:, : task["warm_up"]], press)
    began = time.perf_counter()
    cache = _read(model, ids, press)
    seconds = time.perf_counter() - began
    kept = [layer.keys.shape[2] for layer in cache.layers]
    cache_bytes = sum(part.nbytes for layer in cache.layers for part in (layer.keys, layer.values))
    answers = []
    for question in task["question_ids"]:
        answers.append(_answer(model, cache, torch.tensor([question]), ids.shape[1], task["new_tokens"]))
        for layer, length in zip(cache.layers, kept, strict=True):  # question and answer are taken back
            layer.keys, layer.values = layer.keys[:, :, :length], layer.values[:, :, :length]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    done = {"load_seconds": load_seconds, "reading_seconds": seconds, "answers": answers, "peak_bytes": peak}
    json.dump(done | {"cache_bytes": cache_bytes, "kept": max(kept)}, sys.stdout)


def _read(model: Any, ids: torch.Tensor, press: Any) -> Any:
    cache = transformers.DynamicCache()
    with press(model):
        model.model(input_ids=ids, past_key_values=cache)
    return cache


def _answer(model: Any, cache: Any, ids: torch.Tensor, position: int, num_new: int) -> tuple[float, int, float]:
    """Seconds to the first token, tokens, seconds for those after the first. Positions go on after the whole text."""
    began, times = time.perf_counter(), list[float]()
    for _ in range(num_new):
        positions = torch.arange(position, position + ids.shape[1])[None]
        logits = model(input_ids=ids, past_key_values=cache, position_ids=positions, logits_to_keep=1).logits
        position += ids.shape[1]
        ids = logits[:, -1:].argmax(dim=-1)
        int(ids)
        times.append(time.perf_counter())
    return times[0] - began, len(times), times[-1] - times[0]


if __name__ == "__main__":
    main()
