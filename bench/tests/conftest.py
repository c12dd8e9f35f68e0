"""A model that the commands are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.models import save_checkpoint, tiny_model


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tiny_model("llama"), tmp_path_factory.mktemp("model") / "tiny")
