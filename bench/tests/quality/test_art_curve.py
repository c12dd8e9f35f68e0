"""`ondevice eval art-curve`: the rules that are compared."""

import math

from ondevice.kernels.termination import Termination

from ondevice.config import ArtConfig, PotConfig
from ondevice.documents import Document, Page
from ondevice.session.engine import Engine
from ondevice_bench.quality.art_curve import OFF, rows_of, rules, run_art_curve
from ondevice_bench.quality.recall import recall_config
from tests.builders.models import plain_config, tiny_loaded

TEXT = "".join(f"The lamp {i} is lit at dusk by keeper {i * 7}. " for i in range(60))
POT = PotConfig(capacity=400, num_kept=96, reserve=160, step_size=120)
CARELESS = ArtConfig(enabled=True, tau=100.0, phi=2.0, patience=1, block_size=16)
DOCUMENT = Document("text", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))


def test_the_curve_names_every_rule():
    engine = Engine(tiny_loaded(), recall_config(plain_config(pot=POT, art=CARELESS)))
    points = list(run_art_curve(engine, DOCUMENT, [1e-3, 0.1], 3))
    ablations = ["settings without scale", "settings without direction"]  # it has no patience
    assert [point.name for point in points] == [OFF, "settings", *ablations, "tau 0.001", "tau 0.1"]
    assert points[0].share_read == 1.0 > points[1].share_read
    assert all(len(point.losses) == 3 and all(map(math.isfinite, point.losses)) for point in points)
    assert {point.num_tokens for point in points} == {len(TEXT)}
    assert len(rows_of(points, engine.config)) == 2 * len(points)


def test_an_ablation_that_changes_nothing_is_no_rule_of_its_own():
    def names(**fields: float) -> list[str]:
        return [name.removeprefix("settings without ") for name, _ in rules((Termination(**fields),), ())][2:]

    assert names(tau=0.1, phi=0.1, patience=3) == ["scale", "direction", "patience"]
    assert names(tau=0.1, phi=math.inf, patience=1) == ["scale"]
