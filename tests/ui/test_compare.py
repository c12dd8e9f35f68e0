"""Comparisons: fair and one at a time, complete in their numbers, and a column that fails stops no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ondevice import words
from ondevice.serving.comparison import Stage
from ondevice.serving.contenders import CONTENDERS, DEFAULT_KEYS
from ondevice.ui.compare_actions import CompareActions
from ondevice.ui.compare_render import to_markdown
from ondevice.ui.throttle import Throttle
from tests.builders.screens import TEXT, Desk, screen_after, tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINE = tiny_engine()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, ENGINE)


def compare(desk: Desk, keys: list[str], question: str = "When?") -> dict[str, Any]:
    steps = CompareActions(desk.runner).run(desk.id, question, keys, desk.form)
    return screen_after(steps)["compare"]


def test_two_ways_side_by_side(desk: Desk) -> None:
    shown = compare(desk, list(DEFAULT_KEYS))
    pot, cut = shown["columns"]
    assert (pot["label"], cut["label"]) == ("Present settings", "Truncation")
    assert (pot["stage"], cut["stage"]) == ("done", "done")
    assert pot["answer"]
    assert f"Read {len(TEXT):,} of {len(TEXT):,} tokens" in pot["ledger"]
    assert "skipped" in cut["ledger"]
    assert (cut["done"], cut["total"]) == (len(TEXT), len(TEXT)), "what is skipped counts as done"
    names = [name for name, _ in pot["facts"]]
    assert names[:4] == ["Time to read", "Reading speed", "First word after", "Answering speed"]
    assert names[4:] == ["Memory of the pot", "A cache of all tokens", "Blocks of the pot read"]
    assert shown["can_be_saved"]
    file = CompareActions(desk.runner).export(desk.id, "json")["download"]
    assert (file["name"], file["mime"]) == ("comparison.json", "application/json")
    record = json.loads(file["text"])
    assert [column["config"]["pot"]["policy"] for column in record["columns"]] == ["infinipot", "truncate"]
    assert len({json.dumps(column["config"]["generation"]) for column in record["columns"]}) == 1
    assert len({column["config"]["seed"] for column in record["columns"]}) == 1
    file = CompareActions(desk.runner).export(desk.id, "md")["download"]
    assert file["name"] == "comparison.md"
    assert "## Truncation" in file["text"]
    assert desk.visitor.comparison.session is None, "no pot stays"
    assert desk.workspace.session is None, "the open document is left as it was"


def test_every_way_of_reading_works(desk: Desk) -> None:
    shown = compare(desk, [one.key for one in CONTENDERS])
    assert {column["label"]: column["problem"] for column in shown["columns"] if column["problem"]} == {}
    assert {column["stage"] for column in shown["columns"]} == {"done"}
    by_key = {column["key"]: column for column in shown["columns"]}
    assert "not reliable" in by_key["full"]["warning"], "the tiny model has a window of 512"
    assert not by_key["infinipot"]["warning"]
    [blocks] = [text for name, text in by_key["infinipot"]["facts"] if name.startswith("Blocks")]
    assert blocks == "100 %"
    with_small, without = (dict(by_key[key]["facts"]) for key in ("spec", "infinipot"))
    assert "Of that the small model's" in with_small
    assert "Of that the small model's" not in without
    assert "the small model's pot" in by_key["spec"]["ledger"]


def test_what_does_not_fit_says_so_and_the_others_go_on(desk: Desk) -> None:
    needed = ENGINE.decoder.new_pot(desk.engine.config.pot.capacity).nbytes
    desk.free_memory = lambda device: int(needed / 0.9) + 1000
    full, pot = compare(desk, ["full", "infinipot"])["columns"]
    assert full["stage"] == "failed"
    assert "are free" in full["problem"]
    assert pot["stage"] == "done"


def test_stop_ends_it_and_keeps_what_is_complete(desk: Desk) -> None:
    actions = CompareActions(desk.runner)
    steps = actions.run(desk.id, "When?", ["infinipot", "truncate", "foresight"], desk.form)
    comparison = desk.visitor.comparison
    for _ in steps:
        if comparison.columns[0].stage is Stage.DONE:
            comparison.request_stop()
    assert [column.stage for column in comparison.columns] == [Stage.DONE, Stage.STOPPED, Stage.STOPPED]
    assert comparison.idle.is_set()
    assert "Stopped" in to_markdown(comparison)
    assert actions.stop(desk.id)["compare_stop"]["visible"] is False


def test_it_stands_in_line_like_everybody(desk: Desk) -> None:
    with desk.engine.lane.ticket():
        steps = CompareActions(desk.runner).run(desk.id, "When?", ["infinipot"], desk.form)
        assert next(steps)["compare"]["columns"][0]["stage_text"] == "In line"
        assert not desk.visitor.is_idle
        desk.visitor.comparison.request_stop()
        list(steps)
    assert desk.visitor.comparison.columns[0].stage is Stage.STOPPED


@pytest.mark.parametrize(("keys", "question"), [([], "When?"), (["infinipot"], " "), (["unknown"], "When?")])
def test_nothing_to_compare_is_told(desk: Desk, keys: list[str], question: str) -> None:
    shown = compare(desk, keys, question)
    assert shown["problem"]
    assert shown["columns"] == []
    assert not shown["can_be_saved"]
    assert CompareActions(desk.runner).export(desk.id, "md") == {}


def test_a_mistake_leaves_the_last_comparison_as_it_was(desk: Desk) -> None:
    before = compare(desk, ["infinipot"])
    for keys, question, form in (
        ([], "When?", desk.form),
        (["infinipot"], "", desk.form),
        (["foresight"], "When?", desk.form | {"pot.num_kept": 500}),
    ):
        steps = CompareActions(desk.runner).run(desk.id, question, keys, form)
        shown = screen_after(steps)["compare"]
        assert shown["problem"]
        assert shown | {"problem": ""} == before
    steps = CompareActions(desk.runner).run(desk.id, "When?", ["foresight"], desk.form, "0" * 32)
    shown = screen_after(steps)["compare"]
    assert "Another document" in shown["problem"], "chosen on another page of this browser"
    assert shown["columns"] == before["columns"]
    desk.actions.forget(desk.id)
    shown = compare(desk, ["infinipot"])
    assert "no document" in shown["problem"]
    assert shown["columns"] == before["columns"]


def test_tokens_that_a_small_model_skips_count_as_done_all_the_way(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Throttle, "allows", lambda self, **how: True)
    done, column = [], desk.visitor.comparison.columns
    for patch in CompareActions(desk.runner).run(desk.id, "When?", ["spec"], desk.form):
        if "compare" in patch:
            [column] = patch["compare"]["columns"]
            done.append(column["done"])
    assert done == sorted(done)
    [shown] = desk.visitor.comparison.columns
    telemetry = shown.telemetry
    assert telemetry.num_skipped > 0
    reading = [one for one in done if 0 < one < len(TEXT)]
    assert reading
    assert done[-1] == len(TEXT)
    speed = dict(column["facts"])["Reading speed"]
    assert speed == words.rate(len(TEXT) / telemetry.ingest_seconds)


def test_settings_that_cannot_work_are_told_once(desk: Desk) -> None:
    desk.form = desk.form | {"pot.num_kept": 500}
    shown = compare(desk, ["infinipot"])
    assert "“Kept when full”" in shown["problem"]
    assert desk.visitor.comparison.idle.is_set()


def test_without_a_document_there_is_nothing_to_read(desk: Desk) -> None:
    desk.actions.forget(desk.id)
    assert "no document" in compare(desk, ["infinipot"])["problem"]
