"""Memory that a session was planned to take, beside what it takes, and its speed: in a fresh process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from ondevice.config import EngineConfig
from ondevice.events import AnswerToken, Event
from ondevice.machine.process import peak_rss_bytes
from ondevice.model.loading.placement import choose_device
from ondevice.planning.footprint import MemoryPlan
from ondevice.planning.machines import this_machine
from ondevice.session.engine import Engine
from ondevice.telemetry.telemetry import Telemetry
from ondevice_bench.speed.generated_text import generated
from ondevice_bench.speed.processes import in_its_own_process

POTS = 2.5  # times the slots: distilled at least twice
_QUESTIONS = (
    "Retell the text from the beginning, with every detail.",
    "Who found the letter, and where?",
    "List all names that occur, with what is said of each.",
)
_NEW_TOKENS = 32  # of each answer, at most


@dataclass(frozen=True, slots=True)
class Taken:
    """One session as it was.

    Attributes:
        num_tokens: that were read.
        reading: tokens a second, with the tokenizer's share.
        answering: tokens a second, once an answer is on its way.
        peak_bytes: the most that its process had resident, or the most that torch took of a GPU.
        predicted_bytes: the same by the plan.
    """

    num_tokens: int
    reading: float
    answering: float
    peak_bytes: int
    predicted_bytes: int


def take(config: EngineConfig, num_tokens: int | None = None) -> Taken:
    """Plan a session with these settings, and hold one.

    Args:
        config: with a size of the pot.
        num_tokens: to read; None: two and a half pots.

    Raises:
        OndeviceError: it cannot be held.
    """
    num_tokens = num_tokens or int(POTS * config.pot.capacity)
    taken = in_its_own_process(held, config, num_tokens)
    return replace(taken, predicted_bytes=in_its_own_process(planned_bytes, config, num_tokens))


def planned_bytes(config: EngineConfig, num_tokens: int) -> int:
    """The most that the plan says of a GPU's memory where there is one, else of the main memory."""
    device = choose_device(config.device)
    made = MemoryPlan(config, this_machine(device), num_tokens)
    return made.footprint.device_bytes if device.type == "cuda" else made.footprint.peak_bytes


def held(config: EngineConfig, num_tokens: int) -> Taken:
    """A session of this process: a generated text is read, and some questions are answered."""
    generation = replace(config.generation, max_new_tokens=_NEW_TOKENS, temperature=0.0, stops_loops=False)
    generation = replace(generation, num_passage_tokens=0)  # what the pot takes
    engine = Engine.load(replace(config, generation=generation))
    document = generated(num_tokens, engine.loaded.tokenizer, config.seed)
    session, telemetry = engine.session(), Telemetry()
    for event in session.read(document):
        telemetry.apply(event)
    gaps = [gap for question in _QUESTIONS for gap in _gaps(session.ask(question))]
    is_gpu = engine.loaded.device.type == "cuda"
    peak = torch.cuda.max_memory_reserved() if is_gpu else peak_rss_bytes()
    reading, answering = num_tokens / telemetry.ingest_seconds, 1.0 / statistics.median(gaps) if gaps else 0.0
    return Taken(num_tokens, reading, answering, peak, 0)


def _gaps(answer: Iterator[Event]) -> list[float]:
    """Seconds between the tokens of an answer but the first two: before the second what decoding needs is laid out."""
    times = [time.perf_counter() for event in answer if isinstance(event, AnswerToken)]
    return [later - one for one, later in pairwise(times[1:])]
