"""Rules of the features of an answer that go together, decided here alone, and said before a question is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ondevice.config import EngineConfig, SlimConfig, SpecConfig, TierConfig
from ondevice.model.decoder import Decoder
from ondevice.model.families.parts import ModelParts


@dataclass(frozen=True, slots=True)
class Combination:
    """Features that take part in an answer.

    Attributes:
        ends_early: decode attention may end early (ART).
        recalls_host: evicted tokens come back from the host tier.
        names_sources: passages that the answer attended to are named.
        notices: what was asked for and is off, or off at times, and why; a sentence each.
    """

    ends_early: bool
    recalls_host: bool
    names_sources: bool
    notices: tuple[str, ...] = ()


def combine(config: EngineConfig, decoder: Decoder, *, is_stream: bool = False) -> Combination:
    """Combine the features under these settings, with this model, for a file or for a stream whose text is not kept."""
    model = decoder.parts
    wants_art, wants_host = config.art.enabled, config.tier.budget_bytes > 0
    is_windowed = any(layer.sliding_window is not None for layer in model.layers)
    is_on_gpu = model.device.type != "cpu"
    reads_codes = (
        wants_art and not is_on_gpu and config.pot.kv_dtype not in ("auto", "model") and not decoder.ends_early_in_codes
    )
    is_suited = model.has_plain_scores and not model.sources
    ends_early = wants_art and not is_on_gpu and not reads_codes and is_suited
    # A pot that evicts nothing can get back what pruning kept from the deeper layers.
    has_evicted = wants_host and (config.pot.method.distills or config.slim.schedule != "off")
    recalls_host = has_evicted and not model.has_state
    rules = (
        (
            wants_art and is_on_gpu,
            "Attention does not end early: on a GPU finding out when it could takes longer than reading all.",
        ),
        (
            reads_codes,
            "Attention does not end early: over codes only the kernel for CPUs can, where RoPE turns all of a key.",
        ),
        (
            wants_art and model.attention_softcap is not None,
            "Attention does not end early: this model caps attention scores, and the kernel has no cap.",
        ),
        (
            wants_art and any(layer.sinks is not None for layer in model.layers),
            "Attention does not end early: sinks of this model take a share of it, and the kernel knows none.",
        ),
        (
            wants_art and bool(model.sources),
            "Attention does not end early: layers of this model share keys, and thresholds are those of one layer.",
        ),
        (
            ends_early and is_windowed,
            "Attention does not end early in layers with a sliding window once the text is longer than the window.",
        ),
        (
            model.has_state
            and has_evicted
            # How large a tier is says not that it was asked for.
            and (config.tier != TierConfig(config.tier.budget_bytes) or not config.generation.num_passage_tokens),
            "Evicted keys are not recalled: most layers of this model could not see them. Passages are read again as "
            "text.",
        ),
        (
            config.generation.num_sources > 0 and is_stream,
            "No sources are named: the text of a stream is not kept.",
        ),
    )
    return Combination(
        ends_early=ends_early,
        recalls_host=recalls_host,
        names_sources=config.generation.num_sources > 0 and not is_stream,
        notices=tuple(text for applies, text in rules if applies),
    )


def suited(config: EngineConfig, model: ModelParts) -> tuple[EngineConfig, tuple[str, ...]]:
    """The settings of reading that a model can follow, and what else was asked for, and why not; a sentence each.

    A layer that keeps a state needs every token, in its order.
    """
    if not model.has_state:
        return config, ()
    rules = (
        (
            config.slim.schedule != "off",
            "No tokens are pruned on the way: layers of this model fold every token into a state of their own.",
        ),
        (
            config.spec.skips,
            "No small model reads first: layers of this model fold every token into a state, which cannot skip any.",
        ),
    )
    suiting = replace(config, slim=SlimConfig(), spec=SpecConfig())
    return suiting, tuple(text for applies, text in rules if applies)
