"""Catalyst prompts (CaP) of InfiniPot: what is asked of the text just before the pot overflows.

Kinds and wordings are those of Table 2 (arXiv 2410.01518).
"""

from ondevice.config import PotConfig

PROMPTS = {
    "general": "Summarize the critical points highlighted in this section.",
    "general-v1": "Summarize this section.",
    "general-v2": "Highlight the critical points from this section.",
    "question": "Considering the following question, summarize the critical points highlighted in this section. "
    "Question: {text}",
    "placeholder": "\n" * 12,
    "unrelated": "The sky is blue. The sun is yellow. Here we go. There and back again.",
    "text": "{text}",
}


def catalyst_prompt(config: PotConfig) -> str:
    """The text appended after the pot for one look, with the user's own text or question filled in."""
    prompt = PROMPTS[config.catalyst].replace("{text}", config.catalyst_text.strip())
    return prompt if config.catalyst == "placeholder" else f"\n\n{prompt}"
