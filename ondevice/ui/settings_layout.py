"""The settings on the screen: presets first, then every knob, folded, each with its unit, default and effect."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ondevice.engine import Engine
from ondevice.ui import settings, words
from ondevice.ui.settings import Form


def settings_parts(engine: Engine) -> tuple[list[Any], gr.Radio]:
    """The components of the form, in the order of `Form`, and the presets above them."""
    config = engine.config
    start, bytes_per_slot = Form.of(config), settings.slot_bytes(engine)
    choices = [
        (f"{p.name}\n{words.count(p.capacity)}\n{words.size(p.capacity * bytes_per_slot)}", p.name)
        for p in settings.PRESETS
    ]
    preset = gr.Radio(
        choices,
        value=settings.matching_preset(config.pot.capacity, config.pot.num_kept),
        label="Memory: slots in the pot",
        info="A slot holds one token. More slots keep more and take more memory, however long the document is.",
        elem_id="od-preset",
    )
    with gr.Accordion("All settings", open=False, elem_id="od-settings"):
        form = [
            gr.Number(
                start.capacity,
                label="Slots in the pot",
                precision=0,
                minimum=16,
                info=f"Tokens a layer. Default {config.pot.capacity:,}. Each takes {words.size(bytes_per_slot)}.",
            ),
            gr.Number(
                start.num_kept,
                label="Kept when full",
                precision=0,
                minimum=5,
                info=f"Tokens that survive when the pot is full. Default {config.pot.num_kept:,}. "
                "Fewer means longer steps between two selections.",
            ),
            gr.Slider(
                0,
                1,
                start.novelty,
                step=0.05,
                label="Share kept for being new",
                info=f"Share of what is kept, 0 to 1. Default {config.pot.novelty}. "
                "The rest is kept for being useful to the guiding prompt.",
                buttons=["reset"],
            ),
            gr.Dropdown(
                list(settings.POLICIES),
                value=start.policy,
                label="What to keep",
                info="The rule that chooses. Default: InfiniPot.",
            ),
            gr.Dropdown(
                list(settings.CATALYSTS),
                value=start.catalyst,
                label="Guiding prompt",
                info="What the model has in mind when it chooses. Default: summarise.",
            ),
            gr.Textbox(
                start.catalyst_text,
                label="Own words for the guiding prompt",
                info="Your question, or what to watch for. Changes take effect at the next reading.",
                visible=start.catalyst in settings.NEED_WORDS,
                max_lines=3,
            ),
            gr.Number(
                start.max_new_tokens,
                label="Longest answer",
                precision=0,
                minimum=1,
                info=f"Tokens. Default {config.generation.max_new_tokens}. Applies from the next question on.",
            ),
            gr.Slider(
                0,
                1.5,
                start.temperature,
                step=0.1,
                label="Temperature",
                info=f"0 to 1.5. Default {config.generation.temperature:g}: always the likeliest word. "
                "Higher varies more.",
                buttons=["reset"],
            ),
            *_expert_settings(engine),
        ]
    return form, preset


def _expert_settings(engine: Engine) -> list[Any]:
    config = engine.config
    start = Form.of(config)
    return [
        gr.Number(
            start.num_sources,
            label="Sources of an answer",
            precision=0,
            minimum=0,
            info=f"Passages named under an answer, at most. Default {config.generation.num_sources}; 0 names none and "
            "saves reading the answer once more.",
        ),
        gr.Dropdown(
            settings.schedules(config),
            value=start.slim,
            label="Read less behind some layers",
            info="SlimInfer. Default: off. On, reading is faster, and tokens that look unimportant are not read "
            "to the end of the model. Takes effect at the next reading.",
        ),
        gr.Number(
            start.host_tier_mb,
            label="Host tier",
            minimum=0,
            info=f"MB beside the pot for what it evicts. Default {start.host_tier_mb:g}; with 0, what is evicted is "
            "gone. A question brings back what it needs. Takes effect at the next reading.",
        ),
        gr.Checkbox(
            start.reads_on,
            label="Read on what comes back",
            info="Default: on. With both settings above, tokens that come back are read to the end of the model first.",
        ),
        gr.Checkbox(
            start.art,
            label="End reading the pot early",
            info="ART. Default: off. On, each word of an answer reads only as much of the pot as changes it. "
            "Takes effect at the next reading.",
        ),
        gr.Dropdown(
            list(settings.DECODE_POLICIES),
            value=start.decode_policy,
            label="What a long answer overwrites",
            info="Used only once an answer has filled the slots reserved for it; all is restored afterwards. "
            "Default: what the question looks at least.",
        ),
        gr.Number(
            start.seed,
            label="Seed",
            precision=0,
            minimum=0,
            info=f"A whole number. Default {config.seed}. The same seed gives the same answer when the temperature is "
            "above 0. Takes effect at the next reading.",
        ),
        gr.Slider(
            10,
            100,
            start.skim_percent,
            step=5,
            label="Skim first",
            info="SpecPrefill. Percent of the text that the model reads, 10 to 100. Default 100: all. Below that its "
            "first layers skim everything and choose; the rest is skipped. Takes effect at the next reading.",
            buttons=["reset"],
        ),
        gr.Number(
            start.num_restored,
            label="Read what was skipped",
            precision=0,
            minimum=0,
            info=f"Skipped tokens that a question may have read after all, at most. Default {start.num_restored}. "
            "Takes effect at the next reading.",
        ),
        gr.Number(
            start.num_draft,
            label="Draft the answer",
            precision=0,
            minimum=0,
            info=f"Tokens that the first layers draft at once, for all layers to check. Default {start.num_draft}. "
            "The words stay those of the model, and drafts end by themselves where they do not pay. "
            "Takes effect at the next reading.",
        ),
    ]
