"""`ondevice calibrate`: thresholds of `--art` for a model, measured once on a text and kept beside the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ondevice.cli.opening import open_document
from ondevice.cli.options import AsJson, PotOptions
from ondevice.cli.progress import ProgressDisplay, load_engine
from ondevice.cli.terminal import err, errors_shown, out, print_json, say
from ondevice.config import DEFAULT_MODEL, EngineConfig

_CAPACITY = 2048  # of the pot, where none is named
_MODEL = "smollm2-135m"  # where none is named


def calibrate(
    options: PotOptions,
    text: Annotated[Path, typer.Option(help="What to read: a text like those that will be read.")],
    error: Annotated[float, typer.Option(help="Relative error of a head's output, in 99 of 100 tokens.")] = 0.1,
    tokens: Annotated[int, typer.Option(help="Read only its beginning.")] = 12_288,
    as_json: AsJson = False,
) -> None:
    """Find for every head the threshold of --art that reads least at a given error, and keep it beside the model."""
    with errors_shown(as_json), ProgressDisplay(err()) as display:
        from ondevice.decode.calibration import store
        from ondevice.planning import calibrate as thresholds

        engine = load_engine(thresholds.calibration_config(_settings(options)), display)
        document = thresholds.beginning(open_document(str(text), False, display), tokens, engine.loaded.tokenizer)
        found = thresholds.calibrate(engine, document, error, display.stage)
        store(engine.loaded.fingerprint, engine.config.art, engine.config.pot, found.rules)
        display.clear()
        summary = thresholds.summary_of(found)
        for key, value in summary.items():
            out().print(f"{key}: {value:.3g}")
        if as_json:
            taus = [rule.tau for rule in found.rules]
            print_json({"config": engine.config.to_dict(), "thresholds": taus, "summary": summary})
        left = 1 - summary["share_of_blocks_read"]
        say(f"--art takes these thresholds from now on; on this text they leave {left:.0%} of the pot unread.")


def _settings(options: PotOptions) -> EngineConfig:
    """The settings given, without a host tier where none is named, and with a pot of a fixed size."""
    config = options.config()
    tier = config.tier if "host_tier" in options.given else replace(config.tier, budget_bytes=0)
    pot = config.pot.sized(_CAPACITY) if config.pot.is_auto else config.pot
    return replace(config, model=_MODEL if config.model == DEFAULT_MODEL else config.model, pot=pot, tier=tier)
