"""Numbers of settings: whichever door they come by, they are finite and in range afterwards, or refused by name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.testclient import TestClient
from typer.testing import CliRunner

from ondevice.api.routes import Api
from ondevice.cli.options import AnswerOptions, PotOptions, takes_options
from ondevice.cli.terminal import errors_shown
from ondevice.config import ANSWERING, FIELDS, SETTINGS, EngineConfig, GenerationConfig, Setting, value_of, with_values
from ondevice.decode.steps import sample
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError, DamagedPot, PotError
from ondevice.library.library import Library
from ondevice.pot.saving import FORMAT
from ondevice.serving.jobs import Jobs
from ondevice.serving.registry import Registry
from ondevice.serving.uploads import Uploads
from ondevice.session.pot_header import PotHeader
from ondevice.session.saving import save_session
from ondevice.ui.form import CONTROLS, Form
from ondevice_bench.speed.reliability.damaged_pots import SavedPot, write_summed
from tests.builders.screens import tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

NUMBERED = {path: one for path, one in FIELDS.items() if not one.choices and one.kind not in (str, bool)}
ODD: list[Any] = [
    0, -1, 1, 16, 512, 2**31 - 1, 2**31, 2**53, 2**63, 10**30, 10**400, -(10**400), 0.5, 1.5, -0.0, 1e-300, 5e-324,
    1e-7, 1e7, 1e300, -1e300, math.nan, math.inf, -math.inf, True, None, "", "1", "auto", [], [1, 2], {},
]  # fmt: skip
VALUES = st.sampled_from(ODD) | st.integers() | st.floats() | st.lists(st.integers() | st.floats(), max_size=2)
WRITTEN = ["1e999", "-1e999", "1e-300", "1E+5", "9" * 400, "9" * 5000, f"-{'9' * 5000}", "0." + "0" * 500 + "1", "NaN",
           "Infinity", "-Infinity", "null", "true", '"1"', "[]", "[1,2]", "[1e999,1e999]"]  # fmt: skip
JSON = st.sampled_from(WRITTEN) | VALUES.map(json.dumps)
TYPED = [*WRITTEN, "inf", "nan", "auto", "", "1_000", "٣", "1,2", "1e999,2", "nan,nan", "1,", "2GB", "9" * 400 + "GB"]
many = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def taken(make: Callable[[], EngineConfig]) -> None:
    """Settings are made, and sound, or refused in a sentence of some length that says what to do."""
    try:
        config = make()
    except ConfigError as error:
        refusal = error
    else:
        return require_sound(config)
    assert refusal.fix
    assert len(str(refusal)) < 400


def require_sound(config: EngineConfig) -> None:
    for path, one in FIELDS.items():
        value = value_of(config, path)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float | int):
                assert math.isfinite(number), path
                assert abs(number) <= one.most, path
                assert type(number).__name__ in str(one.kind), path


@many
@example(SETTINGS["generation.temperature"], 1e-300)
@example(SETTINGS["generation.max_new_tokens"], 10**400)
@given(st.sampled_from(list(NUMBERED.values())), VALUES)
def test_in_python(one: Setting, value: Any) -> None:
    taken(lambda: with_values(EngineConfig(), {one.path: value}))


def options_door() -> Callable[[list[str]], EngineConfig | None]:
    """A command with all options, and what it gets of a line."""
    got: list[EngineConfig] = []

    def command(pot: PotOptions, answers: AnswerOptions) -> None:
        with errors_shown(as_json=False):
            got.append(pot.config(answers.config()))

    app = typer.Typer()
    app.command()(takes_options(command))

    def run(arguments: list[str]) -> EngineConfig | None:
        got.clear()
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code in (0, 2), result.exception
        assert (result.exit_code == 0) == bool(got)
        return got[0] if got else None

    return run


COMMAND = options_door()


@settings(many, max_examples=60)
@example(SETTINGS["tier.budget_bytes"], "9" * 400)
@example(SETTINGS["pot.capacity"], "9" * 5000)
@example(SETTINGS["generation.temperature"], "nan")
@given(
    st.sampled_from([one for one in NUMBERED.values() if one.option]),
    st.sampled_from(TYPED) | st.floats().map(str) | st.integers().map(str),
)
def test_on_the_command_line(one: Setting, text: str) -> None:
    config = COMMAND([f"{one.option_name}={text}"])
    if config is not None:
        require_sound(config)


@many
@example(SETTINGS["tier.budget_bytes"], 1e308)
@example(SETTINGS["tier.budget_bytes"], 10**400)
@example(SETTINGS["pot.capacity"], math.inf)
@given(st.sampled_from([CONTROLS[path] for path in CONTROLS.keys() & NUMBERED.keys()]), VALUES)
def test_in_the_form(one: Setting, value: Any) -> None:
    form = Form({**Form.of(EngineConfig()).values, one.path: value})
    taken(lambda: form.engine_config(EngineConfig()))
    taken(lambda: EngineConfig(generation=form.generation(GenerationConfig())))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    folder = tmp_path_factory.mktemp("api")
    jobs = Jobs(tiny_engine(), Registry(), Library(folder / "library"))
    return TestClient(Starlette(routes=Api(jobs, Uploads(folder), None).routes()), raise_server_exceptions=False)


ASKED = '"messages": [{"role": "user", "content": "When?"}]'
BODIES = [
    *(("/v1/documents/none/read", f'{{"{one.api}": %s}}') for one in NUMBERED.values() if one.api),
    *(("/v1/documents/none/ask", f'{{"question": "When?", "{one.api}": %s}}') for one in ANSWERING.values() if one.api),
    *(
        ("/v1/chat/completions", f'{{"model": "none", {ASKED}, "{name}": %s}}')
        for name in ("max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "n", "presence_penalty")
    ),
]


@settings(many, max_examples=300)
@example(BODIES[-5], "1e-300")
@example(BODIES[-7], "9" * 400)
@given(st.sampled_from(BODIES), JSON)
def test_over_http(programs: TestClient, body: tuple[str, str], number: str) -> None:
    """A setting that can work gets as far as the document, which is not there."""
    path, text = body
    headers = {"X-Ondevice": "1", "Content-Type": "application/json"}
    answered = programs.post(path, content=text.replace("%s", number), headers=headers)
    assert answered.status_code in (400, 404), answered.text
    error = answered.json()["error"]
    assert error["code"] in ("config", "request", "not-found", "model_not_found")
    assert len(answered.text) < 1000


@pytest.fixture(scope="module")
def pot(tmp_path_factory: pytest.TempPathFactory) -> SavedPot:
    session = tiny_engine().session()
    list(session.read(Document("lamp.txt", "txt", "part", (Page(1, "The lamp was lit."),), 1, 17)))
    path = tmp_path_factory.mktemp("pot") / "a.pot"
    save_session(session, path)
    return SavedPot(path)


@many
@example(SETTINGS["generation.temperature"], "1e-300")
@example(FIELDS["art.tau"], "NaN")
@example(FIELDS["art.patience"], "9" * 30)
@given(st.sampled_from(list(NUMBERED.values())), JSON)
def test_in_a_saved_pot(pot: SavedPot, tmp_path: Path, one: Setting, number: str) -> None:
    part, _, name = one.path.partition(".")
    header = json.loads(json.dumps({"format": FORMAT, "sha256": {}, **pot.header}))
    place = header["config"] if part == "engine" else header["config"][part]
    place[name] = "HERE"
    path = tmp_path / "a.pot"
    write_summed(path, {"x": torch.zeros(1)}, json.dumps(header).replace('"HERE"', number))
    try:
        read = PotHeader.read(path)
    except (DamagedPot, PotError):
        return
    require_sound(read.config)
    assert number == "null" or value_of(read.config, one.path) is not None


@many
@given(
    st.sampled_from([1e-6, 1e-3, 100.0]) | st.floats(1e-6, 100.0),
    st.sampled_from([1e-6, 1.0]) | st.floats(1e-6, 1.0),
    st.integers(-(2**53) + 1, 2**53 - 1),
)
def test_what_is_in_range_draws_a_token(temperature: float, top_p: float, seed: int) -> None:
    config = EngineConfig(seed=seed, generation=GenerationConfig(temperature=temperature, top_p=top_p))
    logits = torch.tensor([[-1000.0, 3.0, 3.0, 500.0, torch.finfo(torch.float32).min]])
    generator = torch.Generator().manual_seed(config.seed)
    token = sample(logits, temperature=temperature, top_p=config.generation.top_p, generator=generator)
    assert 0 <= int(token) < 5
