"""The plain loop that a batch is measured against: one engine, a document after the other, in a process of its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from ondevice.config import EngineConfig
from ondevice.documents.extract import read
from ondevice.session.engine import Engine
from ondevice.session.saving import save_session


def read_in_turn(config: EngineConfig, threads: int, folder: Path, out: Path) -> list[dict[str, Any]]:
    """Load an engine, and read every file of a folder into a saved pot; rows as a batch has them: when each began, how
    long it took.

    Args:
        threads: that compute; this process keeps that number.
    """
    torch.set_num_threads(threads)
    engine = Engine.load(config)
    out.mkdir()
    done: list[dict[str, Any]] = []
    for path in sorted(folder.iterdir()):
        started, began = time.time(), time.perf_counter()
        session = engine.session()
        for _ in session.read(read(path)):
            pass
        save_session(session, out / f"{path.stem}.pot")
        done.append({"worker": "loop", "started": started, "seconds": time.perf_counter() - began})
    return done
