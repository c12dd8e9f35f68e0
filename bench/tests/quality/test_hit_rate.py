"""Hit rates: of what a full cache's question looks at, the share that a pot holds, head by head."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ondevice.config import PotConfig
from ondevice.errors import ConfigError
from ondevice.session.engine import Engine
from ondevice_bench.quality.contenders import text_document
from ondevice_bench.quality.hit_rate import (
    ALONE,
    ASKED,
    HIT_RATE,
    OVERLAP,
    Cycle,
    held,
    hit_rate,
    most_attended,
    rows_of,
    run_hit_rate,
    summary_of,
)
from ondevice_bench.quality.recall import recall_config
from tests.builders.models import plain_config, tiny_loaded

POT = PotConfig(capacity=400, num_kept=96, reserve=160, step_size=64)
TEXT = " ".join(f"Sentence {i} of the text names the number {i * 37 % 91}." for i in range(40))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(tiny_loaded(max_positions=4096), recall_config(plain_config(pot=POT)))


def test_as_many_tokens_count_in_each_head_as_it_holds() -> None:
    attended = torch.tensor([[5.0, 4.0, 3.0, 2.0, 9.0], [1.0, 2.0, 3.0, 4.0, 9.0]])
    kept = torch.tensor([[True, True, False, False], [True, False, False, True]])
    assert hit_rate(kept, attended) == pytest.approx((1.0 + 0.5) / 2)  # the fifth token was not read yet
    assert hit_rate(torch.ones_like(kept), attended) == 1.0


def test_attention_is_that_of_the_last_token_and_leaves_the_cache_as_it_was(engine: Engine) -> None:
    session = engine.session(replace(engine.config, pot=PotConfig(policy="full")))
    for _ in session.read(text_document("text", [TEXT])):
        pass
    num_tokens, before = session.context.num_read, list(session.context.pot.num_cached)
    ids = session.context.tokens.ids(40, 48).tolist()
    attended = most_attended(session, ids)
    kept = held(session.context.pot, num_tokens)
    assert attended.shape == kept.shape
    assert kept.all()
    assert session.context.pot.num_cached == before
    assert torch.equal(attended, most_attended(session, ids))
    assert not torch.allclose(attended, most_attended(session, ids[:-1]))


def test_every_contender_is_held_against_the_questions_after_each_distillation(engine: Engine) -> None:
    document = text_document("text", [TEXT])
    names = ("infinipot-published", ASKED, "infinipot", "random")
    cycles = [one for one in run_hit_rate(engine, document, names, 400, 2) if isinstance(one, Cycle)]
    assert list(dict.fromkeys(one.contender for one in cycles)) == [ALONE, *names]
    assert {one.overlap for one in cycles if one.contender == ALONE} == {1.0}
    assert all(0.0 < one.hit_rate < 1.0 for one in cycles)
    shared = [one.overlap for one in cycles if one.contender == "infinipot-published"]
    assert all(overlap is not None and 0.0 < overlap < 1.0 for overlap in shared)
    rows = rows_of(cycles)
    assert {one.metric for one in rows} == {HIT_RATE, OVERLAP}
    assert set(summary_of(cycles)) == {f"hit_rate_{name}" for name in (ALONE, *names)}
    asked = {(one.contender, one.case["trial"]) for one in rows if one.metric == HIT_RATE}
    assert asked == {(name, number) for name in (ALONE, *names) for number in (0, 1)}
    last = [one.hit_rate for one in cycles if one.contender == "random"][-1]
    assert summary_of(cycles)["hit_rate_random"] == pytest.approx(last)


def test_a_text_beyond_the_window_is_refused() -> None:
    small = Engine(tiny_loaded(max_positions=512), recall_config(plain_config(pot=POT)))
    with pytest.raises(ConfigError, match="the model's window"):
        list(run_hit_rate(small, text_document("text", [TEXT]), ("random",), 400, 1))
