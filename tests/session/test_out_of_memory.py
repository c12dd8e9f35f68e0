"""The memory runs out in the middle of a pass: it is said with a way on, and nothing that was there before is lost."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from ondevice.errors import OutOfMemory, PotError
from ondevice.events import AnswerFinished
from ondevice.machine.memory import ran_out
from ondevice.model import run
from ondevice.session.engine import Session
from ondevice.session.saving import save_reading
from tests.session.test_resuming import BASES, finished, read_passes, start

pytestmark = pytest.mark.usefixtures("one_thread")

SAID = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate"
QUESTION = "When was the lamp lit?"


@contextmanager
def failing_at(call: int) -> Iterator[list[int]]:
    """The memory runs out when a layer is finished for the time with this number; gives how often one was."""
    calls, patch = list[int](), pytest.MonkeyPatch()

    def failing(function: Any) -> Any:
        def finish(*args: Any, **kwargs: Any) -> Any:
            calls.append(1)
            if len(calls) == call:
                raise RuntimeError(SAID)
            return function(*args, **kwargs)

        return finish

    with patch.context() as patched:
        patched.setattr(run, "finish", failing(run.finish))
        yield calls


def state(session: Session) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in session.context.pot.state().items()}


def answered(session: Session) -> AnswerFinished:
    (end,) = [event for event in session.ask(QUESTION) if isinstance(event, AnswerFinished)]
    return end


@pytest.mark.parametrize("name", ["tier", "pruned", "by-head-tier", "repeat", "h2o", "full", "auto"])
@pytest.mark.parametrize("call", [1, 2, 5, 6])
def test_reading_goes_on_from_the_pass_before(name: str, call: int) -> None:
    whole = finished(start(BASES[name])[1])
    session = start(BASES[name])[1]
    if name != "full":  # which is read in one pass
        read_passes(session, 2)
    before, problem = state(session), None
    with failing_at(call) as calls:
        try:
            for _ in session.resume():
                before = state(session)
        except OutOfMemory as error:
            problem = error
    assert (problem is None) == (len(calls) < call)
    assert problem is None or "while reading" in problem.what
    after = state(session)
    assert all(torch.equal(before[key], after[key]) for key in before)
    ended = finished(session)
    assert all(torch.equal(whole[key], ended[key]) for key in whole)


@pytest.mark.parametrize("name", ["tier", "by-head", "full", "auto"])
@pytest.mark.parametrize("call", [1, 3, 4])
def test_an_answer_leaves_the_pot_as_it_was(name: str, call: int) -> None:
    session = start(BASES[name])[1]
    finished(session)
    before, undisturbed = state(session), answered(session)
    with failing_at(call), pytest.raises(OutOfMemory, match="while answering"):
        answered(session)
    after = state(session)
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert answered(session).text == undisturbed.text


def test_where_the_pot_made_room_nothing_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    session = start(BASES["tier"])[1]

    def failing(*observed: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(session.reader, "_distill", failing)
    with pytest.raises(OutOfMemory):
        finished(session)
    with pytest.raises(PotError, match=r"Read the document again"):
        finished(session)
    with pytest.raises(PotError, match=r"Read the document again"):
        answered(session)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError(SAID),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("unable to mmap 538090408 bytes from file </m>: Cannot allocate memory (12)"),
        RuntimeError("could not create a primitive"),
        RuntimeError("std::bad_alloc"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
    ids=str,
)
def test_errors_that_say_it(error: Exception) -> None:
    assert ran_out(error)


@pytest.mark.parametrize(
    "error", [RuntimeError("shapes differ"), OSError(errno.ENOENT, "no file"), ValueError()], ids=str
)
def test_errors_that_say_something_else(error: Exception) -> None:
    assert not ran_out(error)


def test_a_copy_for_which_there_is_no_room_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = start(BASES["tier"])[1]
    read_passes(session, 2)

    def failing(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError(SAID)

    with monkeypatch.context() as without_room:
        without_room.setattr("ondevice.session.saving.write_pot", failing)
        with pytest.raises(OutOfMemory, match="while saving"):
            save_reading(session, tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []
    whole, ended = finished(start(BASES["tier"])[1]), finished(session)
    assert all(torch.equal(whole[key], ended[key]) for key in whole)


def test_what_cannot_go_on_is_not_written(tmp_path: Path) -> None:
    session = start(BASES["tier"])[1]
    read_passes(session, 2)
    session.reader.is_torn = True
    with pytest.raises(PotError, match=r"Read the document again"):
        save_reading(session, tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []
