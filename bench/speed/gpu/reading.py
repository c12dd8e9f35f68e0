"""Reading on a GPU: a session over a long text beside transformers' own prefill, and memory up to a million tokens."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch

from ondevice.config import EngineConfig, PotConfig, TierConfig
from ondevice.documents import Document, Page
from ondevice.events import Event, PotDistilled, TokensRead
from ondevice.model.loading.load import LoadedModel
from ondevice.session.engine import Engine, Session
from ondevice_bench.results.result import row
from ondevice_bench.speed.gpu.run import LARGE, SMALL, Calls, Run, calls_of
from ondevice_bench.speed.random_model import random_model

_POT = PotConfig(capacity=4096, num_kept=2048)
_PROMPTS = (2048, 8192, 32_768)
_PAGE = 4096  # letters, which are tokens
_LARGE_TOKENS, _SMALL_TOKENS = 96 * 1024, 1024 * 1024
_WARM_TOKENS = 16 * 1024
_STAGES = ("forward", "novelty", "distillation")


def measure_reading(run: Run) -> None:
    """Tokens per second of a pot of 4,096 slots, and what the parts of a cycle take; transformers' prefill."""
    name = LARGE if torch.cuda.mem_get_info(run.device)[0] > 26e9 else SMALL
    loaded = random_model(name, device=run.device, dtype=torch.bfloat16)
    for length in _PROMPTS:
        _prefill(run, name, loaded, length)
    _read(run, "pot", name, loaded, _LARGE_TOKENS)
    _read(run, "pot, passes of 768", name, loaded, _LARGE_TOKENS, step_size=768)
    _read(run, "pot, host tier", name, loaded, _LARGE_TOKENS, host_bytes=TierConfig().budget_bytes)
    ours = next(one.p50 for one in run.rows if one.contender == "pot" and one.metric == "reading speed")
    for one in list(run.rows):
        if one.contender == "transformers" and one.metric == "reading speed":
            run.summary[f"reading_ratio_vs_transformers_{one.case['tokens'] // 1024}k"] = ours / one.p50


def measure_memory(run: Run) -> None:
    """A 1B model over a million tokens: memory from the first pass on, and whether the speed holds."""
    loaded = random_model(SMALL, device=run.device, dtype=torch.bfloat16)
    _read(run, "pot", SMALL, loaded, _SMALL_TOKENS)


def _prefill(run: Run, name: str, loaded: LoadedModel, length: int) -> None:
    ids = torch.randint(0, 256, (1, length), device=run.device)
    times = []
    torch.cuda.reset_peak_memory_stats(run.device)
    before = torch.cuda.memory_allocated(run.device)
    for _ in range(4):
        torch.cuda.synchronize(run.device)
        began = time.perf_counter()
        with torch.inference_mode():
            cache: Any = loaded.model(input_ids=ids, use_cache=True, logits_to_keep=1)
        torch.cuda.synchronize(run.device)
        times.append(time.perf_counter() - began)
        del cache
    case = {"model": name, "tokens": length}
    peak = torch.cuda.max_memory_allocated(run.device) - before
    run.add(
        [
            row("transformers", case, "reading speed", "tokens/s", [length / one for one in times[1:]]),
            row("transformers", case, "peak beside weights", "bytes", [peak]),
        ]
    )


def _read(
    run: Run,
    contender: str,
    name: str,
    loaded: LoadedModel,
    num_tokens: int,
    *,
    step_size: int = 0,
    host_bytes: int = 0,
) -> None:
    pot, tier = replace(_POT, step_size=step_size), TierConfig(budget_bytes=host_bytes)
    engine = Engine(loaded, EngineConfig(pot=pot, tier=tier, device="cuda", dtype="bfloat16"))
    for _ in _session_over(engine, _WARM_TOKENS)[1]:
        pass
    torch.cuda.synchronize(run.device)
    torch.cuda.reset_peak_memory_stats(run.device)
    session, events = _session_over(engine, num_tokens)
    stages, began, next_report, num_cycles = dict.fromkeys(_STAGES, 0.0), time.perf_counter(), 32 * 1024, 0
    for event in events:
        if isinstance(event, TokensRead):
            stages["forward"] += event.seconds
            if event.num_read >= next_report:
                _report_memory(run, contender, name, event.num_read, time.perf_counter() - began)
                next_report *= 2
        if isinstance(event, PotDistilled):
            num_cycles += 1
            stages["novelty"] += event.novelty_seconds
            stages["distillation"] += event.seconds
        if not run.has_time:
            run.leave_out(f"reading beyond {session.context.num_read:,} tokens", "no time is left")
            break
    seconds, num_read = time.perf_counter() - began, session.context.num_read
    case = {"model": name, "tokens": num_tokens}
    stages["host"] = seconds - sum(stages.values())
    run.add([row(contender, case, "reading speed", "tokens/s", [num_read / seconds])])
    run.add(
        [row(f"{contender}: {stage}", case, "time a token", "us", [t / num_read * 1e6]) for stage, t in stages.items()]
    )
    run.add([row(contender, case, "tokens a cycle", "", [num_read / max(num_cycles, 1)])])
    if contender == "pot":
        _count_calls(run, name, engine)


def _report_memory(run: Run, contender: str, name: str, num_read: int, seconds: float) -> None:
    case = {"model": name, "tokens": num_read}
    run.add(
        [
            row(contender, case, "memory in use", "bytes", [torch.cuda.memory_allocated(run.device)]),
            row(contender, case, "memory held", "bytes", [torch.cuda.memory_reserved(run.device)]),
            row(contender, case, "reading speed so far", "tokens/s", [num_read / seconds]),
        ]
    )


def _count_calls(run: Run, name: str, engine: Engine) -> None:
    """Calls of the first pass, and of the one that ends a cycle, with its distillation."""
    _, events = _session_over(engine, 3 * _POT.capacity)
    counted: list[tuple[Event, Calls]] = []
    is_distilled = False
    while not is_distilled:
        seen: list[Event] = []
        calls = calls_of(lambda: seen.append(next(events)))  # noqa: B023  # called at once
        is_distilled = isinstance(seen[0], PotDistilled)
        if isinstance(seen[0], TokensRead):
            counted.append((seen[0], calls))
    for which, (_, calls) in (("a pass", counted[0]), ("a pass that distils", counted[-1])):
        case = {"model": name, "pass": which}
        run.add([row("pot", case, "launches", "", [calls.launches]), row("pot", case, "waits", "", [calls.waits])])


def _session_over(engine: Engine, num_tokens: int) -> tuple[Session, Any]:
    generator = torch.Generator().manual_seed(0)
    letters = torch.randint(97, 123, (num_tokens,), generator=generator, dtype=torch.uint8).numpy().tobytes().decode()
    pages = tuple(Page(i + 1, letters[at : at + _PAGE]) for i, at in enumerate(range(0, num_tokens, _PAGE)))
    document = Document("letters.txt", "txt", "part", pages, len(pages), num_tokens)
    session = engine.session()
    return session, session.read(document)
