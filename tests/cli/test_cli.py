"""The command line, run in-process on a tiny checkpoint: what goes to which stream, and how every failure ends."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from ondevice.cli import app, conversation, opening
from ondevice.cli.options import AnswerOptions, PotOptions
from ondevice.cli.progress import ProgressDisplay
from ondevice.cli.terminal import print_json, printable, say
from ondevice.config import (
    SETTINGS,
    ArtConfig,
    EngineConfig,
    GenerationConfig,
    PotConfig,
    SlimConfig,
    SpecConfig,
    TierConfig,
    option_name,
)
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.events import AnswerFinished, AnswerToken, Event, PagesExtracted, TokensRead
from ondevice.model.loading.catalogue import HubRepository
from ondevice.serving.address import free_port
from ondevice.session.engine import Engine, Session
from ondevice_bench.speed.reliability.damaged_pots import SavedPot, write_summed
from tests.builders.documents import IMAGE_CONTENT, encrypt, make_pdf, make_repeating_epub, show
from tests.builders.models import plain_generation, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).resolve().parents[2]

TEXT = "The lamp is lit at dusk by the keeper. " * 20  # 780 tokens: several fillings of the pot below
POT = ["--capacity", "400", "--keep", "96", "--reserve", "160", "--step", "64"]
REPORT_KEYS = {"turns", "document", "ledger", "timings", "memory", "config", "versions"}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "lamp.txt"
    path.write_text(TEXT)
    return path


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def ask(checkpoint: Path, *arguments: object, stdin: str | None = None) -> Result:
    common = ["--model", checkpoint, *POT, "--max-new-tokens", "6", "--no-chat"]
    return run("ask", *arguments, *common, stdin=stdin)


def last_json(result: Result) -> dict:
    return json.loads(result.stdout.splitlines()[-1])


# -- asking ------------------------------------------------------------------------------------------


def test_one_question_is_answered_with_its_account(checkpoint: Path, text: Path) -> None:
    done = ask(checkpoint, text, "When?", "--json")
    assert done.exit_code == 0, done.output
    report = last_json(done)
    assert set(report) == {"answer", *REPORT_KEYS}
    # A letter that the answer ends in the middle of is not printed.
    assert done.stdout.startswith(printable(report["answer"]).rstrip("\ufffd")[:3])
    ledger = report["ledger"]
    assert ledger["tokens_total"] == ledger["tokens_read"] == 780
    assert ledger["tokens_read"] == ledger["tokens_kept"] + ledger["tokens_evicted"] + ledger["tokens_pruned"]
    assert ledger["tokens_evicted"] > 0
    timings, (turn,) = report["timings"], report["turns"]
    assert {"ingest_seconds", "stage_seconds", "ttft_seconds", "decode_tokens_per_second"} <= set(timings)
    stages, answering = timings["stage_seconds"], turn["stage_seconds"]
    assert {stage: stages[stage] for stage in answering} == answering
    assert turn["seconds"] == pytest.approx(sum(answering.values()))
    reading = sum(stages.values()) - turn["seconds"]
    assert reading == pytest.approx(timings["ingest_seconds"], abs=0.2)
    assert report["memory"]["pot_bytes"] > 0
    assert report["memory"]["peak_rss_bytes"] > 50_000_000
    assert "Read: 780 of 780 tokens · Kept: " in done.stderr
    assert "peak memory" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_question_steers_the_reading_and_says_so(checkpoint: Path, text: Path) -> None:
    done = ask(checkpoint, text, "When is it lit?", "--json")
    pot = last_json(done)["config"]["pot"]
    assert (pot["catalyst"], pot["catalyst_text"]) == ("question", "When is it lit?")
    assert "with the question in mind" in done.stderr
    chosen = ask(checkpoint, text, "When is it lit?", "--catalyst", "general", "--json")
    assert last_json(chosen)["config"]["pot"]["catalyst"] == "general"
    assert "with the question in mind" not in chosen.stderr


def test_a_question_for_all_of_a_kind_is_told_of_the_scan(checkpoint: Path, text: Path) -> None:
    assert "ondevice scan DOC QUESTION" in ask(checkpoint, text, "List all lights.").output
    assert "ondevice scan" not in ask(checkpoint, text, "When?").output


def test_several_questions_share_one_reading(checkpoint: Path, text: Path) -> None:
    done = ask(checkpoint, text, "When?", "Who?", "--json")
    report = last_json(done)
    assert set(report) == {"answers", *REPORT_KEYS}
    assert [turn["question"] for turn in report["turns"]] == ["When?", "Who?"]
    assert report["answers"] == [turn["text"] for turn in report["turns"]]
    assert report["config"]["pot"]["catalyst"] == "general"
    assert report["ledger"]["tokens_read"] == 780
    assert done.stderr.count("Read 780 tokens") == 1


@pytest.mark.parametrize(("capacity", "tier", "is_again"), [(400, 0, False), (400, "1MB", True), (2000, 0, True)])
def test_now_a_search_answers_before_the_reading_which_answers_again(
    capacity: int, tier: int | str, is_again: bool, checkpoint: Path, text: Path
) -> None:
    pot = [
        "--model",
        checkpoint,
        *POT,
        "--capacity",
        capacity,
        "--host-tier",
        tier,
        "--max-new-tokens",
        "6",
        "--no-chat",
    ]
    questions = ["Who lights the lamp?", "Summarise it."]
    done = run("ask", text, *questions, "--now", "--passages", "200", "--json", *pot)
    assert done.exit_code == 0, done.output
    said = " ".join(done.stderr.split())
    assert said.index("From a search of the whole text, after reading 0 of 780 tokens.") < said.index("Read 780 tokens")
    assert said.count("From a search") == 1, "a summary waits for the reading"
    compared = ("Confirmed by reading all." in said) + ("In place of the answer before all was read: “" in said)
    assert compared == is_again, "the same passages confirm nothing, and are not read twice"
    report = last_json(done)
    assert (report["turns"][0]["num_revived"] == 0) == (capacity == 2000), "all of a short text is in the pot"
    assert [turn["question"] for turn in report["turns"]] == questions
    early, timings = report["turns"][0]["seconds"], report["timings"]
    assert timings["ingest_seconds"] < sum(timings["stage_seconds"].values()) - early / 2, "answers are no reading"


def test_an_answer_names_where_it_looked_unless_told_not_to(checkpoint: Path, text: Path) -> None:
    done = ask(checkpoint, text, "When?", "--sources", "2", "--json")
    sources = last_json(done)["turns"][0]["sources"]
    assert 1 <= len(sources) <= 2
    assert all(source["text"] in TEXT for source in sources)
    assert "Where the answer looked more than any text would; attention is no proof:" in done.stderr
    assert f"1. part {sources[0]['page']} (" in done.stderr
    without = ask(checkpoint, text, "When?", "--sources", "0", "--json")
    assert last_json(without)["turns"][0]["sources"] == []
    assert "Where the answer looked" not in without.stderr
    assert ask(checkpoint, text, "When?", "--sources", "-1").exit_code != 0


def test_nothing_is_read_for_what_the_text_itself_answers(checkpoint: Path, tmp_path: Path) -> None:
    text = tmp_path / "lease.txt"
    text.write_text("Rent is due on the third of the month.\n\nThe deposit of 300 euros is due on signing.\n")
    only = ["Quote the sentence about the deposit"]
    done = run("ask", text, *only, "--json", "--passages", "200", "--model", checkpoint, *POT, "--no-chat")
    assert done.exit_code == 0, done.output
    report = last_json(done)
    assert report["answer"] == "\u201cThe deposit of 300 euros is due on signing.\u201d"
    assert (report["turns"][0]["stop_reason"], report["ledger"]["tokens_read"]) == ("quoted", 0)
    assert "looked" not in done.stderr
    done = run("ask", text, *only, "Who?", "--json", "--passages", "200", "--model", checkpoint, *POT, "--no-chat")
    assert last_json(done)["ledger"]["tokens_read"] > 0


def test_a_question_knows_those_before_it_unless_told_not_to(checkpoint: Path, text: Path) -> None:
    turns = last_json(ask(checkpoint, text, "When?", "Who?", "--json"))["turns"]
    assert [(turn["num_remembered"], turn["num_forgotten"]) for turn in turns] == [(0, 0), (1, 0)]
    long = f"{'why ' * 25}?"
    crowded = ask(checkpoint, text, long, long, long, "Who?", "--json")
    num_forgotten = last_json(crowded)["turns"][-1]["num_forgotten"]
    assert num_forgotten in (1, 2, 3)
    assert f"{num_forgotten} left out for lack of room" in crowded.stderr
    assert "Raise --reserve" in crowded.stderr
    turns = last_json(ask(checkpoint, text, "When?", "Who?", "--no-remember", "--json"))["turns"]
    assert [turn["num_remembered"] for turn in turns] == [0, 0]


def test_an_empty_answer_is_a_failure(checkpoint: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Session.ask

    def ends_at_once(*arguments: Any, **options: Any) -> Iterator[Event]:
        for event in asked(*arguments, **options):
            if isinstance(event, AnswerFinished):
                yield replace(event, text="", stop_reason="end")
            elif not isinstance(event, AnswerToken):
                yield event

    monkeypatch.setattr(Session, "ask", ends_at_once)
    result = ask(checkpoint, text, "When?", "--json")
    assert result.exit_code == 2
    assert last_json(result)["error"]["what"] == "The model gave an empty answer"
    assert "Ask in other words" in result.stderr


def test_standard_input_is_read_as_a_stream(checkpoint: Path, text: Path) -> None:
    streamed = ask(checkpoint, "-", "When?", "--json", stdin=TEXT)
    from_file = ask(checkpoint, text, "When?", "--passages", "0", "--json")
    assert last_json(streamed)["answer"] == last_json(from_file)["answer"]
    assert last_json(streamed)["document"]["name"] == "standard input"


def test_questions_can_be_typed_until_the_user_leaves(checkpoint: Path, text: Path) -> None:
    done = ask(checkpoint, text, "--interactive", "--json", stdin="When?\n\nWho?\nquit\nnever asked\n")
    assert [turn["question"] for turn in last_json(done)["turns"]] == ["When?", "Who?"]


def test_a_typed_question_that_fails_does_not_end_the_conversation(checkpoint: Path, text: Path) -> None:
    done = ask(checkpoint, text, "-i", "--json", stdin=f"{'long ' * 200}\nWho?\n")
    assert done.exit_code == 0
    assert "Shorten the question" in done.stderr
    assert last_json(done)["turns"][0]["question"] == "Who?"


def test_a_saved_pot_answers_as_the_session_that_saved_it(checkpoint: Path, text: Path, tmp_path: Path) -> None:
    pot = tmp_path / "lamp.pot"
    first = ask(checkpoint, text, "When?", "--save", pot, "--json")
    assert first.exit_code == 0, first.output
    text.unlink()
    again = run("ask", pot, "When?", "--max-new-tokens", "6", "--json")
    assert again.exit_code == 0, again.output
    assert last_json(again)["answer"] == last_json(first)["answer"]
    settled = last_json(first)["config"]["pot"] | {"slot_shares": "even"}  # beside a host tier
    assert last_json(again)["config"]["pot"] == settled
    assert last_json(first)["config"]["pot"]["catalyst"] == "general", "a saved pot is for any question"
    assert last_json(again)["timings"]["ingest_seconds"] == 0.0
    assert "780 tokens, none read again" in again.stderr


def test_a_saved_pot_does_not_send_for_the_model_it_names(
    checkpoint: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent_for: list[str] = []

    def fetch(source: HubRepository, report: object) -> Path:
        sent_for.append(source.repo)
        return checkpoint

    pot, other = tmp_path / "lamp.pot", tmp_path / "other.pot"
    ask(checkpoint, text, "--save", pot)
    saved = SavedPot(pot)
    saved.header["config"]["model"] = "attacker/model"
    write_summed(other, saved.tensors, saved.header)
    monkeypatch.setattr("ondevice.model.loading.hub.fetch", fetch)
    refused = run("ask", other, "When?", "--json")
    assert refused.exit_code == 2
    error = last_json(refused)["error"]
    assert (error["code"], error["where"]) == ("model", "attacker/model")
    assert "--model" in error["fix"]
    assert not sent_for
    assert run("ask", other, "When?", "--model", "attacker/model").exit_code == 0
    assert sent_for == ["attacker/model"], "the user's own word counts"
    saved.header["config"]["model"] = "smollm2"
    write_summed(other, saved.tensors, saved.header)
    monkeypatch.setattr("ondevice.model.loading.model_file.cached_file", lambda row: None)
    refused = run("ask", other, "When?", "--json")
    assert "ondevice models fetch smollm2-135m" in last_json(refused)["error"]["fix"]


def test_a_saved_pot_is_asked_as_the_options_say_now(checkpoint: Path, text: Path, tmp_path: Path) -> None:
    pot = tmp_path / "lamp.pot"
    assert ask(checkpoint, text, "--seed", "2", "--save", pot).exit_code == 0
    asked = run("ask", pot, "When?", "--max-new-tokens", "6", "--seed", "3", "--art", "--json")
    config = last_json(asked)["config"]
    assert (config["seed"], config["art"]["enabled"]) == (3, True)


def test_saving_alone_needs_no_question(checkpoint: Path, text: Path, tmp_path: Path) -> None:
    assert ask(checkpoint, text, "--save", tmp_path / "a.pot").exit_code == 0
    assert (tmp_path / "a.pot").is_file()
    wrong = ask(checkpoint, text, "--save", tmp_path / "a.bin")
    assert wrong.exit_code == 2
    assert "a.pot" in wrong.stderr


# -- failures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ask", "nowhere.txt", "When?"], "document", "nowhere.txt"),
        (["ask", "nowhere.txt"], "config", "There is no question"),
        (["ask", "nowhere.txt", " "], "config", "There is no question"),
        (["ask", "a.txt", "When?", "--capacity", "99", "--keep", "98"], "config", "--keep 98"),
        (["ask", "-", "When?", "--password-stdin"], "config", "needs a file"),
        (["ask", "nowhere.pot", "When?"], "pot", "There is no such file"),
        (["eval", "passkey", "--lengths", "many"], "config", "--lengths is 'many'"),
        (["eval", "passkey", "--model", "no such model!"], "model", "no such model"),
    ],
)
def test_a_failure_is_a_sentence_and_exit_status_2(arguments: list[str], code: str, words: str) -> None:
    failed = run(*arguments, "--json")
    assert failed.exit_code == 2
    assert words in failed.stderr
    assert "what to do:" in failed.stderr
    assert "Traceback" not in failed.output
    error = last_json(failed)["error"]
    assert error["code"] == code
    assert set(error) == {"code", "what", "where", "fix"}


def test_help_fits_a_screen_and_has_the_rest_behind_another_option() -> None:
    wide = {"env": {"COLUMNS": "80", "TERMINAL_WIDTH": "80"}}
    short, whole = (CliRunner().invoke(app, ["ask", flag], **wide).output for flag in ("--help", "--help-all"))
    assert len(short.splitlines()) <= 40
    assert "--help-all" in short
    assert "--preset" in short
    missing = [flag for flag in flags("ask") if flag.startswith("--") and flag not in whole]
    assert not missing
    assert len(SETTINGS) + 1 <= 34, "options that every command shares"


@pytest.mark.timeout(60)
def test_a_pipe_as_a_document_says_how_its_text_gets_in(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    os.mkfifo(tmp_path / "a.pot")
    read_end, write_end = os.pipe()  # what a shell names where it is given <(COMMAND)
    try:
        for name in (str(tmp_path / "pipe.txt"), f"/dev/fd/{read_end}"):
            error = last_json(run("ask", name, "When?", "--json"))["error"]
            assert (error["where"], error["code"]) == (name, "document")
            assert "COMMAND | ondevice ask - QUESTION" in error["fix"]
    finally:
        os.close(read_end)
        os.close(write_end)
    assert last_json(run("ask", tmp_path / "a.pot", "When?", "--json"))["error"]["code"] == "pot"


def test_settings_that_cannot_work_are_named_by_their_options(text: Path) -> None:
    failed = run("ask", text, "When?", "--capacity", "2048", "--keep", "5000", "--json")
    assert failed.exit_code == 2
    error = last_json(failed)["error"]
    assert error["what"] == "--keep 5000 and --reserve 256 leave no room to read in --capacity 2048"
    assert error["fix"] == "Raise --capacity, or lower --keep or --reserve."
    assert error["what"] in failed.stderr
    assert error["fix"] in failed.stderr


def test_without_json_a_failure_leaves_standard_output_empty() -> None:
    assert run("ask", "nowhere.txt", "When?").stdout == ""


def test_markup_in_a_file_name_is_shown_as_it_is(tmp_path: Path) -> None:
    assert "[red]x[/red].txt" in run("ask", tmp_path / "[red]x[" / "red].txt", "When?").stderr.replace("\n", "")


def test_a_password_is_never_an_argument_and_can_be_piped_in(checkpoint: Path, tmp_path: Path) -> None:
    pdf = encrypt(make_pdf(tmp_path / "a.pdf", show("The lamp is lit at dusk.")), tmp_path / "b.pdf", "s3cret")
    needed = ask(checkpoint, pdf, "When?", "--json")
    assert needed.exit_code == 2
    assert last_json(needed)["error"]["code"] == "password-required"
    assert "--password-stdin" in needed.stderr
    wrong = ask(checkpoint, pdf, "When?", "--password-stdin", "--json", stdin="other\n")
    assert last_json(wrong)["error"]["code"] == "password-wrong"
    right = ask(checkpoint, pdf, "When?", "--password-stdin", "--json", stdin="s3cret\n")
    assert right.exit_code == 0, right.output
    assert "s3cret" not in right.output


def test_a_terminal_is_asked_for_the_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pdf = encrypt(make_pdf(tmp_path / "a.pdf", show("The lamp is lit.")), tmp_path / "b.pdf", "s3cret")
    typed = iter(["wrong", "s3cret"])
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(opening.getpass, "getpass", lambda prompt: next(typed))
    with ProgressDisplay(Console(file=io.StringIO())) as display:
        document = opening.open_document(str(pdf), False, display)
    assert [page.text.strip() for page in document.pages] == ["The lamp is lit."]
    assert next(typed, None) is None


def test_pages_without_text_are_named_with_their_reason(checkpoint: Path, tmp_path: Path) -> None:
    pdf = make_pdf(tmp_path / "a.pdf", show("The lamp is lit at dusk."), IMAGE_CONTENT, IMAGE_CONTENT)
    done = ask(checkpoint, pdf, "When?", "--json")
    assert "Pages 2–3: each is an image without a text layer.\n" in done.stderr  # noqa: RUF001
    notes = last_json(done)["ledger"]["pages_without_text"]
    assert [note["page"] for note in notes] == [2, 3]
    assert all(note["code"] and note["message"] for note in notes)


def test_a_document_that_is_too_large_is_an_error_with_its_code(checkpoint: Path, tmp_path: Path) -> None:
    book = make_repeating_epub(tmp_path / "a.epub", "<p>text</p>", num_places=100_001, num_chapters=50)
    done = ask(checkpoint, book, "When?", "--json")
    assert done.exit_code == 2
    assert "The book names 100,001 chapters; the limit is 100,000." in done.stderr
    assert last_json(done)["error"]["code"] == "document-too-large"


# -- Ctrl-C ------------------------------------------------------------------------------------------


def test_ctrl_c_while_reading_says_what_was_read(checkpoint: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apply = ProgressDisplay.apply

    def interrupted(self: ProgressDisplay, event: object) -> None:
        apply(self, event)
        if isinstance(event, TokensRead) and event.num_read > 200:
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressDisplay, "apply", interrupted)
    stopped = ask(checkpoint, text, "When?", "--json")
    assert stopped.exit_code == 130
    error = last_json(stopped)["error"]
    assert error["code"] == "interrupted"
    assert "of 780 tokens were read, up to part 1." in error["what"]
    assert "Traceback" not in stopped.output


def test_ctrl_c_ends_an_answer_and_leaves_the_pot_as_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pot = PotConfig(capacity=256, num_kept=96, reserve=80, step_size=64)
    engine = Engine(
        tiny_loaded(),
        EngineConfig(pot=pot, generation=plain_generation(max_new_tokens=500)),
    )
    session = engine.session()
    for _ in session.read(Document("d", "txt", "part", (Page(1, TEXT),), 1, len(TEXT))):
        pass
    before = [buffer.clone() for buffer in session.context.pot.buffers()]
    handler = signal.getsignal(signal.SIGINT)
    with ProgressDisplay(Console(file=io.StringIO())) as display:
        apply = display.telemetry.apply

        def interrupting(event: object) -> None:
            apply(event)
            if isinstance(event, AnswerToken) and event.index == 2:
                signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(type(display.telemetry), "apply", lambda self, event: interrupting(event))
        finished = conversation.answer(session, "When?", display)
    assert finished.stop_reason == "cancelled"
    assert finished.num_tokens == 3
    assert all(torch.equal(a, b) for a, b in zip(before, session.context.pot.buffers(), strict=True))
    assert signal.getsignal(signal.SIGINT) is handler
    assert "The answer was stopped." in capsys.readouterr().err


@pytest.mark.slow
def test_a_real_signal_ends_the_process_with_130(checkpoint: Path) -> None:
    command = [sys.executable, "-c", "from ondevice.cli import app; app()", "ask", "-", "When?"]
    process = subprocess.Popen(
        [*command, "--model", str(checkpoint), *POT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A process started in the background ignores the signal, and so does what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(60 * TEXT.encode())  # and the pipe stays open: the reader waits for more
    process.stdin.flush()
    said = b""
    while b"Reading:" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130, rest
    assert b"Stopped: " in rest
    assert b"Traceback" not in rest


# -- options -----------------------------------------------------------------------------------------

SHARED = {
    "--model", "--capacity", "--keep", "--reserve", "--catalyst", "--catalyst-text", "--novelty", "--policy",
    "--context-reset", "--step", "--device", "--dtype", "--quantization", "--seed", "--slot-shares", "--preset",
}  # fmt: skip
ANSWERING = {"--max-new-tokens", "--temperature", "--top-p", "--no-chat"}


def flags(*path: str) -> set[str]:
    command = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    return {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize(
    "path",
    [
        *[("app",), ("ask",), ("calibrate",)],
        *[("eval", name) for name in ("passkey", "recall", "slim-curve", "art-curve", "specprefill", "speculator")],
        *[("bench", name) for name in ("ingest", "decode", "equip", "slim", "tier", "art", "specprefill")],
    ],
)
def test_every_command_has_the_same_pot_options(path: tuple[str, ...]) -> None:
    assert flags(*path) >= SHARED
    assert (flags(*path) >= ANSWERING) == (path in {("app",), ("ask",)})


def test_options_left_alone_are_the_defaults_of_the_settings() -> None:
    assert PotOptions().config(AnswerOptions().config()) == EngineConfig()


def test_every_option_reaches_its_setting() -> None:
    options = PotOptions(
        model="m", device="cpu", dtype="bfloat16", quantization="4bit", seed=3, memory="2GB", capacity=512, keep=128,
        reserve=32, policy="foresight", catalyst="text", catalyst_text="Look.", novelty=0.25, slot_shares="by-head",
        context_reset="late", step=100, kv_dtype="int8", slim="3:50%", host_tier="1.5GB", bring_back=512, art=True,
        spec_keep=0.5, speculator="s",
    )  # fmt: skip
    pot = PotConfig(
        512, 128, 32, policy="foresight", catalyst="text", catalyst_text="Look.", novelty=0.25,
        slot_shares="by-head", context_reset="late", step_size=100, kv_dtype="int8",
    )  # fmt: skip
    answers = AnswerOptions(max_new_tokens=9, temperature=0.5, top_p=0.9, chat=False, remember=False)
    generation = GenerationConfig(9, 0.5, 0.9, False)
    tier = TierConfig(1_500_000_000, max_tokens=512)
    more = SlimConfig("3:50%"), tier, ArtConfig(True), SpecConfig(0.5, "s")
    expected = EngineConfig("m", "cpu", "bfloat16", "4bit", 3, 2 * 10**9, pot, *more, generation)
    assert options.config(answers.config()) == expected


@pytest.mark.parametrize(
    ("size", "num_bytes"), [("0", 0), ("500mb", 5 * 10**8), ("2 GB", 2 * 10**9), ("1.5KB", 1500), ("7", 7)]
)
def test_sizes_are_read_as_they_are_written(size: str, num_bytes: int) -> None:
    assert PotOptions(host_tier=size).config().tier.budget_bytes == num_bytes


@pytest.mark.parametrize("size", ["", "much", "-1GB", "1TB", "1 2GB"])
def test_a_size_that_is_none_is_refused(size: str) -> None:
    with pytest.raises(ConfigError, match=r"tier\.budget_bytes") as refused:
        PotOptions(host_tier=size).config()
    assert "--host-tier" in refused.value.text(option_name)


def test_the_app_takes_no_half_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_AUTH", "user-only")
    refused = run("app")
    assert refused.exit_code == 2
    assert "USER:PASSWORD" in refused.stderr


def test_the_app_is_started_with_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("ondevice.ui.launch.launch", lambda config, **rest: calls.append((config, rest)))
    monkeypatch.setenv("ONDEVICE_AUTH", "me:a:b")
    port = free_port("127.0.0.1")
    options = ("--port", str(port), "--capacity", "512", "--keep", "64", "--allowed-hosts", "a,b", "--no-api")
    assert run("app", *options).exit_code == 0
    ((config, rest),) = calls
    assert config.pot.capacity == 512
    assert callable(rest.pop("handover")), "it gives back the port on which the first page has answered"
    assert rest == {
        "host": "127.0.0.1", "port": port, "listen": False, "auth": ("me", "a:b"), "allowed_hosts": ("a", "b"),
        "inbrowser": False, "api": False, "reads_at_once": True, "keeps": True,
    }  # fmt: skip


# -- what is shown -----------------------------------------------------------------------------------


def shown(*events: object, terminal: bool = False) -> str:
    file = io.StringIO()
    with ProgressDisplay(Console(file=file, force_terminal=terminal, width=120)) as display:
        for event in events:
            display.apply(event)
    return file.getvalue()


def passed(num_read: int, num_total: int | None) -> TokensRead:
    return TokensRead(num_read, num_total, 100, 1, 0.5, (num_read,), 256)


def test_a_log_gets_counts_speed_and_time_left() -> None:
    assert shown(passed(300, 1000)) == "Reading: 300 of 1,000 tokens (30 %), 200 tokens/s, 3.5 s left\n"


def test_of_an_open_stream_no_share_and_no_end_is_invented() -> None:
    assert shown(passed(300, None)) == "Reading: 300 tokens so far, 200 tokens/s\n"
    assert shown(PagesExtracted(3, None)) == "Extracting: 3 pages so far\n"


def test_a_log_is_not_flooded_and_a_new_stage_is_told_at_once() -> None:
    lines = shown(*(PagesExtracted(i, 9) for i in range(9)), *(passed(i, 99) for i in range(9))).splitlines()
    assert [line.split(":")[0] for line in lines] == ["Extracting", "Reading"]


def test_a_terminal_gets_a_bar_that_vanishes() -> None:
    text = shown(passed(300, 1000), terminal=True)
    assert "300 of 1,000 tokens" in text
    assert text.endswith("\x1b[2K")


def test_an_answer_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2J\x07b\r\n\tc é \u202e") == "a[2Jb\n\tc é "


def test_what_is_said_and_what_is_json_cannot_either(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\x1b]0;b\x07\x9b2Jc")
    print_json({"name": "a\x1b[2J\x9b2Jé"})
    captured = capsys.readouterr()
    assert not set("\x1b\x07\x9b") & set(captured.err + captured.out)
    assert json.loads(captured.out) == {"name": "a\x1b[2J\x9b2Jé"}


# -- doctor ------------------------------------------------------------------------------------------


def test_the_doctor_names_what_is_missing_and_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path))
    monkeypatch.setattr(
        "ondevice.cli.examine.installed_version", lambda name: None if name == "bitsandbytes" else "1.0"
    )
    done = run("doctor", "--json")
    assert done.exit_code == 0, done.output
    findings = {finding["topic"]: finding for finding in last_json(done)["findings"]}
    assert findings["models"]["state"] == "missing"
    assert findings["models"]["fix"] == "ondevice models fetch"
    assert findings["bitsandbytes"]["state"] == "missing"
    assert findings["gradio"]["state"] == "good"
    assert findings["model of this machine"]["fix"].startswith("ondevice models fetch")
    assert list(tmp_path.iterdir()) == [], "the doctor changes nothing"


def test_the_script_in_the_checkout_is_the_command() -> None:
    """Its options are those of `ondevice app`; a password must not be empty in either."""
    script = [sys.executable, str(ROOT / "app.py")]
    variables = {name: value for name, value in os.environ.items() if name != "ONDEVICE_AUTH"}
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120}
    helped = subprocess.run([*script, "--help"], env=variables, **options)
    assert helped.returncode == 0, helped.stderr
    assert "--memory" in helped.stdout
    for arguments, more in ((["--auth", "me"], {}), ([], {"ONDEVICE_AUTH": "me:"})):
        refused = subprocess.run([*script, *arguments], env=variables | more, **options)
        assert refused.returncode == 2, refused.stderr
        assert "needs a user name and a password" in refused.stderr


def test_the_version_is_that_of_the_package() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout == f"ondevice {importlib.metadata.version('ondevice')}\n"


def test_where_the_memory_runs_out_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000000000 bytes.")

    monkeypatch.setattr("ondevice.session.engine.Engine.load", failing)
    result = CliRunner().invoke(app, ["ask", "--json", __file__, "What?"])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["code"] == "memory"
    assert "The memory ran out" in result.stderr
