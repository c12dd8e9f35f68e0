"""The trade-off curve of pruning schedules, and its picture."""

import pytest

from ondevice.config import PotConfig, SlimConfig
from ondevice.documents import Document, Page
from ondevice.session.engine import Engine
from ondevice_bench.quality.recall import recall_config
from ondevice_bench.quality.slim_curve import Point, rows_of, run_curve
from ondevice_bench.results.charts import curve_of, draw
from ondevice_bench.results.markdown import make_pages
from ondevice_bench.results.result import Result
from tests.builders.models import plain_config, tiny_loaded

TEXT = "".join(f"The lamp {i} is lit at dusk by keeper {i * 7}. " for i in range(40))
CONFIG = plain_config(
    pot=PotConfig(capacity=400, num_kept=96, reserve=160, step_size=120), slim=SlimConfig(block_size=8, unit_size=8)
)


def _result(points, command="ondevice eval slim-curve --text novel.txt"):
    machine = {"device": "a machine", "cores": 2, "memory_bytes": 2**30}
    return Result(command, {}, 0, machine, {}, "abc", "2026-01-01", rows_of(points, CONFIG))


def test_each_schedule_is_a_point_of_its_own():
    document = Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))
    engine = Engine(tiny_loaded(), recall_config(CONFIG))
    points = list(run_curve(engine, document, ["off", "1:50%", "1:10%"], 3))
    assert [point.slim.schedule for point in points] == ["off", "1:50%", "1:10%"]
    assert all(point.speed_ratio > 0 and len(point.losses) == 3 for point in points)
    assert len({point.losses for point in points}) == 3, "pruning changes what is known"
    assert len({point.num_tokens for point in points}) == 1


def test_the_curve_is_drawn_the_same_every_time_and_shown_on_its_page():
    points = [Point(SlimConfig(name), 100, x, (y, y + 1)) for name, x, y in (("off", 1.0, 2.0), ("1:50%", 1.8, 2.5))]
    result = _result(points)
    pages = make_pages({"slim_curve": result}, "bench/results")
    assert pages["slim_curve.svg"] == draw(result, curve_of(result))
    assert all(name in pages["slim_curve.svg"] for name in ("1:50%", "off", "reading speed ratio (x)"))
    assert "](slim_curve.svg)" in pages["eval-slim-curve.md"]


@pytest.mark.parametrize("command", ["ondevice eval passkey", "ondevice bench slim"])
def test_other_results_have_no_curve(command):
    assert curve_of(_result([], command)) is None
