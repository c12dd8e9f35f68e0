"""What somebody waits for, and what is right of what they are told: real documents and questions, in Chromium.

    make walk ARGS='QUESTIONS.jsonl [--model NAME]'

Each line has `file`, a document beside it, and `questions`, pairs of a question and a pattern of its right answers. The
first one is asked as soon as the document is dropped, the others once all of it is read. An answer is marked where the
bubble says that it is not in the document, or what the document says in its place.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import psutil
import torch

from ondevice.config import EngineConfig
from ondevice.serving.address import free_port
from ondevice_bench.results.result import Row, new_result, row, write_result
from tests.browser.driver import Visit, chromium, new_context, visiting

LIMIT_SECONDS, REST_SECONDS = 1800.0, 20.0
_MARKS = re.compile(r"Not in the document:|The document says:|(?:That is n|N)ot in (?:the document|what was read)")
_LEFT = re.compile(r"about (?:(\d+) min)?\s*(?:(\d+)(?:\.\d+)? s)? left")


@contextmanager
def served(model: str) -> Iterator[tuple[str, psutil.Process, float]]:
    """The app as a program of its own, which keeps no document, and the seconds until it serves its page."""
    port, began = free_port("127.0.0.1"), time.monotonic()
    command = [
        str(Path(sys.executable).with_name("ondevice")),
        "app",
        "--port",
        str(port),
        "--model",
        model,
        "--no-keep-open",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as app:
        try:
            url = f"http://127.0.0.1:{port}"
            while app.poll() is None:
                with suppress(OSError), urlopen(url, timeout=1):
                    break
                time.sleep(0.05)
            yield url, psutil.Process(app.pid), time.monotonic() - began
        finally:
            app.terminate()


def cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in processes if one.is_running())


def seconds_left(text: str) -> float | None:
    """What the page says is left; None where it does not."""
    found = _LEFT.search(text)
    return None if found is None else 60 * float(found[1] or 0) + float(found[2] or 0)


def forecast_errors(told: list[tuple[float, float]], began: float, ended: float) -> list[float]:
    """How far each forecast (when, seconds left) was off, as a share of what was left; of the first tenth and of the
    last seconds none counts."""
    left = [(ended - at, forecast) for at, forecast in told if at - began >= (ended - began) / 10 and ended - at > 5]
    return [abs(forecast - actual) / actual for actual, forecast in left]


def answer(visit: Visit, question: str) -> str:
    """The latest bubble on a question."""
    return visit.text("#od-chat").rpartition(question)[2]


def walk(visit: Visit, app: psutil.Process, file: Path, questions: list[tuple[str, str]]) -> Iterator[Row]:
    """Drop one document and ask; the figures of what was seen."""
    page, case, told = visit.page, {"document": file.stem}, list[tuple[float, float]]()
    first = questions[0][0]
    visit.upload(str(file))
    dropped = time.monotonic()
    visit.state("reading", "answering", "read")
    visit.ask(first)
    visit.answered(1, LIMIT_SECONDS)
    yield row("page", case, "first answer after the drop", "s", [time.monotonic() - dropped])
    is_early = "First answer" in answer(visit, first)

    def is_read() -> bool:
        left = seconds_left(visit.text("#od-progress"))
        if left is not None:
            told.append((time.monotonic(), left))
        return page.evaluate("document.body.dataset.state") == "read" and "First answer" not in answer(visit, first)

    visit.until(is_read, "all is read", LIMIT_SECONDS)
    if is_early:
        yield row("page", case, "confirmed answer after the drop", "s", [time.monotonic() - dropped])
    if errors := forecast_errors(told, dropped, told[-1][0] + told[-1][1] if told else dropped):
        yield row("page", case, "forecast off", "share", errors)
    for number, (question, right) in enumerate(questions):
        if number:
            visit.ask(question)
            visit.answered(number + 1, LIMIT_SECONDS)
        text = answer(visit, question)
        is_right, is_marked = bool(re.search(right, text.partition("From ")[0])), bool(_MARKS.search(text))
        kind = "right" if is_right else "wrong, marked" if is_marked else "wrong, unmarked"
        print(f"{kind}: {question} {' '.join(text.split())[:300]}", flush=True)
        yield row("page", case | {"question": number}, kind, "answers", [1.0])
    visit.page.wait_for_timeout(2000)
    browser = [one for one in psutil.Process().children(recursive=True) if one.pid != app.pid]
    for name, processes in (("app", [app]), ("page", browser)):
        before = cpu_seconds(processes)
        visit.page.wait_for_timeout(1000 * REST_SECONDS)
        yield row(name, case, "of a core at rest", "share", [(cpu_seconds(processes) - before) / REST_SECONDS])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--model", default="auto")
    parser.add_argument("--out", type=Path, help="write the figures there")
    flags = parser.parse_args()
    lines = [json.loads(line) for line in flags.questions.read_text(encoding="utf-8").splitlines() if line.strip()]
    command = f"make walk ARGS='{flags.questions.name} --model {flags.model}'"
    result, rows = new_result(command, EngineConfig(model=flags.model), torch.device("cpu")), list[Row]()
    with (
        served(flags.model) as (url, app, started),
        chromium() as browser,
    ):
        rows.append(row("app", {}, "page is served", "s", [started]))
        for line in lines:
            with visiting(new_context(browser, width=1440, height=900), url) as visit:
                for one in walk(visit, app, flags.questions.parent / line["file"], line["questions"]):
                    print(f"{one.case} {one.contender}: {one.metric} {one.p50:.3g} {one.unit}", flush=True)
                    rows.append(one)
                visit.close_document()
    counts, most = Counter(one.metric for one in rows if one.unit == "answers"), dict[str, float]()
    for one in rows:
        most[one.metric] = max(one.p50, most.get(one.metric, 0.0))
    at_rest = [one for one in rows if one.metric == "of a core at rest"]
    summary = {
        "right": float(counts["right"]),
        "wrong_marked": float(counts["wrong, marked"]),
        "wrong_unmarked": float(counts["wrong, unmarked"]),
        "seconds_to_page": most["page is served"],
        "seconds_to_first_answer": most["first answer after the drop"],
        "forecast_off": most.get("forecast off", 0.0),
        **{f"idle_share_{name}": max(one.p50 for one in at_rest if one.contender == name) for name in ("app", "page")},
    }
    if flags.out is not None:
        write_result(flags.out, replace(result, rows=tuple(rows), summary=summary, complete=True))


if __name__ == "__main__":
    main()
