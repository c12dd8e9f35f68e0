"""Thresholds of run-time termination for a model, a head at a time: as loose as a given error of its output allows.

Heads differ: one that looks everywhere has converged when its output stands still, one that searches for a single
token may find it in the last block. One threshold for all is either too loose for these or of no use for those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ondevice.config import ArtConfig, EngineConfig, GenerationConfig
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.kernels.termination import Termination
from ondevice.model.loading.progress import Progress, silent
from ondevice.model.tokenizer import Tokenizer
from ondevice.planning.recorded_queries import Reading, evenly, read_again, read_and_record
from ondevice.session.engine import Engine

TAUS = (0.0, *(round(10 ** (exponent / 4), 6) for exponent in range(-14, 0)))  # never; 3e-4 to 0.6
PATIENCE = 2
# A relative tau bounds the turn as well, to about half its square: the direction has nothing to add.
PHI = 1.0
NUM_STEPS = 96
QUANTILE = 0.99


@dataclass(frozen=True, slots=True)
class Calibration:
    """The rules of all layers, and what they do to the steps they were chosen on."""

    rules: tuple[Termination, ...]
    reading: Reading


def calibration_config(config: EngineConfig) -> EngineConfig:
    """The settings with which a text is read to choose thresholds: those given, but without a chat template.

    As with `--art`, keys and values of no given type have that of the model.
    """
    if config.pot.kv_dtype == "auto":
        config = replace(config, pot=replace(config.pot, kv_dtype="model"))
    return evenly(replace(config, generation=GenerationConfig(max_new_tokens=1, chat=False, num_sources=0)))


def beginning(document: Document, num_tokens: int, tokenizer: Tokenizer) -> Document:
    """The first `num_tokens` tokens of a document; a cut inside a word may shift the number by one.

    Raises:
        ConfigError: it is shorter.
    """
    pages: list[Page] = []
    missing = num_tokens
    for page in document.pages:
        _, spans = tokenizer.encode(page.text)
        if len(spans) >= missing:
            pages.append(replace(page, text=page.text[: spans[missing - 1, 1]]))
            return replace(document, pages=tuple(pages), num_pages=len(pages), size_bytes=None)
        pages.append(page)
        missing -= len(spans)
    raise ConfigError(
        f"The document has {num_tokens - missing:,} tokens, fewer than {num_tokens:,}",
        where=document.name,
        fix="Ask for fewer, or name a longer document.",
    )


def calibrate(engine: Engine, document: Document, error: float, report: Progress = silent) -> Calibration:
    """Read all but the end of a document, then attend from its last tokens with one threshold after the other.

    Args:
        error: relative error of a head's output that the quantile `QUANTILE` over tokens may reach.

    Raises:
        ConfigError: the document is too short, or a stream.
    """
    session = engine.session()
    steps = read_and_record(session, document, NUM_STEPS, report)
    pot = engine.config.pot
    num_read = session.context.num_read
    if pot.method.distills and num_read <= pot.capacity:
        raise ConfigError(
            f"The text has {num_read + NUM_STEPS:,} tokens, too few for a pot of {pot.capacity:,} slots",
            where=document.name,
            fix="Name a longer file, or lower {pot.capacity}.",
        )
    layers = torch.tensor([step.layer for step in steps])
    num_layers, num_kv_heads = len(engine.decoder.parts.layers), engine.decoder.parts.num_kv_heads
    art, errors = engine.config.art, []
    for done, tau in enumerate(TAUS):
        report("Trying thresholds", done / len(TAUS))
        reading = read_again(session, steps, art, (_rule(art, tau),) * num_layers)
        errors.append(_by_head(reading.errors, layers, num_kv_heads))
    taus = torch.tensor(TAUS)[_loosest(torch.stack(errors) <= error)]
    rules = tuple(_rule(art, tuple(layer.tolist())) for layer in taus)
    return Calibration(rules, read_again(session, steps, art, rules))


def _rule(art: ArtConfig, tau: float | tuple[float, ...]) -> Termination:
    patience, phi = art.patience or PATIENCE, PHI if art.phi is None else art.phi
    return Termination(tau=tau, phi=phi, patience=patience, is_relative=True)


def _by_head(errors: Tensor, layers: Tensor, num_kv_heads: int) -> Tensor:
    """The quantile of errors (steps, heads) for each KV head of each layer, (layers, kv_heads).

    Of the query heads that share a KV head the worst counts.
    """
    worst = errors.unflatten(1, (num_kv_heads, -1)).amax(dim=-1)
    num_layers = int(layers.max()) + 1
    return torch.stack([worst[layers == layer].quantile(QUANTILE, dim=0) for layer in range(num_layers)])


def _loosest(is_within: Tensor) -> Tensor:
    """The last threshold before the first that fails, (layers, kv_heads) of (thresholds, ...)."""
    return (is_within.int().cumprod(dim=0).sum(dim=0) - 1).clamp(min=0)


def summary_of(calibration: Calibration) -> dict[str, float]:
    """Effect of the rules on the text that they were chosen on."""
    return {
        "share_of_blocks_read": float(calibration.reading.shares.mean()),
        "output_error_p50": float(calibration.reading.errors.median()),
        "output_error_p99": float(calibration.reading.errors.flatten().quantile(0.99)),
    }
