"""The child process that parses one file: request in on standard input, messages out on standard output.

Messages, by `type`: `opened` (kind, unit, num_pages), `page` (number, text, problem_code, problem), `done`,
`error` (code, what, where, fix); where pages are to be drawn, a `picture` of each alone (see `pdf_picture`).
Nothing that a document holds is ever logged or put into an error.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
import time
from dataclasses import asdict, replace
from typing import BinaryIO

from ondevice.documents.formats import picture
from ondevice.documents.formats.opening import open_document
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.worker import sandbox
from ondevice.documents.worker.limits import Limits
from ondevice.documents.worker.wire import read_message, write_message
from ondevice.errors import DocumentError, DocumentTooComplex, OndeviceError

# The readers make few cycles and very many objects: collecting seldom is a fifth of the time of a PDF.
_PAGES_PER_COLLECTION = 50
_OCR_MEMORY = 2  # times the address space of others: the models and what they compute
_LOOK_SECONDS = 0.5
_NO_MEMORY = ("failed to map segment", "annot allocate memory")  # of glibc


def main() -> None:
    """Read one request, send pages until the document ends."""
    out = _private_stdout()
    message = read_message(sys.stdin.buffer)
    if message is None:
        return
    request = Request(**message["request"])
    _end_with(message["parent"])
    limits = Limits(**message["limits"])
    if picture.prepare(request):
        limits = replace(limits, memory_bytes=_OCR_MEMORY * limits.memory_bytes)
    sandbox.enter(limits)
    gc.disable()
    try:
        if request.draw:
            for drawn in importlib.import_module("ondevice.documents.formats.pdf_picture").draw_pages(request):
                write_message(out, drawn)
        else:
            _send_document(out, picture.open_scans(request) if request.scans else open_document(request))
    except OndeviceError as error:
        write_message(out, {"type": "error", **error.to_dict()})
    except Exception as error:
        write_message(out, {"type": "error", **_as_user_error(error, request).to_dict()})


def _as_user_error(error: Exception, request: Request) -> DocumentError:
    """Translate an exception of a parser. Only its name is given: its text may quote the document."""
    # The loader of the system says in words alone that a library had no room to be loaded into.
    is_no_room = isinstance(error, (ImportError, OSError)) and any(words in str(error) for words in _NO_MEMORY)
    if is_no_room or isinstance(error, (MemoryError, RecursionError)):
        is_deep = isinstance(error, RecursionError)
        what = "it is nested too deeply" if is_deep else "reading it takes more memory than is allowed"
        return DocumentTooComplex(what, where=request.name, fix="Print it to a new PDF, then open that.")
    what = f"the file is damaged or not what its name says [{type(error).__name__}]"
    fix = "Open it in another program, save it again, then open the new file."
    return DocumentError(what, where=request.name, fix=fix)


def _send_document(out: BinaryIO, reader: Reader) -> None:
    opened = {"type": "opened", "kind": reader.kind, "unit": reader.unit, "num_pages": reader.num_pages}
    write_message(out, opened)
    gc.freeze()  # modules and the open document stay: looking at them again and again took most of a small page's time
    for count, page in enumerate(reader.pages, 1):
        write_message(out, {"type": "page", **asdict(page)})
        if count % _PAGES_PER_COLLECTION == 0:
            gc.collect()
    write_message(out, {"type": "done"})


def _end_with(parent: int) -> None:
    """Nobody waits for a worker whose parent was killed: it ends within a second, whatever it is doing."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _private_stdout() -> BinaryIO:
    """The pipe to the parent under a number of its own, so that a stray print cannot break a message."""
    pipe = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())
    return pipe
