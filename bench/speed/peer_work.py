"""The work that all contenders of `bench peers` do, each in a process of its own: read, answer, answer once more."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from ondevice.config import EngineConfig
from ondevice.errors import ModelError
from ondevice.events import AnswerToken
from ondevice.machine.process import peak_rss_bytes
from ondevice.model.loading.load import load_model
from ondevice.session.engine import Engine, Session
from ondevice_bench.quality.contenders import text_document
from ondevice_bench.speed import kv_press, llama_cpp
from ondevice_bench.speed.reference import Reference

_WARM_UP = 256  # tokens that are read before the clock starts


@dataclass(frozen=True)
class Task:
    """What a contender is to do.

    Attributes:
        config: settings, the model's name among them; what is not ours reads the model and the device from it.
        gguf: the model's file.
        text, questions: for a contender that makes its own tokens.
        ids, question_ids: the same as tokens.
        new_tokens: of an answer, at most.
        num_threads: that compute.
    """

    config: EngineConfig
    gguf: Path
    text: str
    questions: tuple[str, ...]
    ids: tuple[int, ...]
    question_ids: tuple[tuple[int, ...], ...]
    new_tokens: int
    num_threads: int


class Answer(NamedTuple):
    """Seconds to the first token, tokens in all, and seconds for those after the first."""

    first_seconds: float
    num_tokens: int
    seconds: float


class Figures(NamedTuple):
    """Figures of one contender.

    Attributes:
        reading_seconds: for the text.
        answers: one a question.
        peak_bytes: resident memory of its process at its highest, program and libraries included.
    """

    reading_seconds: float
    answers: tuple[Answer, ...]
    peak_bytes: int


class _Contender(Protocol):
    def read(self) -> None: ...

    def answer(self, number: int) -> Answer: ...


class _Ours:
    def __init__(self, task: Task) -> None:
        self._task = task
        engine = Engine.load(task.config)
        for _ in engine.session().read(text_document("text", [task.text[: 4 * _WARM_UP]])):
            pass
        self._session: Session = engine.session()

    def read(self) -> None:
        for _ in self._session.read(text_document("text", [self._task.text])):
            pass

    def answer(self, number: int) -> Answer:
        began, times = time.perf_counter(), list[float]()
        for event in self._session.ask(self._task.questions[number]):
            if isinstance(event, AnswerToken):
                times.append(time.perf_counter())
        if not times:
            raise ModelError(
                "The model answers this text with no token, so nothing can be timed", fix="Give another text."
            )
        return Answer(times[0] - began, len(times), times[-1] - times[0])


class _LlamaCpp:
    """With its own defaults: a cache in float16, which keeps what two requests begin with."""

    shifts = False

    def __init__(self, task: Task) -> None:
        self._task = task
        room = len(task.ids) + max(map(len, task.question_ids)) + task.new_tokens + 64
        if self.shifts:
            room = min(room, task.config.pot.usual_capacity)
        self._server = llama_cpp.LlamaCpp(task.gguf, room, task.num_threads, shifts=self.shifts)

    def read(self) -> None:
        self._server.complete(self._task.ids, 1)

    def answer(self, number: int) -> Answer:
        timings = self._server.complete((*self._task.ids, *self._task.question_ids[number]), self._task.new_tokens)
        each = timings["predicted_ms"] / timings["predicted_n"] / 1e3
        num_tokens = int(timings["predicted_n"])
        return Answer(timings["prompt_ms"] / 1e3 + each, num_tokens, each * (num_tokens - 1))


class _Shifting(_LlamaCpp):
    """With a cache as small as a pot, from which it drops the oldest tokens."""

    shifts = True


class _Transformers:
    """Its own modules, weights unpacked, and its cache of every token."""

    def __init__(self, task: Task) -> None:
        self._task = task
        loaded = load_model(task.config.model, device=task.config.device, quantization="none")
        self._reference, self._device = Reference(loaded), loaded.device
        self._reference.prefill(self._tensor(task.ids[:_WARM_UP]))

    def read(self) -> None:
        self._cache = self._reference.fill(self._tensor((*self._task.ids, 0)))

    def answer(self, number: int) -> Answer:
        ids = self._tensor((*self._task.ids, *self._task.question_ids[number]))
        first, _ = self._reference.generate(ids, self._cache, 1)
        all_seconds, _ = self._reference.generate(ids, self._cache, self._task.new_tokens)
        return Answer(first, self._task.new_tokens, all_seconds - first)

    def _tensor(self, ids: Sequence[int]) -> torch.Tensor:
        return torch.tensor([ids], device=self._device)


OURS, LLAMA_CPP, TRANSFORMERS = "ondevice", llama_cpp.NAME, "transformers, float32"
SHIFTING, KVPRESS = f"{LLAMA_CPP}, context shift", kv_press.NAME
_CONTENDERS: Mapping[str, Callable[[Task], _Contender]] = {
    OURS: _Ours,
    LLAMA_CPP: _LlamaCpp,
    SHIFTING: _Shifting,
    TRANSFORMERS: _Transformers,
}


def work(name: str, task: Task) -> Figures:
    """Let a contender do its task in this process.

    Raises:
        OndeviceError: it cannot.
    """
    if name == KVPRESS:
        return _kv_press(task)
    torch.set_num_threads(task.num_threads)
    contender = _CONTENDERS[name](task)
    began = time.perf_counter()
    contender.read()
    seconds = time.perf_counter() - began
    answers = tuple(contender.answer(number) for number in range(len(task.questions)))
    return Figures(seconds, answers, peak_rss_bytes())


def _kv_press(task: Task) -> Figures:
    done = kv_press.work(
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
    return Figures(done["reading_seconds"], tuple(Answer(*one) for one in done["answers"]), done["peak_bytes"])
