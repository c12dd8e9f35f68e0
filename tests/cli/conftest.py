"""A model and a document that the commands are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.models import save_checkpoint, tiny_model


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tiny_model("llama"), tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "lamp.txt"
    path.write_text("The lamp is lit at dusk by the keeper, and he counts the ships. " * 14)
    return path
