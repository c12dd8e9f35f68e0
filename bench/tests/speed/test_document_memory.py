"""`ondevice bench memory`: what a document takes, beside what it may."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.config import EngineConfig, GenerationConfig
from ondevice_bench.speed import document_memory
from ondevice_bench.speed.document_memory import Held, _Highest


def test_the_most_that_was_held_meanwhile_counts() -> None:
    with _Highest() as highest:
        much = torch.ones(100_000_000, dtype=torch.uint8)
        highest._done.wait(0.2)
        del much
    assert 95e6 < highest.bytes < 160e6


def test_each_length_has_a_process_of_its_own(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(work: Callable[..., Held], config: Any, num_tokens: int) -> Held:
        assert work is document_memory.held
        assert config.memory == 512_000_000
        return Held(num_tokens * 1000, config.memory, 4096, 100.0)

    monkeypatch.setattr(document_memory, "in_its_own_process", alone)
    options = ["--model", str(checkpoint), "--memory", "512MB", "--tokens", "1000,256000", "--json"]
    done = CliRunner().invoke(app, ["bench", "memory", *options])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["summary"] == {"memory_share_1000": 1e6 / 512e6, "memory_share_256000": 0.5}
    assert [one["p50"] for one in result["rows"][3:]] == [256e6, 512e6, 100.0]


@pytest.mark.slow
def test_a_session_is_held_within_what_it_may_take(checkpoint: Path) -> None:
    config = EngineConfig(model=str(checkpoint), device="cpu", generation=GenerationConfig(chat=False))
    found = document_memory.held(config, 700)
    assert found.highest < found.most  # what is freed before may be used again: it need not be above 0
    assert found.slots == 512
