"""Settings of answers: sampling, and what a question knows of those before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ondevice.config.setting import SOME_SHARE, Check, Control, at_least, check_each, setting


@dataclass(frozen=True, slots=True)
class GenerationConfig:
    """Settings of sampling."""

    panel: ClassVar = "Answers"

    # fmt: off
    max_new_tokens: int = setting(
        200, "The longest answer, in tokens.", option="--max-new-tokens", api="max_new_tokens", answers=True,
        check=at_least(1), label="Longest answer",
        form=Control(7, "Tokens. Default {default}. Applies from the next question on.", low=1))
    temperature: float = setting(
        0.0, "0 takes the likeliest token each time.", option="--temperature", api="temperature", answers=True,
        check=Check(lambda value: value == 0 or 1e-6 <= value <= 100, "Give 0, or a number from 0.000001 to 100."),
        label="Temperature",
        form=Control(8, "0 to 1.5. Default {default}; 0 always takes the likeliest word. Higher varies more.",
                     slider=(0, 1.5, 0.1)))
    top_p: float = setting(  # used when `temperature` is above 0
        1.0, "Probability mass to sample from.", option="--top-p", api="top_p", answers=True, check=SOME_SHARE)
    chat: bool = setting(True, "Use the model's chat template, if it has one.", option="--chat/--no-chat")
    num_sources: int = setting(
        3, "Passages of the document that are named for an answer, at most; 0 names none.", option="--sources",
        api="num_sources", answers=True, check=at_least(0), label="Sources of an answer",
        form=Control(9, "Passages named under an answer, at most. Default {default}; 0 names none and saves reading "
                        "the answer once more.", low=0))
    num_passage_tokens: int = setting(
        1024, "Tokens of passages that are read again before a question: its words find them, and once all is read "
        "its attention; 0: the answer comes from the pot alone.", option="--passages", api="num_passage_tokens",
        answers=True,
        check=at_least(0, "tokens"))
    grounded: bool = setting(
        True, "Ask for an answer from the document, and say so where it seems to have none.",
        option="--grounded/--no-grounded", answers=True)
    stops_loops: bool = setting(
        True, "End an answer that repeats one sentence.", answers=True)
    # fmt: on

    def __post_init__(self) -> None:
        check_each(self)


@dataclass(frozen=True, slots=True)
class ConversationConfig:
    """Earlier questions that one may know of; chosen for each question, and no part of an engine's settings."""

    panel: ClassVar = "Answers"

    remembers: bool = setting(
        True,
        "Let a question refer to those before it, as far as the reserve has room for them.",
        option="--remember/--no-remember",
        label="Remember earlier questions",
        form=Control(19, "So that “and who was the second?” is understood."),
    )
