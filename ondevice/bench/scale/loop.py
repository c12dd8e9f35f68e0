"""The plain loop that a batch is measured against: one engine, one document after the other, in this process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ondevice.documents.extract import read
from ondevice.session.engine import Engine
from ondevice.session.saving import save_session


def read_in_turn(engine: Engine, folder: Path, out: Path) -> list[dict[str, Any]]:
    """Read every file of a folder into a saved pot; rows as a batch has them: when each began, how long it took."""
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
