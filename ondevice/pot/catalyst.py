"""Catalyst prompts (CaP) of InfiniPot: what is asked of the text just before the pot overflows.

The wordings are those of Table 2 (arXiv 2410.01518).
"""

from ondevice.config import PotConfig

PROMPTS = {
    "general": "Summarize the critical points highlighted in this section.",
    "question": "Considering the following question, summarize the critical points highlighted in this section. "
    "Question: {text}",
    "text": "{text}",
}


def catalyst_prompt(config: PotConfig) -> str:
    """The text appended after the pot for one look, with the user's own text or question filled in."""
    return "\n\n" + PROMPTS[config.catalyst].replace("{text}", config.catalyst_text.strip())
