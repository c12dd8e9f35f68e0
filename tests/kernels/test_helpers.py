"""Helper threads of compiled kernels: they take part, sleep and wake, and who does not come is not waited for."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

pytest.importorskip("numba")

from ondevice.kernels.cpu import helpers as module
from ondevice.kernels.cpu import threads
from ondevice.kernels.projection import project

from tests.kernels.test_packed import weight_of

needs_helpers = pytest.mark.skipif(not module.IS_AVAILABLE, reason="this system has no POSIX semaphores")


@pytest.mark.skipif(sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="elsewhere there may be none")
def test_linux_has_helpers() -> None:
    assert module.IS_AVAILABLE


def kernel(work: Callable[[bytes], None]) -> Any:
    """A kernel in Python, for what threads do with any."""
    return ctypes.CFUNCTYPE(None, ctypes.c_char_p)(work)


@needs_helpers
def test_the_caller_and_its_helpers_run_the_kernel_with_its_arguments() -> None:
    ran: dict[int, set[bytes]] = {}
    all_came = threading.Barrier(3, timeout=30)

    def work(call: bytes) -> None:
        ran.setdefault(threading.get_ident(), set()).add(call)
        all_came.wait()

    helpers = module.Helpers()
    for call in (b"first", b"second"):
        helpers.run(kernel(work), call, 3)
    assert len(ran) == 3
    assert threading.get_ident() in ran
    assert all(calls == {b"first", b"second"} for calls in ran.values()), "the same threads again"


@needs_helpers
def test_a_helper_that_sleeps_is_woken() -> None:
    helpers, met = module.Helpers(), []
    both = threading.Barrier(2, timeout=30)
    for _ in range(3):
        helpers.run(kernel(lambda call: met.append(both.wait())), b"", 2)
        time.sleep(0.05)  # far longer than it looks for work
    assert sorted(met) == [0, 0, 0, 1, 1, 1]


@needs_helpers
def test_nobody_waits_for_a_helper_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)
    helpers, ran = module.Helpers(), []
    for _ in range(100):
        helpers.run(kernel(lambda call: ran.append(threading.get_ident())), b"", 4)
    assert ran == [threading.get_ident()] * 100


@needs_helpers
def test_what_a_helper_has_begun_is_waited_for() -> None:
    helpers, done = module.Helpers(), []
    caller = threading.get_ident()
    for _ in range(20):
        begun = threading.Event()

        def work(call: bytes, begun: threading.Event = begun) -> None:
            if threading.get_ident() == caller:
                assert begun.wait(30)
            else:
                begun.set()
                time.sleep(0.005)
                done.append(call)

        helpers.run(kernel(work), b"", 2)
        assert done.pop() == b"", "the helper was still at work"


@needs_helpers
def test_a_second_caller_works_alone() -> None:
    helpers, inner = module.Helpers(), []
    caller = threading.get_ident()

    def outer(call: bytes) -> None:
        if threading.get_ident() == caller:
            helpers.run(kernel(lambda call: inner.append(threading.get_ident())), b"", 2)

    helpers.run(kernel(outer), b"", 2)
    assert inner == [caller]


@needs_helpers
@pytest.mark.parametrize("num_threads", [2, 5])
def test_products_are_the_same_with_helpers(monkeypatch: pytest.MonkeyPatch, num_threads: int) -> None:
    (weight, _), x = weight_of(4, True, (480, 256)), torch.randn(200, 1, 256)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    alone = [project(row, weight) for row in x]
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    assert all(torch.equal(project(row, weight), out) for row, out in zip(x, alone, strict=True))
    assert threads.are_helping()
    project(x[0], torch.ones(8, 256))
    assert not threads.are_helping(), "a product of torch's threads came last"
    project(x[0], weight)
    monkeypatch.setenv("KERNELS_THREADS", "openmp")
    assert not threads.are_helping()
    assert all(torch.equal(project(row, weight), out) for row, out in zip(x, alone, strict=True))
    monkeypatch.setenv("KERNELS_THREADS", "auto")
    with ThreadPoolExecutor(3) as pool:
        assert all(map(torch.equal, pool.map(lambda row: project(row, weight), x), alone))


@needs_helpers
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_helpers_of_its_own() -> None:
    script = """
import ctypes, os, sys, threading
from ondevice.kernels.cpu.helpers import helpers
kernel = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
helpers().run(kernel(lambda call: None), b"", 3)
if (child := os.fork()) == 0:
    met, both = [], threading.Barrier(2, timeout=20)
    helpers().run(kernel(lambda call: met.append(both.wait())), b"", 2)
    os._exit(len(met))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (2, "")


def test_an_unknown_choice_of_threads_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELS_THREADS", "green")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(ValueError, match="'green'; it must be one of auto, openmp"):
        project(torch.ones(1, 256), weight_of(4, True, (480, 256))[0])
