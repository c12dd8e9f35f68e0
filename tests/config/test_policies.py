"""The table of policies: every row has its class, a new policy is one class and one row, and nobody compares names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import pytest
from torch import Tensor

import ondevice.config.policies as table
from ondevice.config import DECODE_POLICIES, POLICIES, SETTINGS, EngineConfig, Policy, PotConfig, TierConfig
from ondevice.documents import Document, Page
from ondevice.events import PotDistilled
from ondevice.pot.policies import LayerView, RetentionPolicy, make_policy
from ondevice.session.engine import Engine
from ondevice_bench.results.names import contender_name
from tests.builders.models import tiny_loaded

NAMES = {*POLICIES, *DECODE_POLICIES}
TABLE = Path(table.__file__)


def test_rows_are_found_by_their_names_and_name_classes_that_there_are() -> None:
    for name, row in POLICIES.items():
        assert row.name == name
        assert row.distills == (not row.keeps_all)
        policy = make_policy(PotConfig(policy=name), seed=0)
        assert isinstance(policy, RetentionPolicy) if row.distills else policy is None
    for name, rule in DECODE_POLICIES.items():
        assert rule.name == name
        assert hasattr(resolve_name(rule.eviction), "make_room")


def test_why_tokens_are_kept_can_be_said_of_one_and_of_several() -> None:
    for row in POLICIES.values():
        assert row.kept.startswith("kept")
        assert not {"it", "is", "was", "are", "were"} & set(row.kept.split()), row.name


def test_people_are_offered_the_products_rows_and_none_of_the_laboratory() -> None:
    offered = SETTINGS["pot.policy"].offered
    assert offered == ("infinipot", "full", "foresight")
    assert {"h2o", "random"} <= set(SETTINGS["pot.policy"].choices) - set(offered)
    assert all(POLICIES[name].scorer is None or POLICIES[name].scorer.startswith("ondevice.") for name in offered)


class Oldest(RetentionPolicy):
    """Keeps what came first."""

    def scores(self, view: LayerView) -> Tensor:
        return -view.positions.float()


def test_a_new_policy_is_one_class_and_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Policy(
        "oldest",
        label="Oldest",
        choice="What came first",
        scorer=f"{__name__}:Oldest",
    )
    monkeypatch.setitem(POLICIES, "oldest", row)
    config = EngineConfig(
        tier=TierConfig(0), pot=PotConfig(capacity=192, num_kept=64, reserve=70, step_size=40, policy="oldest")
    )
    session = Engine(tiny_loaded(chat_template=None), config).session()
    text = "The lamp is lit at dusk by the keeper. " * 20
    document = Document("text", "txt", "part", (Page(1, text),), num_pages=1, size_bytes=len(text))
    distilled = [event for event in session.read(document) if isinstance(event, PotDistilled)]
    ledger = session.context.ledger
    assert ledger.tokens_read == len(text) == ledger.tokens_kept + ledger.tokens_evicted
    assert (distilled[-1].retention.dense()[:60] == session.context.num_heads_total).all()
    assert contender_name(config) == "Oldest 192/64"


def test_nobody_compares_a_policy_by_its_name() -> None:
    root = TABLE.parents[2]
    exempt = root / "bench" / "tests", root / "bench" / "results" / "papers"  # there they name figures of the papers
    found = [
        f"{path.relative_to(root)}:{line}"
        for folder in ("ondevice", "bench")
        for path in sorted((root / folder).rglob("*.py"))
        if path not in (TABLE, root / "bench/quality/policies.py")
        if not any(map(path.is_relative_to, exempt))
        for line in compared_names(path.read_text(encoding="utf-8"))
    ]
    assert not found, "ask the row of config.POLICIES or config.DECODE_POLICIES instead"


def test_comparisons_by_name_are_found() -> None:
    assert list(compared_names('if pot.policy == "full":\n    pass')) == [1]
    assert list(compared_names('x = 1\ny = pot.decode_policy in ("h2o", "question")')) == [2]
    assert list(compared_names('pot.method.name != "tova"')) == [1]
    assert list(compared_names('WORDS = {"snapkv": "seen", "random": "by chance"}')) == [1]
    assert list(compared_names('match pot.policy:\n    case "sirllm":\n        pass')) == [2]
    assert not list(compared_names('variant == "full"\nPotConfig(policy="full")\n{"full": 1}'))


def compared_names(code: str) -> Iterator[int]:
    """Lines that compare a policy with a name, or that have a table of their own by name."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Compare():
                is_found = bool(names_in(node)) and any(word in ast.unparse(node) for word in ("policy", "method"))
            case ast.Dict():
                is_found = len(NAMES & {key.value for key in node.keys if isinstance(key, ast.Constant)}) > 1
            case ast.match_case():
                is_found = bool(names_in(node.pattern))
            case _:
                continue
        if is_found:
            yield node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno


def names_in(node: ast.AST) -> set[str]:
    return NAMES & {child.value for child in ast.walk(node) if isinstance(child, ast.Constant)}
