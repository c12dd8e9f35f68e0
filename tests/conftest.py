"""Fixtures of more than one test file."""

import os
import tempfile
from collections.abc import Iterator

import pytest
import torch

os.environ["ONDEVICE_MODEL"] = "smollm2-135m"  # no test fetches what would suit this machine
_DATA = tempfile.TemporaryDirectory(prefix="ondevice-tests-")
os.environ["ONDEVICE_DATA"] = _DATA.name  # nor writes where the user keeps documents


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What measures the product is no part of it: its tests run with the slow ones."""
    for item in items:
        if item.path.parent.name in ("bench", "evaluation"):
            item.add_marker("slow")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Tiny matrices are slower on several threads, and the machine may have other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
