"""The look of the screen, as far as numbers can hold it: few sizes of type, one family, which this program serves."""

from __future__ import annotations

import re

import gradio as gr

from ondevice.ui.panels import stylesheet
from ondevice.ui.theme import make_theme


def test_there_are_five_sizes_of_type() -> None:
    sizes = {float(size) for size in re.findall(r"font-size:\s*([\d.]+)px", stylesheet())} - {0.0}
    assert sizes == {12, 13, 14, 16, 22}
    assert not re.search(r"font-size:\s*[\d.]+(em|rem|%|vw)", stylesheet())


def test_the_family_is_served_by_this_program() -> None:
    family, *others = make_theme()._font
    assert isinstance(family, gr.themes.utils.fonts.LocalFont)
    assert not any(isinstance(font, gr.themes.GoogleFont) for font in (family, *others))
    assert gr.themes.utils.fonts.local_font_available(family.name, (400, 600, 700))


def test_the_stylesheet_asks_nobody_for_anything() -> None:
    assert not re.search(r"@import|url\((?!['\"]?data:)", stylesheet())
