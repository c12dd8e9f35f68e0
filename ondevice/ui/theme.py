"""The theme: one family of letters, shipped with Gradio; quiet surfaces, one accent; light and dark from one table."""

from __future__ import annotations

import gradio as gr
from gradio.themes.utils import fonts

_FAMILY = "IBM Plex Sans"  # its figures are all of one width
_SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "DejaVu Sans", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace")


def make_theme() -> gr.themes.Base:
    """The theme of the app."""
    return gr.themes.Base(
        primary_hue=gr.themes.colors.teal,
        secondary_hue=gr.themes.colors.teal,
        neutral_hue=gr.themes.colors.slate,
        radius_size=gr.themes.sizes.radius_md,
        spacing_size=gr.themes.sizes.spacing_md,
        text_size=gr.themes.sizes.text_md,
        font=[fonts.LocalFont(_FAMILY, weights=(400, 600, 700)), *(fonts.Font(name) for name in _SANS)],
        font_mono=[fonts.Font(name) for name in _MONO],
    ).set(
        body_background_fill="#f6f8f9",
        body_background_fill_dark="#0d1316",
        body_text_color="#17252a",
        body_text_color_dark="#e4ecee",
        body_text_color_subdued="#566770",
        body_text_color_subdued_dark="#98a9b0",
        background_fill_primary="#ffffff",
        background_fill_primary_dark="#151d21",
        background_fill_secondary="#f0f4f5",
        background_fill_secondary_dark="#1b252a",
        block_background_fill="#ffffff",
        block_background_fill_dark="#151d21",
        block_border_color="#dbe3e6",
        block_border_color_dark="#2a373d",
        border_color_primary="#dbe3e6",
        border_color_primary_dark="#2a373d",
        block_label_background_fill="#ffffff",
        block_label_background_fill_dark="#151d21",
        block_shadow="none",
        input_background_fill="#ffffff",
        input_background_fill_dark="#101719",
        input_border_color="#7f9199",
        input_border_color_dark="#5a6b73",
        button_primary_background_fill="#0f766e",
        button_primary_background_fill_dark="#128077",
        button_primary_background_fill_hover="#0b5f58",
        button_primary_background_fill_hover_dark="#0f766e",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#ffffff",
        button_secondary_background_fill="#e6edef",
        button_secondary_background_fill_dark="#26333a",
        button_secondary_background_fill_hover="#d9e3e6",
        button_secondary_background_fill_hover_dark="#314047",
        button_secondary_text_color="#17252a",
        button_secondary_text_color_dark="#e4ecee",
        button_cancel_background_fill="#b42318",
        button_cancel_background_fill_dark="#c4342a",
        button_cancel_background_fill_hover="#912018",
        button_cancel_background_fill_hover_dark="#d9453a",
        button_cancel_text_color="#ffffff",
        button_cancel_text_color_dark="#ffffff",
    )
