"""Decoding: one token after the other from the pot, and by `model.generate` of transformers, in turn in one run.

Both start from a cache of the same length with the same tokens in it and add the same number of greedy tokens.
The limit is how fast memory can be read: every token reads all weights and the whole cache once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ondevice.config import EngineConfig
from ondevice.errors import ConfigError
from ondevice.model.decoder import Decoder
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed import llama_cpp
from ondevice_bench.speed.bandwidth import ReadBandwidth
from ondevice_bench.speed.generated_text import generated
from ondevice_bench.speed.quantized import packed_bytes
from ondevice_bench.speed.reference import Reference, load_reference, synchronize

_STEP = 512  # tokens per pass while the cache is filled
_WARM_UP_TOKENS = 4
_CACHED, _QUICK_CACHED = (1024, 2000), (1024,)
POT = "pot"
GENERATE = "transformers generate"


@dataclass(slots=True)
class Decoding:
    """Figures at one cache length; values of one round have the same index, speeds in tokens per second.

    `llama_speeds` are those of each variant of llama.cpp, measured after the others.
    `bandwidths` are bytes per second, `same_tokens` says whether both contenders wrote the same text.
    """

    num_cached: int
    bytes_per_token: int
    pot_speeds: list[float] = field(default_factory=list)
    generate_speeds: list[float] = field(default_factory=list)
    bandwidths: list[float] = field(default_factory=list)
    same_tokens: bool = True
    llama_speeds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Median of the ratios of neighbours."""
        return float(np.median([pot / other for pot, other in zip(self.pot_speeds, self.generate_speeds, strict=True)]))

    @property
    def share_of_limit(self) -> float:
        """Median of the pot's speed relative to the limit that memory sets."""
        limits = [bandwidth / self.bytes_per_token for bandwidth in self.bandwidths]
        return float(np.median([pot / limit for pot, limit in zip(self.pot_speeds, limits, strict=True)]))


def run_decode(
    engine: Engine, reference: Reference, input_ids: Tensor, num_new: int, num_rounds: int
) -> Iterator[tuple[int, Decoding]]:
    """Measure round after round; yields the number of rounds done and the figures so far.

    Args:
        input_ids: (1, num_cached + 1): what is in the cache, and the token that decoding starts with.
    """
    decoder = engine.decoder
    ours = _PotDecoding(decoder, input_ids, num_new)
    cache, bandwidth = reference.fill(input_ids), ReadBandwidth(decoder.device)
    decoding = Decoding(input_ids.shape[1] - 1, bytes_per_token(engine, input_ids.shape[1] + num_new // 2))
    ours.run(_WARM_UP_TOKENS)
    reference.generate(input_ids, cache, _WARM_UP_TOKENS)
    for done in range(num_rounds):
        seconds, tokens = ours.run(num_new)
        decoding.pot_speeds.append(num_new / seconds)
        seconds, expected = reference.generate(input_ids, cache, num_new)
        decoding.generate_speeds.append(num_new / seconds)
        decoding.bandwidths.append(bandwidth.measure())
        decoding.same_tokens &= tokens == expected
        yield done + 1, decoding


def rows_of(decodings: Sequence[Decoding]) -> tuple[Row, ...]:
    """The rows of both contenders and of the limit."""
    rows: list[Row] = []
    for decoding in decodings:
        case = {"cached tokens": decoding.num_cached}
        limits = [bandwidth / decoding.bytes_per_token for bandwidth in decoding.bandwidths]
        ratios = [a / b for a, b in zip(decoding.pot_speeds, decoding.generate_speeds, strict=True)]
        rows += [
            row(POT, case, "decoding speed", "tokens/s", decoding.pot_speeds),
            row(GENERATE, case, "decoding speed", "tokens/s", decoding.generate_speeds),
            row(POT, case, "decoding speed ratio", "x", ratios),
            *(row(name, case, "decoding speed", "tokens/s", of) for name, of in decoding.llama_speeds.items()),
            row("memory", case, "bandwidth limit", "tokens/s", limits),
            row("memory", case, "read bandwidth", "bytes/s", decoding.bandwidths),
        ]
    return tuple(rows)


def summary_of(decodings: Sequence[Decoding]) -> dict[str, float]:
    """The figures by which decoding is judged; of several cache lengths the worst counts."""
    return {
        "decode_ratio_vs_transformers": min(decoding.ratio for decoding in decodings),
        "decode_share_of_bandwidth_limit": min(decoding.share_of_limit for decoding in decodings),
        "same_greedy_tokens": float(all(decoding.same_tokens for decoding in decodings)),
    }


def bytes_per_token(engine: Engine, num_cached: int) -> int:
    """Bytes that one decoding step has to read: the weights, but of the input embedding one row and of the head no
    lower bits that stand apart, and the cache."""
    model, parts = engine.loaded.model, engine.decoder.parts
    weights = {parameter.data_ptr(): parameter.nbytes for parameter in model.parameters()}
    embedding, head = model.model.embed_tokens, model.lm_head
    if isinstance(embedding, nn.Embedding) and embedding.weight.data_ptr() != head.weight.data_ptr():
        del weights[embedding.weight.data_ptr()]
    cache = 2 * len(parts.layers) * parts.num_kv_heads * parts.head_dim * num_cached * engine.loaded.dtype.itemsize
    apart = [] if isinstance(head.weight, Tensor) else [rows.lower for rows in head.weight.parts]
    unread = sum(lower.nbytes for lower in apart if lower is not None)
    return sum(weights.values()) + packed_bytes(model) - unread + cache


def llama_speeds(gguf: Path, ids: Sequence[int], num_new: int, num_rounds: int) -> dict[str, list[float]]:
    """Tokens per second after `ids` in every round, of each variant of llama.cpp that is installed here."""
    speeds = {}
    for variant in llama_cpp.variants(llama_cpp.PYTHON, llama_cpp.builds()):
        if not variant.shifts:
            last, threads = [ids[-1:]] * num_rounds, torch.get_num_threads()
            done = variant.work(gguf, ids[:-1], last, num_new, threads, warm_up=_STEP)
            speeds[variant.label] = [(number - 1) / seconds for _, number, seconds in done["answers"]]
    return speeds


class _PotDecoding:
    """Greedy decoding from a pot that holds all but the last of the tokens given, again and again."""

    def __init__(self, decoder: Decoder, input_ids: Tensor, num_new: int) -> None:
        self._decoder = decoder
        self._first = input_ids[:, -1:]
        self._pot = decoder.new_pot(input_ids.shape[1] + num_new)
        for ids in input_ids[:, :-1].split(_STEP, dim=1):
            decoder.forward(ids, self._pot)
        self._lengths = list(self._pot.num_cached), list(self._pot.next_position)

    @torch.inference_mode()
    def run(self, num_new: int) -> tuple[float, list[int]]:
        """Seconds for `num_new` tokens, and those; the pot is as before."""
        decoder, token, tokens = self._decoder, self._first, []
        synchronize(decoder.device)
        began = time.perf_counter()
        for _ in range(num_new):
            out = decoder.forward(token, self._pot)
            tokens.append(decoder.head.likeliest(out.hidden_states[:, -1]))
            token = decoder.ids(tokens[-1:])
        seconds = time.perf_counter() - began
        self._pot.rewind_to_(*self._lengths)
        return seconds, tokens


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    if min(options.cached, default=1) < 1:
        cached = ",".join(map(str, options.cached))
        raise ConfigError(f"--cached is {cached!r}", fix="Give token counts of 1 and more.")
    return given()


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    engine, reference, tokenizer = setup.engine, load_reference(setup), setup.engine.loaded.tokenizer
    lengths = options.cached or (_QUICK_CACHED if options.quick else _CACHED)
    num_new, rounds = options.new_tokens, options.rounds
    if options.quick:
        num_new, rounds = min(num_new, 32), min(rounds, 3)
    text = "".join(page.text for page in generated(max(lengths) + 1, tokenizer, engine.config.seed).pages)
    ids = torch.as_tensor(tokenizer.encode(text)[0], dtype=torch.int64).to(engine.loaded.device)[None]
    decodings = []
    for length in lengths:
        stage = f"Decoding with {length:,} cached tokens"
        setup.report(stage, 0.0)
        for done, decoding in run_decode(engine, reference, ids[:, : length + 1], num_new, rounds):
            setup.report(stage, done / rounds, f"{decoding.pot_speeds[-1]:.1f} tokens/s")
        decodings.append(decoding)
    if options.llama_cpp is not None:
        setup.report("Decoding with llama.cpp", None)
        for length, decoding in zip(lengths, decodings, strict=True):
            decoding.llama_speeds = llama_speeds(options.llama_cpp, ids[0, : length + 1].tolist(), num_new, rounds)
    yield Table(rows_of(decodings), summary_of(decodings))


MEASUREMENT = Measurement[Table](_measure, config=_config)
