"""The table of commands: what each measures and which contenders are ours; all else on the first page follows."""

from __future__ import annotations

from collections.abc import Mapping

from ondevice_bench.results.reading import FIRST, IN_BYTES, IN_TOKENS, RECALL, Better, Reading, only

_KEEPS = "Does a small pot remember what it has read?"
_ANSWERS = "Does it answer better than the alternatives?"
_MANY = "Does it hold for many documents?"
_FAST = "How fast is it, and in how much memory?"
_METHODS = "What does each method add?"
_GPU = "And on a GPU?"
_HOLDS = "Does it hold out, and are its forecasts true?"
QUESTIONS = (_KEEPS, _ANSWERS, _MANY, _FAST, _METHODS, _GPU, _HOLDS)

_ASKED = ("default", "pot", "infinipot")  # how contenders of `quality.contenders` that are ours begin
_NEITHER: Better = ""
_WORDS = (
    "host tier",
    "the question's words alone, without a model, find the key: of 2,048 blocks in 131,072 tokens they rank its own "
    "first or second",
)

# By the beginning of the command.
READINGS: Mapping[str, Reading] = {
    "ondevice eval retention": Reading(
        _KEEPS,
        "a pot alone",
        (FIRST,),
        only("budget"),
        shares={"loss": ("none", "full")},
        hidden=("slots", "bytes of the pot", IN_TOKENS, IN_BYTES),
        instead={RECALL: "loss"},
        is_sized=True,
    ),
    "ondevice eval recall": Reading(
        _KEEPS, "continuing a text", (FIRST,), only("tokens"), shares={"loss": ("no document", "full KV")}
    ),
    "ondevice eval ruler": Reading(_KEEPS, "RULER", _ASKED, only("budget")),
    "ondevice eval babilong": Reading(
        _KEEPS, "BABILong", _ASKED, lambda case: {"text": case["task"].partition("_")[2], "budget": case["budget"]}
    ),
    "ondevice eval passkey": Reading(_KEEPS, "passkeys", (FIRST,), only("length"), note=_WORDS),
    "ondevice eval perplexity": Reading(_KEEPS, "the next tokens of a text", _ASKED, only()),
    "ondevice eval hit-rate": Reading(
        _KEEPS,
        "tokens that questions look at, after the last distillation",
        ("infinipot",),
        only(),
        better={"overlap with the catalyst alone": _NEITHER},
        is_last=True,
    ),
    "ondevice eval answers": Reading(
        _ANSWERS,
        "questions to documents",
        (*_ASKED, FIRST),
        only("budget"),
        better={"refused": "less"},
        hidden=("answer in what was read for it",),
    ),
    "ondevice eval tables": Reading(_ANSWERS, "cells of tables", _ASKED, only()),
    "ondevice eval longbench": Reading(_ANSWERS, "LongBench", (*_ASKED, "paper-"), only("budget")),
    "ondevice eval scan": Reading(
        _ANSWERS, "lists of things", ("scan",), only("length"), better={"count error": "less"}
    ),
    "ondevice eval changes": Reading(_ANSWERS, "what changed between two versions", ("comparison",), only("budget")),
    "ondevice eval sources": Reading(_ANSWERS, "passages of an answer", ("beyond a neutral text",), only()),
    "ondevice eval collection": Reading(
        _MANY,
        "questions over many documents",
        ("collection", "index"),
        only("budget"),
        hidden=("answer in what was read for it",),
    ),
    "ondevice eval find": Reading(_MANY, "the right document", ("index",), only()),
    "ondevice bench scale": Reading(_MANY, "many documents", ("batch", "one search")),
    "ondevice bench peers": Reading(
        _FAST, "beside other programs", ("ondevice",), hidden=("left out", "tokens of an answer")
    ),
    "ondevice bench ingest": Reading(_FAST, "reading", (FIRST,)),
    "ondevice bench decode": Reading(_FAST, "decoding", ("pot",)),
    "ondevice bench quantized": Reading(
        _FAST, "rounded weights", ("stored", "int8", "int4"), better={"perplexity": "less"}
    ),
    "ondevice bench roofline": Reading(_FAST, "kernels", ("compiled kernel",)),
    "ondevice bench tier": Reading(_FAST, "the host tier", ("mean keys",)),
    "ondevice bench slim": Reading(_METHODS, "SlimInfer", ("InfiniPot", "SlimInfer")),
    "ondevice bench equip": Reading(_METHODS, "EQUIP", ("EQUIP",)),
    "ondevice bench art": Reading(_METHODS, "ART", ("ART",)),
    "ondevice bench specprefill": Reading(_METHODS, "SpecPrefill", ("SpecPrefill",)),
    "ondevice bench distillation": Reading(_METHODS, "distillation"),
    "ondevice eval slim-curve": Reading(_METHODS, "SlimInfer's schedules"),
    "ondevice eval art-curve": Reading(_METHODS, "ART's thresholds"),
    "ondevice eval specprefill": Reading(_METHODS, "SpecPrefill", ("SpecPrefill",)),
    "ondevice eval speculator": Reading(_METHODS, "the speculator", ("as usual",)),
    "ondevice bench calibrate": Reading(_METHODS, "ART's thresholds", group=only()),
    "ondevice calibrate": Reading(_METHODS, "ART's thresholds", group=only()),  # as it was called before
    "make gpu-check": Reading(
        _GPU,
        "",
        ("pot", "decode attention", "SlimInfer", "SpecPrefill"),
        hidden=("time of the part", "left out"),
        better={"time a token": _NEITHER, "time a call": _NEITHER},
    ),
    "ondevice bench reliability": Reading(_HOLDS, "reliability"),
    "ondevice bench plan": Reading(
        _HOLDS,
        "what `ondevice plan` says",
        ("plan",),
        better=dict.fromkeys(("peak memory", "reading speed", "answering speed"), _NEITHER),
    ),
    "ondevice bench memory": Reading(_HOLDS, "memory of a document", ("document",)),
    "make map-frames": Reading(_HOLDS, "the map"),
    "make walk": Reading(_HOLDS, "the screen", ("page", "app")),
}
_OTHER = Reading("What else was measured", "")


def reading_of(command: str) -> Reading:
    """The row of a command."""
    found = [name for name in READINGS if command.startswith(name)]
    return READINGS[max(found, key=len)] if found else _OTHER
