"""The likelihood of given answers: that of the model, from a pot that is as before afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ondevice.config import EngineConfig, PotConfig, TierConfig
from ondevice.errors import PotError
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from ondevice_bench.quality.contenders import text_document
from ondevice_bench.quality.likelihood import log_likelihoods
from tests.builders.models import CHAT_TEMPLATE, plain_config, plain_generation, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "".join(f"Keeper {i} lit lamp {i * 37 % 101}. " for i in range(40))
QUESTION, ANSWERS = "Who lit the lamp?", ("keeper 3", "nobody", "a much longer answer than these")
CONFIG = plain_config(
    pot=PotConfig(capacity=400, num_kept=96, reserve=200, step_size=64), generation=plain_generation()
)


def session_of(config: EngineConfig, chat_template: str | None = CHAT_TEMPLATE) -> Session:
    session = Engine(tiny_loaded(chat_template=chat_template), config).session()
    for _ in session.read(text_document("text", (TEXT,))):
        pass
    return session


@pytest.mark.parametrize("chat_template", [CHAT_TEMPLATE, None])
def test_it_is_that_of_the_model_for_each_character(chat_template: str | None) -> None:
    session = session_of(replace(CONFIG, pot=replace(CONFIG.pot, policy="full")), chat_template)
    context = session.context
    before = [*context.chat.prefix, *context.tokens.ids(0, context.tokens.num_tokens).tolist()]
    before += context.chat.question(QUESTION)
    for answer, found in zip(ANSWERS, log_likelihoods(session, QUESTION, ANSWERS), strict=True):
        ids = context.loaded.tokenizer.encode(answer if chat_template else f" {answer}")[0].tolist()
        with torch.inference_mode():
            logits = context.loaded.model(torch.tensor([before + ids])).logits[0, -len(ids) - 1 : -1]
        loss = torch.nn.functional.cross_entropy(logits.float(), torch.tensor(ids), reduction="sum")
        assert found == pytest.approx(-float(loss) / len(answer), abs=1e-3)


@pytest.mark.parametrize("budget_bytes", [0, 10**7])
def test_the_pot_is_as_before(budget_bytes: int) -> None:
    session = session_of(replace(CONFIG, tier=TierConfig(budget_bytes=budget_bytes, max_tokens=64)))
    state = session.context.pot.state()
    first = log_likelihoods(session, QUESTION, ANSWERS)
    assert all(torch.equal(tensor, state[name]) for name, tensor in session.context.pot.state().items())
    assert log_likelihoods(session, QUESTION, ANSWERS) == first
    assert len(set(first)) == len(ANSWERS)


def test_what_is_recalled_counts() -> None:
    alone = log_likelihoods(session_of(CONFIG), QUESTION, ANSWERS)
    tier = replace(CONFIG, tier=TierConfig(budget_bytes=10**7, max_tokens=64))
    assert log_likelihoods(session_of(tier), QUESTION, ANSWERS) != alone


def test_a_question_without_room_is_refused() -> None:
    with pytest.raises(PotError, match="free slots"):
        log_likelihoods(session_of(CONFIG), "why " * 200, ANSWERS)
