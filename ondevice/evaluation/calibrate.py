"""Thresholds of run-time termination for a model: those that read least at a given error of the attention output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from ondevice.decode_steps import read_again, record
from ondevice.documents import Document
from ondevice.engine import Engine
from ondevice.errors import ConfigError
from ondevice.kernels.decode_attention import Termination
from ondevice.results import Row, row

PATIENCES = (1, 2, 3, 5)
TAUS = tuple(10 ** (exponent / 4) for exponent in range(-14, -4))  # 3e-4 to 0.06, careful first
NUM_STEPS = 32
QUANTILE = 0.99


@dataclass(frozen=True, slots=True)
class Trial:
    """One rule: the quantile of the relative error over heads, layers and tokens, and the share of blocks read."""

    termination: Termination
    error: float
    share_read: float


def run_calibration(engine: Engine, document: Document) -> Iterator[Trial]:
    """Read all but the end of a document, then attend from its last tokens with one rule after the other.

    Raises:
        ConfigError: the document is too short, or a stream.
    """
    session = engine.session()
    for _ in session.open(document):
        pass
    total = session.opened_tokens().num_total
    if total is None or total <= session.used_pot().shape.capacity + NUM_STEPS:
        raise ConfigError(
            f"The text has {total or 0:,} tokens, and the pot {session.used_pot().shape.capacity:,} slots",
            where=document.name,
            fix="Name a longer file, or lower --capacity.",
        )
    session.spans = [(0, total - NUM_STEPS)]
    for _ in session.resume():
        pass
    steps = record(session, session.opened_tokens().ids(total - NUM_STEPS, total).tolist())
    art = replace(engine.config.art, enabled=True)
    phi = Termination().phi if art.phi is None else art.phi
    for patience, tau in product(PATIENCES, TAUS):
        rule = Termination(tau=tau, phi=phi, patience=patience, is_relative=True)
        reading = read_again(session, steps, art, rule)
        yield Trial(rule, float(reading.errors.flatten().quantile(QUANTILE)), reading.share_read)


def best(trials: list[Trial], error: float) -> Trial:
    """The trial that reads least with an error up to `error`.

    Raises:
        ConfigError: there is none.
    """
    within = [trial for trial in trials if trial.error <= error]
    if not within:
        raise ConfigError(
            f"Every rule that was tried is further off than --error {error:g}", fix="Allow a larger error."
        )
    return min(within, key=lambda trial: trial.share_read)


def rows_of(trials: list[Trial]) -> tuple[Row, ...]:
    """Two rows for each rule."""
    rows = []
    for trial in trials:
        rule = trial.termination
        case = {"patience": rule.patience, "tau": round(rule.tau, 6)}
        rows.append(row("ART", case, "output error p99", "", [trial.error]))
        rows.append(row("ART", case, "blocks read", "share", [trial.share_read]))
    return tuple(rows)


def summary_of(chosen: Trial) -> dict[str, float]:
    """The rule that was stored."""
    rule = chosen.termination
    return {
        "tau": rule.tau,
        "patience": rule.patience,
        "output_error_p99": chosen.error,
        "share_read": chosen.share_read,
    }
