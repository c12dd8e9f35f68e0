"""ART: decode attention over real caches with and without an early end, in turn in one run.

A document is read, and the queries of its next tokens are recorded in all layers: every contender then attends with
the same queries to the same keys and values, layer after layer, so that no cache of the processor holds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from ondevice.kernels.attention import attention
from ondevice.kernels.decode_attention import decode_attention
from ondevice.kernels.termination import Termination
from torch import Tensor

from ondevice.config import ArtConfig, PotConfig
from ondevice.decode.calibration import calibrated
from ondevice.decode.termination import RunTimeTermination, rules_of
from ondevice.documents import Document
from ondevice.model.loading.progress import Progress
from ondevice.planning.recorded_queries import Reading, Step, evenly, keys_values, read_again, read_and_record
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.restoring import restore_
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from ondevice_bench.quality.art_curve import art_config, thresholds
from ondevice_bench.quality.measurement import Measurement, Setup, Table
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.bandwidth import ReadBandwidth
from ondevice_bench.speed.decode import bytes_per_token
from ondevice_bench.speed.source import chosen
from ondevice_bench.speed.turns import Seconds, speedup_row, take_turns, time_rows, timed

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
    """Sizes of one run; `batches` on the first cache."""

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
        session = engine.session(evenly(replace(engine.config, pot=cache.pot)))
        steps = read_and_record(session, document, plan.num_steps, report)
        art = replace(engine.config.art, enabled=True)
        rules = rules_of(art, calibrated(engine.loaded.fingerprint, art, cache.pot), len(engine.decoder.parts.layers))
        report(f"Attending over {cache.name}", None)
        yield _kernel_rows(session, steps, art, rules, {"cache": cache.name}, plan)
        if cache is plan.caches[0]:
            for batch in plan.batches:
                report(f"Decoding in batches of {batch}", None)
                yield _batch_rows(engine, session, art, rules, batch, cache.name, plan)


def summary_of(rows: Sequence[Row]) -> dict[str, float]:
    """Savings of ART in each cache, cost of its detector, error of its outputs, and speed of decoding."""
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
    pot, scale = session.context.pot, session.context.decoder.parts.scale
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
        """Cost of the detector: the two kernels take turns call by call, for a percent is less than a drift."""
        seconds = {None: 0.0, never: 0.0}
        for i, (step, keys, values) in enumerate(inputs):
            for some in (None, never) if i % 2 else (never, None):
                seconds[some] += timed(partial(attend, step, keys, values, some), session.context.decoder.device)
        return seconds[never] / seconds[None] - 1

    def sdpa() -> None:
        for step, keys, values in inputs:
            attention(step.query, keys, values, scale=scale)

    contenders = {ALL: reading_by(None), ART: reading_by(rules), SDPA: sdpa}
    seconds = take_turns(contenders, session.context.decoder.device, budget_seconds=plan.budget_seconds)
    # Where no head may end, the kernel has no detector to pay for.
    may_end = any(np.max(rule.tau) > 0 for rule in rules)
    overheads = [100 * detecting() for _ in range(plan.detector_rounds)] if may_end else []
    reading, exact = read_again(session, steps, art, rules), read_again(session, steps, art, None)
    rows = time_rows({name: [s / len(steps) for s in values] for name, values in seconds.items()}, case, _KERNEL)
    rows += [
        speedup_row(seconds, case, f"{_KERNEL} over {ALL}", ART, ALL),
        speedup_row(seconds, case, f"{_KERNEL} over {SDPA}", ALL, SDPA),
        speedup_row(seconds, case, f"{_KERNEL} over {SDPA}", ART, SDPA),
        row(ART, case, f"{_KERNEL}, saving", "%", [100 * (1 - ratio) for ratio in _ratios(seconds, ART, ALL)]),
        *([row(DETECTOR, case, "detector overhead", "%", overheads)] if overheads else []),
        row(ART, case, "blocks read", "share", [float(reading.shares.mean())]),
    ]
    return rows + _error_rows(ART, reading, case) + _error_rows(ALL, exact, case)


def _error_rows(name: str, reading: Reading, case: dict[str, object]) -> list[Row]:
    """Quantiles of the relative error over tokens, layers and heads."""
    errors = reading.errors.flatten().double().numpy()
    return [
        row(name, case | {"quantile": q}, "output error", "", [float(np.quantile(errors, q))]) for q in (0.5, 0.9, 0.99)
    ]


def _batch_rows(
    engine: Engine, session: Session, art: ArtConfig, rules: Rules, batch: int, cache: str, plan: Plan
) -> list[Row]:
    """Tokens per second of whole steps, with and without an early end, and of what memory could give."""
    decoder, source = engine.decoder, session.context.pot
    shape = replace(source.shape, batch=batch)
    pot = MemoryPot(shape, dtype=decoder.dtype, device=decoder.device, rotate_keys=decoder.rotate_keys)
    state = source.state()
    for name, tensor in state.items():
        if tensor.dim() == 4:
            state[name] = tensor.repeat_interleave(batch, dim=0 if name.startswith(("keys", "values")) else 1)
    restore_(pot, state, session.context.extent)
    held = max(pot.num_cached)
    # Back to where the recorded tokens begin; every sequence of a batch is the same.
    length, next_position = ([n - plan.num_steps for n in ns] for ns in (pot.num_cached, pot.next_position))
    pot.rewind_to_(length, next_position)
    total = session.context.num_read + plan.num_steps
    ids = decoder.ids(session.context.tokens.ids(session.context.num_read, total)).expand(batch, -1)
    attentions = {ART: RunTimeTermination(pot, art, rules), ALL: RunTimeTermination(pot, art, None), SDPA: None}

    def decode(name: str) -> Callable[[], None]:
        def work() -> None:
            for token in ids.split(1, dim=1):
                out = decoder.forward(token, pot, attention=attentions[name])
                decoder.head.logits(out.hidden_states[:, -1])
            pot.rewind_to_(length, next_position)

        return work

    seconds = take_turns(
        {name: decode(name) for name in attentions}, decoder.device, budget_seconds=plan.budget_seconds
    )
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
        account = attentions[ART]
        share = 1.0 if account is None else account.account().share
        for name, read in ((ART, share), (ALL, 1.0), (SDPA, 1.0)):
            reached = [(weights + read * cached) * plan.num_steps / s / rate for s in seconds[name]]
            rows.append(row(name, case, "share of read bandwidth", "share", reached))
        rows.append(row("memory", case, "read bandwidth", "bytes/s", [rate]))
    return rows


def _ratios(seconds: Seconds, one: str, other: str) -> list[float]:
    return [a / b for a, b in zip(seconds[one], seconds[other], strict=True)]


def _measure(setup: Setup, options: Any) -> Iterator[Table]:
    engine, plan = setup.engine, QUICK if options.quick else FULL
    model, art = engine.loaded.fingerprint, engine.config.art
    setup.settings["art"]["thresholds"] = {cache.name: thresholds(model, art, cache.pot) for cache in plan.caches}
    document = chosen(setup, options.text, plan.num_tokens)
    rows = [row for part in run_art(engine, document, plan, setup.report) for row in part]
    yield Table(rows, summary_of(rows))


MEASUREMENT = Measurement[Table](_measure, config=lambda given, _: art_config(given()))
