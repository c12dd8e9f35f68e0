"""`ondevice eval` and `ondevice calibrate`: each trial is shown as it ends; passkey keeps what is done when stopped."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ondevice.cli.options import AsJson, OutFile, PotOptions, numbers
from ondevice.cli.progress import ProgressDisplay
from ondevice.cli.running import begin, finish, load_engine
from ondevice.cli.terminal import err, out, say, told
from ondevice.errors import ConfigError

if TYPE_CHECKING:
    from ondevice.documents import Document
    from ondevice.engine import Engine
    from ondevice.evaluation.passkey import Case
    from ondevice.evaluation.run_passkey import Trial
    from ondevice.results import Result

_SCHEDULES = (
    "off 15:50%,22:25% auto 10:50% 8:50%,16:25% 6:50%,12:25% 4:50%,8:25% 2:50%,4:25% 10:25%,20:12.5% 6:25%,12:12.5%"
)
_TAUS = "1e-4,3e-4,1e-3,2e-3,3e-3,5e-3,1e-2,2e-2,5e-2"
_LAYERS = "4,15,30"
Source = Annotated[Path, typer.Option(help="The document to read and recall.")]
Tokens = Annotated[int | None, typer.Option(help="Read only its beginning.", show_default="all of it")]
Beginning = Annotated[int | None, typer.Option(help="Read only the beginning of the text.")]
PasskeyLength = Annotated[int, typer.Option(help="Tokens of a passkey prompt.")]
Spans = Annotated[int, typer.Option(help="Places that are recalled.", min=1)]


def passkey(
    options: PotOptions,
    lengths: Annotated[str, typer.Option(help="Prompt lengths in tokens.")] = "4096,16384",
    depths: Annotated[str, typer.Option(help="Where the key is hidden, as shares of the text.")] = "0.1,0.5,0.9",
    trials: Annotated[int, typer.Option(help="Trials for each length and depth.")] = 1,
    late_question: Annotated[
        bool,
        typer.Option(
            "--late-question/--known-question",
            help="Whether the question comes only after reading, or is the catalyst that the text is read with.",
        ),
    ] = True,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Write the results here after each trial; go on from there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Hide a number in a long text and ask for it."""
    with told(as_json):
        from ondevice.evaluation.passkey import QUESTION, plan
        from ondevice.evaluation.run_passkey import passkey_config

        cases = plan(numbers("--lengths", lengths, int), numbers("--depths", depths, float), trials)
        config = passkey_config(options.config(question="" if late_question else QUESTION))
        with ProgressDisplay(err()) as display:
            result = _run(load_engine(config, display), cases, out_file, display)
        finish(result, out_file, as_json)


def recall(
    options: PotOptions,
    text: Source,
    tokens: Tokens = None,
    spans: Spans = 12,
    out_file: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """Continue a document from inside it, after reading all of it, beside a full cache and no document at all."""
    with told(as_json), ProgressDisplay(err()) as display:
        from ondevice.evaluation.recall import Recall, rows_of, run_recall, summary_of

        if options.policy == "full":
            raise ConfigError("--policy full is one of the contenders already", fix="Choose a pot.")
        engine, document = _engine_and_text(options, text, tokens, display)
        result, done, num_tokens = begin(engine), [], 0
        for item in run_recall(engine, document, spans):
            if not isinstance(item, Recall):
                display.apply(item)
                num_tokens = max(num_tokens, getattr(item, "num_read", 0))
                continue
            display.clear()
            done.append(item)
            line = f"token {item.start:,}: no document {item.none:.2f}, full KV {item.full:.2f}, pot {item.method:.2f}"
            out().print(line, soft_wrap=True)
        result = replace(result, rows=rows_of(done, num_tokens, engine.config), summary=summary_of(done))
        finish(result, out_file, as_json)


def sources(
    options: PotOptions,
    text: Annotated[Path, typer.Option(help="The text that sentences are hidden in.")],
    trials: Annotated[int, typer.Option(help="Sentences to hide, one at a time.", min=1)] = 24,
    out_file: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """Hide a sentence in a text and ask for it: is it among the passages that the answer is said to have looked at?"""
    with told(as_json), ProgressDisplay(err()) as display:
        from ondevice.cli.opening import open_document
        from ondevice.evaluation.sources import Trial, rows_of, run_sources, sources_config, summary_of

        engine = load_engine(sources_config(options.config()), display)
        whole = "\n\n".join(page.text for page in open_document(str(text), False, display).pages)
        result, done = begin(engine), []
        for item in run_sources(engine, whole, trials):
            if not isinstance(item, Trial):
                display.apply(item)
                continue
            display.clear()
            done.append(item)
            ranks = ", ".join(f"{rule} {rank or 'not'}" for rule, rank in item.ranks.items())
            answer = "right" if item.is_right else "wrong"
            out().print(f"depth {item.depth:.2f}, answer {answer}, found: {ranks}", soft_wrap=True)
        finish(replace(result, rows=rows_of(done), summary=summary_of(done)), out_file, as_json)


def slim_curve(
    options: PotOptions,
    text: Source,
    schedules: Annotated[str, typer.Option(help="Pruning schedules as for --slim, with spaces between.")] = _SCHEDULES,
    tokens: Tokens = None,
    spans: Spans = 12,
    out_file: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """How much faster pruning schedules read, and how much of the text they lose: the trade-off as a curve."""
    with told(as_json), ProgressDisplay(err()) as display:
        from ondevice.evaluation.slim_curve import rows_of, run_curve

        engine, document = _engine_and_text(options, text, tokens, display)
        result, points = begin(engine), []
        for point in run_curve(engine, document, schedules.split(), spans):
            points.append(point)
            mean = sum(point.losses) / len(point.losses)
            out().print(
                f"{point.slim.schedule}: {point.speed_ratio:.2f} times as fast, {mean:.2f} nats", soft_wrap=True
            )
        finish(replace(result, rows=rows_of(points, engine.config)), out_file, as_json)


def art_curve(
    options: PotOptions,
    text: Source,
    taus: Annotated[
        str, typer.Option(help="Thresholds, each for all heads, with the patience that is usual without a calibration.")
    ] = _TAUS,
    tokens: Tokens = None,
    spans: Spans = 12,
    out_file: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """How much of the pot rules of run-time termination leave unread, and how much of the text they lose."""
    with told(as_json), ProgressDisplay(err()) as display:
        from ondevice.evaluation.art_curve import rows_of, run_art_curve

        engine, document = _engine_and_text(replace(options, art=True), text, tokens, display)
        result, points = begin(engine), []
        for point in run_art_curve(engine, document, numbers("--taus", taus, float), spans):
            points.append(point)
            mean = sum(point.losses) / len(point.losses)
            out().print(f"{point.name}: {1 - point.share_read:.0%} not read, {mean:.3f} nats", soft_wrap=True)
        finish(replace(result, rows=rows_of(points, engine.config)), out_file, as_json)


def specprefill(
    options: PotOptions,
    text: Source,
    keeps: Annotated[str, typer.Option(help="Shares of the prompt that are read, in per cent.")] = "10,30,50,70,90",
    length: PasskeyLength = 2048,
    depths: Annotated[
        str, typer.Option(help="Where the key is hidden, as shares of the text.")
    ] = "0.1,0.3,0.5,0.7,0.9",
    trials: Annotated[int, typer.Option(help="Trials for each depth.", min=1)] = 2,
    tokens: Beginning = 2048,
    spans: Spans = 6,
    out_file: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """What SpecPrefill loses at several shares: passkey and recall, in three variants, beside truncation."""
    with told(as_json), ProgressDisplay(err()) as display:
        from ondevice.evaluation.passkey import plan
        from ondevice.evaluation.specprefill import rows_of, run_passkeys, run_recalls, summary_of

        engine, document = _engine_and_text(options, text, tokens, display)
        shares = _shares(keeps)
        cases = plan((length,), numbers("--depths", depths, float), trials)
        result, points = begin(engine), []
        for point in chain(run_passkeys(engine, cases, shares), run_recalls(engine, document, spans, shares)):
            points.append(point)
            out().print(f"{point.contender}, {point.keep} %: {point.task} {point.value:.2f}", soft_wrap=True)
        rows = rows_of(points)
        finish(replace(result, rows=rows, summary=summary_of(rows)), out_file, as_json)


def speculator(
    options: PotOptions,
    text: Source,
    keeps: Annotated[str, typer.Option(help="Shares of the prompt that go on, in per cent.")] = "10,20,30,50",
    layer_counts: Annotated[str, typer.Option(help="Layers of the speculator, where it is the model's own.")] = _LAYERS,
    look_aheads: Annotated[str, typer.Option(help="Tokens that the speculator adds to the prompt.")] = "1,4,8",
    length: PasskeyLength = 2048,
    trials: Annotated[int, typer.Option(help="Passkey prompts for each of five places of the key.", min=1)] = 2,
    tokens: Beginning = 2048,
    spans: Spans = 16,
    out_file: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """What a speculator finds: how much of the place that answers a question it lets through, by its settings."""
    with told(as_json), ProgressDisplay(err()) as display:
        from ondevice.evaluation.passkey import plan
        from ondevice.evaluation.speculator import (
            rows_of,
            run_speculator,
            settings,
            summary_of,
            wanted_passkeys,
            wanted_spans,
        )

        engine, document = _engine_and_text(options, text, tokens, display)
        shares = _shares(keeps)
        cases = plan((length,), (0.1, 0.3, 0.5, 0.7, 0.9), trials)
        wanted = [*wanted_passkeys(engine, cases), *wanted_spans(engine, document, spans)]
        compared = settings(
            engine.config.spec,
            numbers("--layer-counts", layer_counts, int),
            numbers("--look-aheads", look_aheads, int),
        )
        result, finds = begin(engine), []
        for find in run_speculator(engine, wanted, compared, shares):
            finds.append(find)
            out().print(f"{find.setting}, {find.keep} %: {find.task} {find.found:.2f}", soft_wrap=True)
        rows = rows_of(finds)
        finish(replace(result, rows=rows, summary=summary_of(rows)), out_file, as_json)


def calibrate(
    options: PotOptions,
    text: Annotated[Path, typer.Option(help="What to read: a text like those that will be read.")],
    error: Annotated[float, typer.Option(help="Relative error of a head's output, in 99 of 100 tokens.")] = 0.1,
    tokens: Annotated[int | None, typer.Option(help="Read only its beginning.")] = 12288,
    out_file: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """Find for every head the threshold of --art that reads least at a given error, and keep it beside the model."""
    with told(as_json), ProgressDisplay(err()) as display:
        from ondevice.evaluation.calibrate import calibrate as measure
        from ondevice.evaluation.calibrate import rows_of, summary_of
        from ondevice.model.calibration import store

        engine, document = _engine_and_text(options, text, tokens, display)
        result = begin(engine)
        calibration = measure(engine, document, error, display.stage)
        display.clear()
        store(engine.loaded.fingerprint, engine.config.art, engine.config.pot, calibration.rules)
        result = replace(result, rows=rows_of(calibration), summary=summary_of(calibration))
        finish(result, out_file, as_json)
        left = 1 - result.summary["share_of_blocks_read"]
        say(f"--art takes these thresholds from now on; on this text they leave {left:.0%} of the pot unread.")


def _shares(keeps: str) -> tuple[int, ...]:
    shares = numbers("--keeps", keeps, int)
    if not all(0 < share < 100 for share in shares):
        raise ConfigError(f"--keeps is {keeps!r}", fix="Give shares between 1 and 99 per cent.")
    return shares


def _engine_and_text(
    options: PotOptions, text: Path, tokens: int | None, display: ProgressDisplay
) -> tuple[Engine, Document]:
    """What recall, curves and thresholds are measured with: no chat template, and the beginning of a text."""
    from ondevice.bench.source import beginning
    from ondevice.cli.opening import open_document
    from ondevice.evaluation.recall import recall_config

    engine = load_engine(recall_config(options.config()), display)
    document = open_document(str(text), False, display)
    return engine, document if tokens is None else beginning(document, tokens, engine.loaded.tokenizer)


def _run(engine: Engine, cases: tuple[Case, ...], out_file: Path | None, display: ProgressDisplay) -> Result:
    from ondevice.evaluation.run_passkey import Trial, add_trial, run_passkey, still_to_do
    from ondevice.results import write_result

    result = begin(engine, out_file)
    todo = still_to_do(cases, result.rows)
    if len(todo) < len(cases):
        say(f"Going on with {out_file}: {len(cases) - len(todo)} of {len(cases)} trials are done.")
    for item in run_passkey(engine, todo):
        if not isinstance(item, Trial):
            display.apply(item)
            continue
        display.clear()
        result = add_trial(result, item, engine.config)
        if out_file is not None:
            write_result(out_file, result)
        out().print(_line(item, result.summary["accuracy"]), soft_wrap=True)
    return result


def _line(trial: Trial, accuracy: float) -> Text:
    """One trial, shown as soon as it ends: a long run can be watched."""
    mark = ("right", "green") if trial.is_right else ("wrong", "bold red")
    case = trial.case
    return Text.assemble(
        mark,
        f"  {trial.num_tokens:>9,} tokens, depth {case.depth:<4g} trial {case.trial}: key {trial.key}, ",
        f"answer {trial.answer[:40]!r}, {trial.tokens_per_second:,.0f} tokens/s, {accuracy:.0%} right so far",
    )
