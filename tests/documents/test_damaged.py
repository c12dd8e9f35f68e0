"""Documents that were damaged, or made to do harm: each gives text, or is refused by name, in time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ondevice.documents import read
from ondevice_bench.speed.reliability.damaged_documents import KINDS, sound
from ondevice_bench.speed.reliability.hostile import spoil_documents


@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_what_is_spoilt_was_sound(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(sound(kind))
    document = read(path)
    assert document.kind == kind
    assert [page.problem_code for page in document.pages] == [""] * len(document.pages)
    assert "The lamp was lit at dusk, écru and bright" in document.pages[0].text


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_no_damaged_document_does_harm(part: int, tmp_path: Path) -> None:
    """400 in all; `ondevice bench reliability` takes 2,000, and `make fuzz` a night."""
    *_, tally = spoil_documents(tmp_path, 50, 250 * part)
    assert tally.others == []
    assert tally.slowest < 60.0, "seconds: what opening a file may take"
    assert min(tally.num_fine, tally.num_refused) > 5


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes")
def test_a_worker_does_not_outlive_its_parent(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "endless.txt")  # whoever opens it waits for ever
    script = (
        "import sys, time; from pathlib import Path; from ondevice.documents.formats.reader import Request; "
        "from ondevice.documents.worker.limits import Limits; from ondevice.documents.worker.process import Worker; "
        f"worker = Worker(Request(path={str(pipe)!r}), Limits()); "
        "print(worker._process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        time.sleep(1.0)
        assert worker.is_running()
        parent.kill()
    _, alive = psutil.wait_procs([worker], timeout=20)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]
