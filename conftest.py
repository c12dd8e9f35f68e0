"""Fixtures of more than one test file, of the product and of the laboratory."""

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest
import torch

import ondevice_bench.quality.policies  # noqa: F401  # contenders in tests of the product, too

ROOT = Path(__file__).parent
tests = sys.modules.setdefault("tests", ModuleType("tests"))  # whose builders the laboratory's tests use as well
tests.__path__ = [str(ROOT / "tests")]
os.environ["ONDEVICE_MODEL"] = "smollm2-135m"  # no test fetches what would suit this machine
hypothesis.settings.register_profile("by the processor's time", deadline=None)  # see `pytest_runtest_call`
hypothesis.settings.load_profile("by the processor's time")
MOST_SECONDS = 10  # of a unit test: some 5 and what it may have to compile first
_DATA = tempfile.TemporaryDirectory(prefix="ondevice-tests-")
os.environ["ONDEVICE_DATA"] = _DATA.name  # nor writes where the user keeps documents


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark the tests of the laboratory and of Triton, which run apart from the unit tests and may take longer.

    Of several processes each begins with some of the tests that may take longest, so that none is left with those.
    """
    for item in items:
        if item.path.is_relative_to(ROOT / "bench") or item.path.is_relative_to(ROOT / "tests/triton"):
            item.add_marker("apart")
    yield  # some are left out
    number = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if number > 1:
        items[:] = _spread(items, number, float(config.getini("timeout") or 0))


def pytest_collection_finish() -> None:
    """Leave modules and tests out of the collections of garbage: each model that is loaded has one, of a third of a
    second among so many objects."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A unit test that takes long is told of, for all the others wait; it fails nothing, for machines differ."""
    before = os.times()
    yield
    took = sum(os.times()[:4]) - sum(before[:4])  # of the processor, here and in processes that have ended: not by load
    may_take_longer = "browser" in item.path.parts or any(map(item.get_closest_marker, ("slow", "apart")))
    if took > MOST_SECONDS and not may_take_longer:
        item.warn(pytest.PytestWarning(f"it took {took:.1f} s of the processor: make it shorter, or mark it as slow"))


def _spread(items: list[pytest.Item], number: int, usual: float) -> list[pytest.Item]:
    """As many neighbours for each process as for the others, as `worksteal` hands them out; those first that may take
    more seconds than is usual."""
    longest, others = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        limit = item.get_closest_marker("timeout")
        (longest if limit is not None and limit.args[0] > usual else others).append(item)
    spread = list[pytest.Item]()
    for index in range(number):
        own = longest[index::number]
        size = max(len(items) * (index + 1) // number - len(spread) - len(own), 0)
        spread += own + others[:size]
        others = others[size:]
    return spread


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Tiny matrices are slower on several threads, and the machine may have other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
