"""The work that all contenders of `bench peers` do, each in a process of its own: read, answer, answer once more."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from ondevice.config import EngineConfig
from ondevice.events import AnswerToken
from ondevice.machine.process import peak_rss_bytes
from ondevice.model.loading.load import load_model
from ondevice.session.engine import Engine, Session
from ondevice_bench.quality.contenders import text_document
from ondevice_bench.speed import kv_press, llama_cpp
from ondevice_bench.speed.llama_cpp import Variant
from ondevice_bench.speed.reference import Reference

_WARM_UP = 256  # tokens that are read before the clock starts


@dataclass(frozen=True)
class Task:
    """The task of a contender.

    Attributes:
        config: settings, the model's name among them; what is not ours reads the model and the device from it.
        gguf: the model's file.
        text, questions: for a contender that makes its own tokens.
        ids, question_ids: the same as tokens.
        new_tokens: of an answer, whatever the model wants to say.
        num_threads: that compute.
        llama_cpp: the one that does it, where it is for llama.cpp.
    """

    config: EngineConfig
    gguf: Path
    text: str
    questions: tuple[str, ...]
    ids: tuple[int, ...]
    question_ids: tuple[tuple[int, ...], ...]
    new_tokens: int
    num_threads: int
    llama_cpp: Variant | None = None


class Answer(NamedTuple):
    """Seconds to the first token, tokens in all, and seconds for those after the first."""

    first_seconds: float
    num_tokens: int
    seconds: float


class Figures(NamedTuple):
    """Figures of one contender.

    Attributes:
        load_seconds: from the model's file to a model that can read.
        reading_seconds: for the text.
        answers: one a question.
        peak_bytes: resident memory of its process at its highest, program and libraries included.
        cache_bytes: what holds the text, all copies and everything beside keys and values included; None: not known.
    """

    load_seconds: float
    reading_seconds: float
    answers: tuple[Answer, ...]
    peak_bytes: int
    cache_bytes: int | None


class _Contender(Protocol):
    """It loads the model when it is made."""

    def warm_up(self) -> None: ...

    def read(self) -> None: ...

    def answer(self, number: int) -> Answer: ...

    def cache_bytes(self) -> int: ...


class _Ours:
    def __init__(self, task: Task) -> None:
        self._task, self._engine = task, Engine.load(task.config)
        self._engine.loaded.tokenizer.eos_ids = frozenset()  # the others write on, too: an answer of two has no speed

    def warm_up(self) -> None:
        for _ in self._engine.session().read(text_document("text", [self._task.text[: 4 * _WARM_UP]])):
            pass

    def read(self) -> None:
        self._session: Session = self._engine.session()
        for _ in self._session.read(text_document("text", [self._task.text])):
            pass

    def answer(self, number: int) -> Answer:
        # From what it read, and whatever the text says of it, as the others.
        generation = replace(self._task.config.generation, num_passage_tokens=0, grounded=False)
        began, times = time.perf_counter(), list[float]()
        for event in self._session.ask(self._task.questions[number], generation):
            if isinstance(event, AnswerToken):
                times.append(time.perf_counter())
        return Answer(times[0] - began, len(times), times[-1] - times[0])

    def cache_bytes(self) -> int:
        return self._session.context.pot.nbytes + self._session.context.host_bytes


class _Transformers:
    """Its own modules, weights unpacked, and its cache of every token."""

    def __init__(self, task: Task) -> None:
        self._task = task
        loaded = load_model(task.config.model, device=task.config.device, quantization="none")
        self._reference, self._device = Reference(loaded), loaded.device

    def warm_up(self) -> None:
        self._reference.prefill(self._tensor(self._task.ids[:_WARM_UP]))

    def read(self) -> None:
        self._cache = self._reference.fill(self._tensor((*self._task.ids, 0)))

    def answer(self, number: int) -> Answer:
        ids = self._tensor((*self._task.ids, *self._task.question_ids[number]))
        first, _ = self._reference.generate(ids, self._cache, 1)
        all_seconds, _ = self._reference.generate(ids, self._cache, self._task.new_tokens)
        return Answer(first, self._task.new_tokens, all_seconds - first)

    def cache_bytes(self) -> int:
        return sum(part.nbytes for layer in self._cache.layers for part in (layer.keys, layer.values))

    def _tensor(self, ids: Sequence[int]) -> torch.Tensor:
        return torch.tensor([ids], device=self._device)


OURS, LLAMA_CPP, TRANSFORMERS, KVPRESS = "ondevice", llama_cpp.NAME, "transformers, float32", kv_press.NAME
_CONTENDERS: Mapping[str, Callable[[Task], _Contender]] = {OURS: _Ours, TRANSFORMERS: _Transformers}
_PROGRAMS: Mapping[str, Callable[[Task], Mapping[str, Any]]]


def work(name: str, task: Task) -> Figures:
    """Let a contender do its task in this process, or in one that it starts.

    Raises:
        OndeviceError: it cannot.
    """
    if name in _PROGRAMS:
        done = _PROGRAMS[name](task)
        answers = tuple(Answer(*one) for one in done["answers"])
        seconds = done["load_seconds"], done["reading_seconds"]
        return Figures(*seconds, answers, done["peak_bytes"], done["cache_bytes"])
    torch.set_num_threads(task.num_threads)
    times = [time.perf_counter()]
    contender = _CONTENDERS[name](task)
    times.append(time.perf_counter())
    contender.warm_up()
    times.append(time.perf_counter())
    contender.read()
    times.append(time.perf_counter())
    answers = tuple(contender.answer(number) for number in range(len(task.questions)))
    return Figures(times[1] - times[0], times[3] - times[2], answers, peak_rss_bytes(), contender.cache_bytes())


def _llama_cpp(task: Task) -> dict[str, Any]:
    assert task.llama_cpp is not None
    return task.llama_cpp.work(
        task.gguf,
        task.ids,
        task.question_ids,
        task.new_tokens,
        task.num_threads,
        warm_up=_WARM_UP,
        num_slots=task.config.pot.usual_capacity if task.llama_cpp.shifts else None,
    )


def _kv_press(task: Task) -> dict[str, Any]:
    return kv_press.work(
        {
            "gguf": str(task.gguf),
            "ids": task.ids,
            "question_ids": task.question_ids,
            "new_tokens": task.new_tokens,
            "num_threads": task.num_threads,
            "num_kept": task.config.pot.usual_capacity,
            "warm_up": _WARM_UP,
        }
    )


_PROGRAMS = {LLAMA_CPP: _llama_cpp, KVPRESS: _kv_press}
