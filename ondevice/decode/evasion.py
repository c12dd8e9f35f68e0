"""Answers that do not answer: without the number or the time that is asked for, or with nothing but the question.

Asked for what a document leaves out, a small model seldom says so; it writes a sentence around the gap. No model is
asked: whether an answer has what every answer to such a question has can be seen. One that has it may still be wrong.
The question words are those of English and German.
"""

from __future__ import annotations

import re

from ondevice.decode.unfounded import CANONICAL, MONTHS
from ondevice.events import Evasion
from ondevice.search.bm25 import own_terms

_MOST_CHARS = 500  # of a question that asks one thing
_MOST_WORDS = 60  # of an answer that says nothing new
_LETTERS = 4  # of words that are compared as one
_ASKS_NUMBER = re.compile(
    r"\b(?:how (?:many|old|tall|heavy)|how much (?:money|time|does|do|did|is|was|were|would|will)"
    r"|what (?:percentage|percent|number)|wie ?viele?|wie (?:alt|hoch|schwer))\b"
)
_ASKS_TIME = re.compile(  # of "when is" the answer may be on which terms
    r"(?:when (?:was|were|did|will)|(?:in |on |since )?(?:what|which) (?:year|date|day|month)"
    r"|wann (?:wurden?|war(?:en)?|hat|haben|wird|werden)"
    r"|(?:in |an |am |seit )?welche[mrsn]? (?:jahr|datum|tag|monat))\b"
)
_NAMES_SOMETHING = re.compile(
    r"(?:(?:in|on|at|from|to|for|by|with|an|auf|aus|bei|mit|von|zu) )?"
    r"(?:who|whom|whose|what|which|where|wer|wen|wem|wessen|was|welche[mnrs]?|wo|woher|wohin)\b"
)
_IS_CHOICE = re.compile(r",|\b(?:or|between|than|both|same|of the|oder|zwischen|als|beiden?|von den)\b")
_NUMBER = re.compile(
    r"\d|[一二三四五六七八九十]|\b(?:zero|no|none|not|never|once|twice|single|half|third|quarter|dozens?|couple|pair|both|all"
    r"|every|most|majority|several|few|many|unlimited|free|hundreds?|thousands?|(?:m|b|tr)illions?|one|\w+teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty"
    r"|an? (?:hour|day|week|month|year|decade|century|penny|dollar|pound)|equal|same|more|less|fewer|enough"
    r"|little|lot|some|part|whole|entire|nothing|everything"
    r"|kein\w*|nicht|nie|ein(?:e[nmrs]?|mal|s)?|zwei\w*|drei\w*|vier\w*|fünf\w*|sechs\w*|sieb\w+|acht\w*|neun\w*|zehn\w*"
    r"|zwölf\w*|\w*(?:zig|ßig|hundert|tausend|million(?:en)?|milliarden?)|hälfte|drittel|alle|mehrere|einige|wenige"
    rf"|halbe?[rsn]?|{'|'.join(word for word, name in CANONICAL.items() if name.isdigit())})\b"
)
_TIME = re.compile(
    rf"\d|\b(?:{'|'.join(MONTHS)}"
    r"|\w*days?|\w*tags?|mittwochs?|spring|summer|sommer|autumn|fall|herbst|winter|christmas|easter|noon"
    r"|midnight|dawn|dusk|sun(?:rise|set)|night|evening|morning|afternoon|today|yesterday|tomorrow|ago|after\w*|before"
    r"|during|while|when\w*|once|as soon as|until|till|since|time|upon|following|later?|earl(?:y|ier)|now|never"
    r"|no|not|annual\w*|\w+ly|end|start|beginning|at|if|prior|years?|weeks?|months?|hours?|minutes?|centur\w+|decades?|age|era"
    r"|war|jahre?[sn]?|wochen?|monate?[sn]?|stunden?|minuten?|frühling|heute|gestern|nach\w*|vor\w*|während|wenn|als|sobald"
    r"|bis|seit|nie|nicht|kein\w*|zeit|ende|anfang|beginn|bei|sofort|unverzüglich|\w+lich|\w*stens|falls)\b"
)
_DENIES = re.compile(r"\b(?:no|not|none|never|nobody|nothing|yes|nicht|kein\w*|nie|niemand|nichts|ja|nein)\b|n['’]t\b")  # noqa: RUF001
_FRAME = re.compile(  # words beside the usual ones, in which a question is said again
    r"came|comes?|called|named?|known|refer(?:s|red)|stated?|states|given|provided|based|specific|passages?"
    r"|its?|his|her|their|this|these|he|she|they|by|at|for|on|as|an|be|been|heißen|heißt|genannt|ihre?|seine?"
)


def evasion(answer: str, question: str) -> Evasion:
    """The part that an answer lacks and each one to its question has; "" if none.

    A number may be told in words, and so may a time ("after the war").
    """
    asked, said = question.casefold().strip(), answer.casefold()
    if not said.strip() or len(asked) > _MOST_CHARS:
        return ""
    known = {*re.findall(r"\w+", asked)}
    new = " ".join(word for word in re.findall(r"\w+|[^\w\s]", said) if word not in known)
    if _ASKS_NUMBER.search(asked) and not _NUMBER.search(new):
        return "number"
    if _ASKS_TIME.match(asked) and not _TIME.search(new):
        return "time"
    is_fact = _NAMES_SOMETHING.match(asked) and not _IS_CHOICE.search(asked) and len(said.split()) <= _MOST_WORDS
    if is_fact and not _DENIES.search(said):
        begins = {*map(_beginning, known)}
        if all(_beginning(term) in begins or _FRAME.fullmatch(term) for term in own_terms(said)):
            return "question"
    return ""


def _beginning(word: str) -> str:
    """The part of a word that its other forms share: study, studied; use, uses."""
    return word[:_LETTERS].rstrip("s")
