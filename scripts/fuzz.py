"""Documents for a night, spoilt where that reaches new code of the readers: `make fuzz KIND=pdf SECONDS=28800`.

Needs atheris, which nothing else does: `.venv/bin/python -m pip install atheris`. A case that takes longer than a page
may, that needs more memory than a worker has, or that ends in anything but pages or an exception is written to the
folder of the corpus, and named. The readers work without their process here; what they raise is a typed error there.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import sys
import tempfile
from pathlib import Path

from ondevice_bench.speed.reliability.damaged_documents import KINDS, sound, spoil

_MOST_PAGES = 2000  # of one case
_WATCHED = ["ondevice.documents", "pypdf", "defusedxml", "html", "xml", "zipfile"]  # whose code is to be reached


def read(path: str) -> int:
    """Go through a document as the worker does; returns the characters of its text."""
    from ondevice.documents.formats.opening import open_document
    from ondevice.documents.formats.reader import Request

    num_chars = 0
    try:
        for number, page in enumerate(open_document(Request(path)).pages):
            num_chars += len(page.text)
            if number == _MOST_PAGES:
                break
    except Exception as error:
        return -len(type(error).__name__)
    return num_chars


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(set(KINDS)))
    parser.add_argument("--seconds", type=int, default=28_800)
    parser.add_argument("--corpus", type=Path, help="what was found goes on from there; default: a new folder")
    options = parser.parse_args()
    try:
        import atheris
    except ModuleNotFoundError:
        sys.exit("atheris is not here: `.venv/bin/python -m pip install atheris`, on Linux or macOS.")
    with atheris.instrument_imports(include=_WATCHED):
        from ondevice.documents.formats.table import FORMATS

        for name in {one.reader[0] for one in FORMATS}:
            importlib.import_module(f"ondevice.documents.formats.{name}")
        from ondevice.documents.worker.limits import Limits
    corpus = options.corpus or Path(tempfile.mkdtemp(prefix="ondevice-fuzz-"))
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / f"sound.{options.kind}").write_bytes(sound(options.kind))
    case = Path(tempfile.mkdtemp(prefix="ondevice-case-")) / f"case.{options.kind}"

    def one(data: bytes) -> None:
        case.write_bytes(data)
        read(str(case))

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        return spoil(options.kind, data, rng)[:max_size] if rng.random() < 0.7 else atheris.Mutate(data, max_size)

    limits = Limits()
    arguments = [
        sys.argv[0],
        str(corpus),
        f"-max_total_time={options.seconds}",
        f"-timeout={int(limits.page_seconds) * 2}",
        f"-rss_limit_mb={limits.memory_bytes >> 20}",
        "-max_len=2000000",
        f"-artifact_prefix={corpus}{os.sep}",
    ]
    atheris.Setup(arguments, one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
