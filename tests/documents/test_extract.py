"""The worker and its parent: kinds of files, limits that really kill, nothing lost, no process or file left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from ondevice.documents import Limits, extract, read
from ondevice.documents.bounds import Intake
from ondevice.documents.formats.reader import Request
from ondevice.documents.worker import process as process_module
from ondevice.documents.worker.limits import MAX_PAGES
from ondevice.documents.worker.outcome import Collected
from ondevice.documents.worker.process import Worker
from ondevice.errors import (
    DocumentError,
    DocumentTooComplex,
    DocumentTooLarge,
    EmptyDocument,
    PasswordRequired,
    UnsupportedDocument,
)
from ondevice.events import PagesExtracted
from tests.builders.documents import deflated, encrypt, make_epub, make_pdf, show

# Under every limit of a page, and still seconds of work.
SLOW_PAGE = b"BT /F1 4 Tf 60 800 Td %s ET" % b"".join(b"(%d a lamp and a wick) Tj 0 -0.1 Td " % i for i in range(7_000))


@pytest.fixture
def three_pages(tmp_path) -> Path:
    return make_pdf(tmp_path / "three.pdf", show("one"), show("two"), show("three"))


def fake_worker(monkeypatch, body: str) -> None:
    """Replace the worker by a few lines of Python; `send` writes a message, `first` is the page to begin with."""
    prelude = (
        "import sys, time, os; sys.path.append(sys.argv[1])\n"
        "from ondevice.documents.worker.wire import read_message, write_message\n"
        "first = read_message(sys.stdin.buffer)['request']['first']\n"
        "send = lambda **message: write_message(sys.stdout.buffer, message)\n"
        "opened = lambda n: send(type='opened', kind='pdf', unit='page', num_pages=n)\n"
        "page = lambda n: send(type='page', number=n, text=f'text {n}', problem_code='', problem='')\n"
    )
    monkeypatch.setattr(process_module, "_BOOTSTRAP", prelude + body)


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


# progress, closing, leftovers


def test_progress_then_the_document(three_pages) -> None:
    steps = extract(three_pages)
    seen: list[PagesExtracted] = []
    while True:
        try:
            seen.append(next(steps))
        except StopIteration as stop:
            document = stop.value
            break
    assert [event.done for event in seen] == sorted(event.done for event in seen)
    assert seen[-1] == PagesExtracted(3, 3)
    assert document.num_pages == 3
    assert not children()


def test_closing_kills_the_worker_at_once(tmp_path, monkeypatch) -> None:
    fake_worker(monkeypatch, "opened(9); page(1); time.sleep(600)")
    path = make_pdf(tmp_path / "a.pdf", show("x"))
    steps = extract(path)
    while next(steps).done < 1:
        pass
    (child,) = children()
    start = time.monotonic()
    steps.close()
    assert time.monotonic() - start < 1
    assert not child.is_running()
    assert not children()


def test_a_slow_worker_still_lets_the_caller_in(tmp_path, monkeypatch) -> None:
    fake_worker(monkeypatch, "time.sleep(600)")
    steps = extract(make_pdf(tmp_path / "a.pdf", show("x")))
    start = time.monotonic()
    assert next(steps) == PagesExtracted(0, None)
    assert time.monotonic() - start < 2
    steps.close()


# pages that are given up


def test_a_page_that_takes_too_long_is_given_up_and_the_others_go_on(tmp_path, monkeypatch) -> None:
    stuck = "opened(4)\nfor n in range(first, 5):\n    time.sleep(600 if n == 2 else 0)\n    page(n)\nsend(type='done')"
    fake_worker(monkeypatch, stuck)
    document = read(make_pdf(tmp_path / "a.pdf", show("x")), limits=Limits(page_seconds=0.5))
    assert [page.text for page in document.pages] == ["text 1", "", "text 3", "text 4"]
    assert document.pages[1].problem_code == "too-complex"
    assert document.pages[1].problem == "page 2 was given up: it takes longer than 0.5 seconds"
    assert not children()


def test_a_page_that_kills_the_worker_is_given_up(tmp_path, monkeypatch) -> None:
    fake_worker(
        monkeypatch, "opened(3)\nfor n in range(first, 4):\n    if n == 3: os.abort()\n    page(n)\nsend(type='done')"
    )
    document = read(make_pdf(tmp_path / "a.pdf", show("x")))
    assert [page.problem_code for page in document.pages] == ["", "", "too-complex"]


def test_restarts_and_wall_clock_are_limited(tmp_path, monkeypatch) -> None:
    path = make_pdf(tmp_path / "a.pdf", show("x"))
    fake_worker(monkeypatch, "opened(9)\nif first == 1: page(1)\nos.abort()")
    document = read(path, limits=Limits(max_restarts=2))
    assert [page.problem_code for page in document.pages] == ["", *["too-complex"] * 8]
    fake_worker(monkeypatch, "opened(99)\nfor n in range(first, 99):\n    page(n); time.sleep(0.5)")
    document = read(path, limits=Limits(wall_seconds=4))  # time enough to start, on a busy machine too
    assert document.num_pages == 99
    assert document.pages[0].text == "text 1"
    assert document.pages[98].problem == "page 99 was given up: reading the document takes longer than 4 seconds"


def test_text_is_limited(tmp_path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"word " * 10_000)
    document = read(path, limits=Limits(text_chars=7000))
    assert [page.problem_code for page in document.pages] == ["", "", "", "too-complex"]
    assert document.pages[3].problem.endswith("the document holds more than 7,000 characters")


def test_a_text_larger_than_the_free_memory_is_refused_before_it_comes_in(tmp_path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"word " * 600_000)
    seen: list[PagesExtracted] = []
    with pytest.raises(DocumentTooLarge) as caught:
        seen.extend(extract(path, free_memory=lambda: 4_000_000))
    assert all(event.done == 0 for event in seen)
    assert caught.value.to_dict() == {
        "code": "document-too-large",
        "what": "its text and tokens need about 3 MB; 4 MB of memory are free, and a document may take 50% of that",
        "where": "a.txt",
        "fix": "Close other documents or programs. Split the file, or save the part of it that you need as plain text.",
    }
    assert not children()
    assert read(path, free_memory=lambda: 40_000_000).num_pages == 1000


def test_text_beyond_the_free_memory_is_refused_while_it_comes_in(tmp_path, monkeypatch) -> None:
    endless = "opened(None)\nfor n in range(1, 10**9):\n"
    endless += "    send(type='page', number=n, text='x' * 100_000, problem_code='', problem='')"
    fake_worker(monkeypatch, endless)
    with pytest.raises(DocumentTooLarge, match=r"need about \d+ MB; 1\d\d MB of memory are free"):
        read(make_pdf(tmp_path / "a.pdf", show("x")), free_memory=lambda: 100_000_000)
    assert not children()


def test_the_worker_ends_when_memory_does_even_if_its_messages_wait(tmp_path, monkeypatch) -> None:
    fake_worker(monkeypatch, "while True: send(type='page', text='x' * 100_000)")
    intake = Intake("a.pdf", 1, lambda: 20_000_000)
    with Worker(Request("a.pdf"), Limits(), intake.take) as worker:
        psutil.Process(worker._process.pid).wait(10)
        with pytest.raises(DocumentTooLarge):
            list(iter(lambda: worker.receive(1), None))


def test_pages_without_end_are_refused() -> None:
    intake = Intake("a.pdf", 1, lambda: 10**12)
    for _ in range(MAX_PAGES):
        intake.take({"type": "page", "text": ""})
    with pytest.raises(DocumentTooLarge, match="more than 100,000 pages"):
        intake.take({"type": "page", "text": ""})


def test_a_text_that_breaks_off_keeps_its_beginning(tmp_path, monkeypatch) -> None:
    fake_worker(monkeypatch, "opened(None); page(1); page(2); os.abort()")
    document = read(make_pdf(tmp_path / "a.pdf", show("x")))
    assert [page.text for page in document.pages] == ["text 1", "text 2", ""]
    assert document.pages[2].problem_code == "too-complex"


@pytest.mark.parametrize("body", ["time.sleep(600)", "os.abort()", "opened(2); os.abort()"])
def test_nothing_read_is_an_error(tmp_path, monkeypatch, body: str) -> None:
    fake_worker(monkeypatch, body)
    with pytest.raises(DocumentTooComplex):
        read(make_pdf(tmp_path / "a.pdf", show("x")), limits=Limits(open_seconds=1))


@pytest.mark.parametrize(
    "body",
    [
        "sys.stdout.buffer.write(b'\\xff\\xff\\xff\\xff')",
        "sys.stdout.buffer.write(b'xx\\n')",
        "sys.stdout.buffer.write(b'[]\\n')",
        'sys.stdout.buffer.write(b\'{"type": "done"}\')',
        "send(type='page', number='1', text=[], problem_code='', problem='')",
        "opened(2); page(2)",
        "send(type='surprise')",
        "opened(10**12)",
    ],
)
def test_a_worker_that_sends_nonsense_is_not_believed(tmp_path, monkeypatch, body: str) -> None:
    fake_worker(monkeypatch, body)
    with pytest.raises(DocumentTooComplex):
        read(make_pdf(tmp_path / "a.pdf", show("x")), limits=Limits(max_restarts=0))
    assert not children()


# limits of the real worker


def test_real_page_that_is_too_slow(tmp_path) -> None:
    path = make_pdf(tmp_path / "a.pdf", show("first"), SLOW_PAGE, show("last"), stream=deflated)
    start = time.monotonic()
    document = read(path, limits=Limits(page_seconds=0.3))
    assert time.monotonic() - start < 10
    assert [page.problem_code for page in document.pages] == ["", "too-complex", ""]
    assert document.pages[2].text == "last\n"


def test_memory_limit_is_kept(tmp_path) -> None:
    path = tmp_path / "a.html"
    path.write_bytes(b"x" * 80_000_000)
    with pytest.raises(DocumentTooComplex, match="memory"):
        read(path, limits=Limits(memory_bytes=200_000_000))


@pytest.mark.slow
def test_processor_limit_is_kept(tmp_path) -> None:
    # A page that any machine reads in time, and more slow ones than any machine does.
    path = make_pdf(tmp_path / "a.pdf", show("first"), *[SLOW_PAGE] * 30, stream=deflated)
    document = read(path, limits=Limits(cpu_seconds=4, page_seconds=60, max_restarts=0))
    assert document.pages[0].problem_code == ""
    lost = next(page for page in document.pages if page.problem)
    assert lost.problem == f"page {lost.number} was given up: the limit of processor time was reached"
    assert document.pages[30].problem == "page 31 was given up: too many pages before it had to be given up"


def test_worker_is_light_and_shut_in(tmp_path) -> None:
    code = (
        "import sys, json, ondevice.documents.worker.worker, ondevice.documents.worker.sandbox as sandbox\n"
        "from ondevice.documents.worker.limits import Limits\n"
        "heavy = [name for name in ('torch', 'transformers', 'numpy', 'pypdf', 'bs4') if name in sys.modules]\n"
        "import socket, subprocess, resource\n"
        "sandbox.enter(Limits())\n"
        "refused = []\n"
        "def attempt(name, call):\n"
        "    try: call()\n"
        "    except OSError: refused.append(name)\n"
        "attempt('connect', lambda: socket.create_connection(('127.0.0.1', 9)))\n"
        "attempt('run', lambda: subprocess.run(['true']))\n"
        "attempt('write', lambda: open(sys.argv[1], 'w'))\n"
        "print(json.dumps([heavy, refused, resource.getrlimit(resource.RLIMIT_AS)[0]]))\n"
    )
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(tmp_path / "file")], capture_output=True, text=True, check=True, cwd="/"
    )
    heavy, refused, memory = json.loads(done.stdout)
    assert time.monotonic() - start < 3
    assert heavy == []
    assert refused == ["connect", "run", "write"]
    assert memory == Limits().memory_bytes


@pytest.mark.parametrize("kind", ["pdf", "txt"])
@pytest.mark.parametrize("other", ["file", "pipe", "nothing"])
def test_what_takes_the_place_of_the_file_meanwhile_is_not_read(tmp_path, monkeypatch, kind: str, other: str) -> None:
    def begun(*arguments: Any) -> Worker:
        path.unlink()
        if other == "pipe":
            os.mkfifo(path)
        elif other == "file":
            make_pdf(path, show("other")) if kind == "pdf" else path.write_text("other")
        return Worker(*arguments)

    path = make_pdf(tmp_path / "a.pdf", show("x")) if kind == "pdf" else tmp_path / "a.txt"
    if kind == "txt":
        path.write_text("x")
    monkeypatch.setattr(sys.modules[extract.__module__], "Worker", begun)
    says = {"file": "another file has taken its place", "pipe": "a pipe or a device", "nothing": "no such file"}
    with pytest.raises(DocumentError, match=says[other]):
        read(path, limits=Limits(open_seconds=3))


def test_password_and_tokens_are_not_to_be_seen(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "hidden-token")
    path = encrypt(make_pdf(tmp_path / "a.pdf", show("x")), tmp_path / "b.pdf", user="hidden-password")
    with Worker(Request(str(path), "hidden-password"), Limits()) as worker:
        child = psutil.Process(worker._process.pid)
        assert "hidden" not in " ".join(child.cmdline())
        assert not any("hidden" in value for value in child.environ().values())


@pytest.mark.parametrize("variable", [{}, {"PYTHONSAFEPATH": "1"}])
def test_works_from_any_folder_and_takes_no_module_from_it(three_pages, tmp_path, variable: dict[str, str]) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for name in ("pypdf", "json", "ondevice"):
        (here / f"{name}.py").write_text("raise SystemExit('taken from the working folder')")
    code = "import sys; from ondevice.documents import read; print(read(sys.argv[1]).num_pages)"
    root = str(Path(process_module.__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.path.append({root!r}); {code}", str(three_pages)],
        capture_output=True,
        text=True,
        check=True,
        cwd=here,
        env={**os.environ, **variable},
    )
    assert done.stdout == "3\n"


# kinds of files


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("a.pdf", b"\x89PNG\r\n\x1a\n\x00\x00", "the name says a PDF, but the content is a picture"),
        ("a.gif", b"GIF89a\x00\x00", "GIF image.*ocrmypdf"),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 600, "old Office file.*docx"),
        ("a.msg", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 600, "mail of Outlook.*MHT"),
        ("a.txt", b"{\\rtf1 text}", "the name says plain text, but the content is a rich text"),
        ("a.pdf", b"just text", "the name says a PDF, but the content is plain text.*rename"),
        ("a.txt", b"%PDF-1.7\n", "the name says plain text, but the content is a PDF"),
        ("a.docx", b"just text", "the name says a Word document"),
        ("a.xls", b"<html><table><tr><td>1", "the name says a workbook, but the content is a web page.*[.]html"),
        ("a.bin", bytes(range(256)) * 40, "binary"),
        ("a.gz", b"\x1f\x8b\x08\x00", "gzip.*Unpack"),
        ("a.zip", b"PK\x03\x04 and then nothing", "damaged"),
    ],
)
def test_files_of_other_kinds_are_refused_with_advice(tmp_path, name: str, data: bytes, match: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(UnsupportedDocument, match=match):
        read(path)


def test_content_decides_when_the_name_says_nothing(tmp_path, three_pages) -> None:
    three_pages.rename(tmp_path / "report")
    assert read(tmp_path / "report").kind == "pdf"
    make_epub(tmp_path / "novel.zip", {"a.xhtml": "<p>text</p>"})
    assert read(tmp_path / "novel.zip").kind == "epub"
    (tmp_path / "program.py").write_text("print('%PDF-')\n")
    assert read(tmp_path / "program.py").kind == "txt"
    (tmp_path / "page").write_text("<!-- x --><!DOCTYPE html><p>text")
    assert read(tmp_path / "page").kind == "html"
    (tmp_path / "page").rename(tmp_path / "page.doc")
    assert read(tmp_path / "page.doc").kind == "html"


def test_junk_before_the_header_of_a_pdf(tmp_path, three_pages) -> None:
    three_pages.write_bytes(b"\x00\xffjunk\n" + three_pages.read_bytes())
    assert read(three_pages).num_pages == 3


def test_files_that_cannot_be_opened(tmp_path) -> None:
    with pytest.raises(DocumentError, match="no such file"):
        read(tmp_path / "missing.pdf")
    with pytest.raises(DocumentError, match="folder"):
        read(tmp_path)
    (tmp_path / "empty.pdf").write_bytes(b"")
    with pytest.raises(EmptyDocument, match="0 bytes"):
        read(tmp_path / "empty.pdf")
    (tmp_path / "large.txt").write_bytes(b"x" * 1000)
    with pytest.raises(DocumentError, match="1,000 bytes; the limit is 999"):
        read(tmp_path / "large.txt", limits=Limits(file_bytes=999))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DocumentError, match="not a regular file"):
        read(tmp_path / "pipe")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission(tmp_path, three_pages) -> None:
    three_pages.chmod(0)
    with pytest.raises(DocumentError, match="may not be read"):
        read(three_pages)


def test_an_error_of_the_worker_arrives_as_its_kind() -> None:
    with pytest.raises(PasswordRequired) as caught:
        Collected("a.pdf").take(
            {"type": "error", "code": "password-required", "what": "w", "where": "a.pdf", "fix": "f"}
        )
    assert caught.value.to_dict() == {"code": "password-required", "what": "w", "where": "a.pdf", "fix": "f"}
