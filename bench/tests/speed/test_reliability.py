"""`ondevice bench reliability`: what it counts as harm is harm, and its parts run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.errors import PotError
from ondevice.library.library import Library
from ondevice.session.engine import Engine
from ondevice_bench.speed.reliability import hostile, soak
from ondevice_bench.speed.reliability.hostile import Tally, spoil_entries
from tests.builders.models import plain_config, save_checkpoint, tiny_loaded, tiny_model

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_tally_knows_a_refusal_from_any_other_end() -> None:
    tally = Tally("files")

    def refused() -> None:
        raise PotError("It is damaged")

    def harm() -> None:
        raise KeyError("x")

    for name, act in (("1", list), ("2", refused), ("3", harm)):
        tally.take(name, act)
    assert (tally.num_fine, tally.num_refused, tally.others) == (1, 1, ["3: KeyError('x')"])
    assert {row.metric: row.p50 for row in tally.rows() if row.unit == "cases"} == {
        "read or opened": 1, "refused by name": 1, "any other end": 1,
    }  # fmt: skip


def test_an_entry_that_hides_others_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Library, "entries", lambda _: [])
    *_, tally = spoil_entries(Engine(tiny_loaded(), plain_config()), tmp_path, 3)
    assert len(tally.others) == 3


def test_a_ledger_that_has_lost_a_token_is_not_exact() -> None:
    engine = Engine(tiny_loaded(), plain_config())
    session = hostile._read(engine, plain_config(pot=hostile._POT))
    num_read = session.context.num_read
    assert soak._is_exact(session, num_read)
    assert not soak._is_exact(session, num_read + 1)
    origin, used = session.context.pot.origin, session.context.pot.num_cached[0]
    origin[0, 0, 0, used - 1] = origin[0, 0, 0, used - 2]
    assert not soak._is_exact(session, num_read), "one is there twice"


@pytest.mark.slow
def test_all_parts_but_the_killed_one_run_on_small_sizes(tmp_path: Path) -> None:
    model = save_checkpoint(tiny_model("llama"), tmp_path / "tiny")
    parts = "documents,pots,entries,bodies,calls,soak,questions,clients"
    command = ["bench", "reliability", "--quick", "--parts", parts, "--model", str(model), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout.splitlines()[-1])["summary"]
    harm = ("documents_untyped", "pots_untyped", "entries_untyped", "bodies_untyped", "calls_untyped", "clients_failed")
    assert [summary[key] for key in harm] == [0.0] * 6
    assert (summary["soak_ledger_exact"], summary["questions_pot_identical"]) == (1.0, 1.0)
    assert summary["clients_answered"] >= 4


def test_a_part_that_there_is_not_is_refused() -> None:
    refused = CliRunner().invoke(app, ["bench", "reliability", "--parts", "luck"])
    assert refused.exit_code == 2
    assert "luck" in refused.stderr
