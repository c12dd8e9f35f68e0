"""Memory and speed that a session was planned to have, beside what it has: in fresh processes, one after the other.

The machine is measured before and after, since such machines change their speed while one looks.
"""

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
from ondevice.machine.processes import in_its_own_process
from ondevice.model.loading.placement import choose_device
from ondevice.planning.footprint import MemoryPlan
from ondevice.planning.generated_text import generated
from ondevice.planning.machines import this_machine
from ondevice.planning.rates import rates_of
from ondevice.planning.speed import foreseen_speed
from ondevice.session.engine import Engine
from ondevice.telemetry.telemetry import Telemetry

_POTS = 2.5  # times the slots: distilled at least twice
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
        predicted: the same by the plan.
    """

    num_tokens: int
    reading: float
    answering: float
    peak_bytes: int
    predicted: Planned


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan's figures for the same; speeds are None where they cannot be told before."""

    peak_bytes: int
    reading: float | None = None
    answering: float | None = None


def take(config: EngineConfig, num_tokens: int | None = None) -> Taken:
    """Plan a session with these settings, and hold one.

    Args:
        config: with a size of the pot.
        num_tokens: to read; None: two and a half pots.

    Raises:
        OndeviceError: it cannot be held.
    """
    num_tokens = num_tokens or int(_POTS * config.pot.capacity)
    before = in_its_own_process(planned, config, num_tokens)
    taken = in_its_own_process(held, config, num_tokens)
    after = in_its_own_process(planned, config, num_tokens)
    predicted = Planned(
        before.peak_bytes, _middle(before.reading, after.reading), _middle(before.answering, after.answering)
    )
    return replace(taken, predicted=predicted)


def _middle(one: float | None, other: float | None) -> float | None:
    """The speed whose seconds lie halfway."""
    return 2 / (1 / one + 1 / other) if one and other else None


def planned(config: EngineConfig, num_tokens: int) -> Planned:
    """The plan's figures for this machine, of a GPU's memory where there is one, else of the main memory."""
    device = choose_device(config.device)
    made = MemoryPlan(config, this_machine(device), num_tokens)
    peak = made.footprint.device_bytes if device.type == "cuda" else made.footprint.peak_bytes
    rates = rates_of(made.plan, device.type, again=True)
    speed = foreseen_speed(made.plan, rates, num_tokens) if rates is not None else None
    return Planned(peak) if speed is None else Planned(peak, speed.reading, speed.answering)


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
    return Taken(num_tokens, reading, answering, peak, Planned(0))


def _gaps(answer: Iterator[Event]) -> list[float]:
    """Seconds between the tokens of an answer but the first two: before the second what decoding needs is laid out."""
    times = [time.perf_counter() for event in answer if isinstance(event, AnswerToken)]
    return [later - one for one, later in pairwise(times[1:])]
