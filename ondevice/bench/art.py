"""ART: decode attention over real caches with and without an early end, in turn in one run.

A document is read, and the queries of its next tokens are recorded in all layers: every contender then attends with
the same queries to the same keys and values, layer after layer, so that no cache of the processor holds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ondevice.bench.bandwidth import ReadBandwidth
from ondevice.bench.decode import bytes_per_token
from ondevice.bench.turns import Seconds, speedup_row, take_turns, time_rows, timed
from ondevice.config import PotConfig
from ondevice.decode_steps import Reading, Step, keys_values, read_again, read_and_record, relative_error
from ondevice.documents import Document
from ondevice.engine import Engine
from ondevice.kernels.attention import attention
from ondevice.kernels.decode_attention import Termination, decode_attention
from ondevice.method_config import ArtConfig
from ondevice.model.calibration import calibrated
from ondevice.model.progress import Progress
from ondevice.model.termination import RunTimeTermination, rules_of
from ondevice.pot.memory_pot import MemoryPot
from ondevice.results import Row, row
from ondevice.session import Session

ART, ALL, DETECTOR, SDPA = "ART", "all blocks", "all blocks + detector", "torch SDPA"
_KERNEL = "attention kernel"
_STEP = "decoding step"
Rules = tuple[Termination, ...]


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache that is measured: its name in the summary, and what it is."""

    name: str
    pot: PotConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured; `batches` on the first cache."""

    caches: tuple[Cache, ...]
    num_tokens: int
    num_steps: int
    batches: tuple[int, ...]
    budget_seconds: float
    detector_rounds: int


FULL = Plan(
    caches=(
        Cache("4096", PotConfig(capacity=4096, num_kept=2048)),
        Cache("8192", PotConfig(capacity=8192, num_kept=4096)),
        Cache("full_16k", PotConfig(policy="full")),
    ),
    num_tokens=16000,
    num_steps=32,
    batches=(1, 2, 4, 8),
    budget_seconds=20.0,
    detector_rounds=25,
)
QUICK = Plan(
    caches=(Cache("1024", PotConfig(capacity=1024, num_kept=512)),),
    num_tokens=2000,
    num_steps=4,
    batches=(1, 2),
    budget_seconds=2.0,
    detector_rounds=2,
)


def run_art(engine: Engine, document: Document, plan: Plan, report: Progress) -> Iterator[list[Row]]:
    """Rows of one part after the other."""
    for cache in plan.caches:
        report(f"Reading into {cache.name}", None)
        session = engine.session(replace(engine.config, pot=cache.pot))
        steps = read_and_record(session, document, plan.num_steps, report)
        art = replace(engine.config.art, enabled=True)
        rules = rules_of(art, calibrated(engine.loaded.fingerprint, art, cache.pot), len(engine.decoder.parts.layers))
        report(f"Attending over {cache.name}", None)
        yield _kernel_rows(session, steps, art, rules, {"cache": cache.name}, plan)
        if cache.pot.policy != "full":
            yield _layout_rows(session, steps, art, rules, {"cache": cache.name})
        if cache is plan.caches[0]:
            for batch in plan.batches:
                report(f"Decoding in batches of {batch}", None)
                yield _batch_rows(engine, session, art, rules, batch, cache.name, plan)


def summary_of(rows: Sequence[Row]) -> dict[str, float]:
    """What ART saves in each cache, what its detector costs, how far its outputs are off, what decoding reaches."""
    overheads = [r.p50 for r in rows if r.metric == "detector overhead"]
    summary = {"detector_overhead_percent": float(np.median(overheads))} if overheads else {}
    for r in rows:
        if r.metric == f"{_KERNEL}, saving":
            summary[f"kernel_time_saving_percent_{r.case['cache']}"] = r.p50
        if r.metric == "output error" and r.contender == ART and r.case["quantile"] == 0.99:
            summary[f"output_error_p99_{r.case['cache']}"] = r.p50
            summary["output_error_p99"] = max(r.p50, summary.get("output_error_p99", 0.0))
        if r.metric == "share of read bandwidth" and r.contender == ART:
            summary["decode_share_of_read_bandwidth"] = r.p50
    return summary


def _kernel_rows(
    session: Session, steps: list[Step], art: ArtConfig, rules: Rules, case: dict[str, object], plan: Plan
) -> list[Row]:
    """Time of the kernel alone, and what an early end does to its output."""
    pot, scale = session.used_pot(), session.decoder.parts.scale
    case = case | {"slots": steps[-1].num_slots}
    never = tuple(replace(rule, patience=math.inf) for rule in rules)
    inputs = [(step, *keys_values(pot, step)) for step in steps]

    order = RunTimeTermination(pot, art, None).order

    def attend(step: Step, keys: Tensor, values: Tensor, some: Rules | None) -> None:
        decode_attention(
            step.query,
            keys,
            values,
            scale=scale,
            block_size=art.block_size,
            order=order(step.layer, step.num_slots),
            termination=None if some is None else some[step.layer],
        )

    def reading_by(some: Rules | None) -> Callable[[], None]:
        def work() -> None:
            for step, keys, values in inputs:
                attend(step, keys, values, some)

        return work

    def detecting() -> float:
        """What the detector adds: the two kernels take turns call by call, for a percent is less than a drift."""
        seconds = {None: 0.0, never: 0.0}
        for i, (step, keys, values) in enumerate(inputs):
            for some in (None, never) if i % 2 else (never, None):
                seconds[some] += timed(partial(attend, step, keys, values, some), session.decoder.device)
        return seconds[never] / seconds[None] - 1

    def sdpa() -> None:
        for step, keys, values in inputs:
            attention(step.query, keys, values, scale=scale)

    contenders = {ALL: reading_by(None), ART: reading_by(rules), SDPA: sdpa}
    seconds = take_turns(contenders, session.decoder.device, budget_seconds=plan.budget_seconds)
    overheads = [100 * detecting() for _ in range(plan.detector_rounds)]
    reading, exact = read_again(session, steps, art, rules), read_again(session, steps, art, None)
    rows = time_rows({name: [s / len(steps) for s in values] for name, values in seconds.items()}, case, _KERNEL)
    rows += [
        speedup_row(seconds, case, f"{_KERNEL} over {ALL}", ART, ALL),
        speedup_row(seconds, case, f"{_KERNEL} over {SDPA}", ALL, SDPA),
        speedup_row(seconds, case, f"{_KERNEL} over {SDPA}", ART, SDPA),
        row(ART, case, f"{_KERNEL}, saving", "%", [100 * (1 - ratio) for ratio in _ratios(seconds, ART, ALL)]),
        row(DETECTOR, case, "detector overhead", "%", overheads),
        row(ART, case, "blocks read", "share", [float(reading.shares.mean())]),
    ]
    return rows + _error_rows(ART, reading, case) + _error_rows(ALL, exact, case)


def _layout_rows(
    session: Session, steps: list[Step], art: ArtConfig, rules: Rules, case: dict[str, object]
) -> list[Row]:
    """What the order of the blocks is worth: by recency, by the pot's layout, and by an index of document order."""
    readings = {
        "importance-first layout": read_again(session, steps, art, rules),
        "importance-first index map": _read_by_index(session, steps, art, rules),
        "recency-first": read_again(session, steps, replace(art, traversal="recency"), rules),
    }
    rows = []
    for name, reading in readings.items():
        rows.append(row(name, case, "blocks read", "share", [float(reading.shares.mean())]))
        rows += _error_rows(name, reading, case)
    return rows


def _read_by_index(session: Session, steps: list[Step], art: ArtConfig, rules: Rules) -> Reading:
    """As if slots lay in document order: an index map then says which blocks come first, by their importance."""
    pot, scale, size = session.used_pot(), session.decoder.parts.scale, art.block_size
    errors, shares = [], []
    for step in steps:
        keys, values = keys_values(pot, step)
        at = pot.positions[step.layer, :, :, : step.num_slots].long().argsort(dim=-1)
        importance = pot.importance[step.layer, :, :, : step.num_slots].gather(-1, at)
        keys, values = (t.gather(2, at[..., None].expand_as(t)).contiguous() for t in (keys, values))
        order = _by_importance(importance, pot.num_ranked[step.layer], size)
        expected = attention(step.query, keys, values, scale=scale)
        out, blocks_read = decode_attention(
            step.query, keys, values, scale=scale, block_size=size, order=order, termination=rules[step.layer]
        )
        errors.append(relative_error(out, expected))
        shares.append(blocks_read[0] / order.shape[-1])
    return Reading(torch.stack(errors).cpu(), torch.stack(shares).cpu())


def _by_importance(importance: Tensor, num_ranked: int, block_size: int) -> Tensor:
    """(1, num_kv_heads, num_blocks) int32: the sinks, what came since the last distillation, then by importance."""
    num_slots = importance.shape[-1]
    num_blocks, num_ranked_blocks = -(-num_slots // block_size), max(num_ranked // block_size, 1)
    padded = torch.nn.functional.pad(importance.clamp(max=1e30), (0, num_blocks * block_size - num_slots))
    weight = padded.unflatten(-1, (num_blocks, block_size)).sum(dim=-1)
    weight[..., num_ranked_blocks:] = 1e33 + torch.arange(num_blocks - num_ranked_blocks) * 1e30
    weight[..., 0] = torch.inf
    return weight.argsort(dim=-1, descending=True).int()


def _batch_rows(
    engine: Engine, session: Session, art: ArtConfig, rules: Rules, batch: int, cache: str, plan: Plan
) -> list[Row]:
    """Tokens per second of whole steps, with and without an early end, and of what memory could give."""
    decoder, source = engine.decoder, session.used_pot()
    pot = MemoryPot(replace(source.shape, batch=batch), dtype=decoder.dtype, device=decoder.device)
    state = source.state()
    for name, tensor in state.items():
        if tensor.dim() == 4:
            state[name] = tensor.repeat_interleave(batch, dim=0 if name.startswith(("keys", "values")) else 1)
    pot.restore(state, decoder.rotate_keys)
    held = max(pot.num_cached)
    # Back to where the recorded tokens begin; every sequence of a batch is the same.
    length, next_position = ([n - plan.num_steps for n in ns] for ns in (pot.num_cached, pot.next_position))
    pot.truncate(length, next_position)
    total = session.num_read + plan.num_steps
    ids = decoder.ids(session.opened_tokens().ids(session.num_read, total)).expand(batch, -1)
    readings = {ART: RunTimeTermination(pot, art, rules), ALL: RunTimeTermination(pot, art, None), SDPA: None}

    def decode(name: str) -> Callable[[], None]:
        def work() -> None:
            for token in ids.split(1, dim=1):
                out = decoder.forward(token, pot, reading=readings[name])
                decoder.logits(out.hidden_states[:, -1])
            pot.truncate(length, next_position)

        return work

    seconds = take_turns({name: decode(name) for name in readings}, decoder.device, budget_seconds=plan.budget_seconds)
    case, rows = {"cache": cache, "batch": batch}, []
    num_tokens = plan.num_steps * batch
    for name, values in seconds.items():
        rows.append(row(name, case, "decoding speed", "tokens/s", [num_tokens / s for s in values]))
    rows += [speedup_row(seconds, case, f"{_STEP} over {other}", ART, other) for other in (ALL, SDPA)]
    if batch == 1:
        bandwidth = ReadBandwidth(decoder.device)
        rate = float(np.median([bandwidth.measure() for _ in range(5)]))
        weights = bytes_per_token(engine, 0)
        cached = bytes_per_token(engine, held) - weights
        account = readings[ART]
        share = 1.0 if account is None else account.account().share
        for name, read in ((ART, share), (ALL, 1.0), (SDPA, 1.0)):
            reached = [(weights + read * cached) * plan.num_steps / s / rate for s in seconds[name]]
            rows.append(row(name, case, "share of read bandwidth", "share", reached))
        rows.append(row("memory", case, "read bandwidth", "bytes/s", [rate]))
    return rows


def _error_rows(name: str, reading: Reading, case: dict[str, object]) -> list[Row]:
    """Quantiles of the relative error over tokens, layers and heads."""
    errors = reading.errors.flatten().double().numpy()
    return [
        row(name, case | {"quantile": q}, "output error", "", [float(np.quantile(errors, q))]) for q in (0.5, 0.9, 0.99)
    ]


def _ratios(seconds: Seconds, one: str, other: str) -> list[float]:
    return [a / b for a, b in zip(seconds[one], seconds[other], strict=True)]
