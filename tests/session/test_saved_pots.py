"""Saved pots that were damaged, or written by somebody else to do harm: each opens as it should, or says why not."""

from __future__ import annotations

import json
import math
import random
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from ondevice.config import EngineConfig, PotConfig, SlimConfig, SpecConfig, TierConfig
from ondevice.documents.types import Document, Page
from ondevice.errors import DamagedPot, ModelError, OndeviceError, PotError, PotMismatch
from ondevice.events import AnswerFinished
from ondevice.model.loading import hub
from ondevice.pot.saving import FORMAT
from ondevice.session.engine import Engine, Session
from ondevice.session.saving import load_session, reopened, save_session, saved_config
from ondevice_bench.speed.reliability.damaged_pots import SavedPot, spoil, write_summed
from tests.builders.models import plain_config, plain_generation, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

LOADED = tiny_loaded()
ASKED = plain_config(generation=plain_generation(max_new_tokens=3, num_sources=1))
ENGINE = Engine(LOADED, ASKED)
POT = PotConfig(capacity=224, num_kept=64, reserve=96, step_size=60, context_reset="always")
SLIM = SlimConfig("1:50%,2:25%", block_size=8, unit_size=4, window=2)
SPEC = SpecConfig(keep=0.5, layers=1, chunk_size=8)
TEXT = "The lamp was lit at dusk, écru and bright, and burned until the morning. " * 6
BASES: dict[str, EngineConfig] = {
    "plain": plain_config(pot=POT),
    "positions": plain_config(pot=replace(POT, context_reset="late", policy="snapkv")),
    "tier": plain_config(pot=POT, slim=SLIM, tier=TierConfig(budget_bytes=200_000, max_tokens=24)),
    "skims": plain_config(pot=replace(POT, reserve=110), spec=SPEC),
    "full": plain_config(pot=replace(POT, policy="full"), slim=SlimConfig("1:128,2:64", block_size=8, unit_size=4)),
    "stream": plain_config(pot=POT),
}


def read(name: str) -> Session:
    session = Engine(LOADED, BASES[name]).session()
    half = len(TEXT) // 2
    pages = (Page(1, TEXT[:half]), Page(2, "", "scan", "A picture."), Page(3, TEXT[half:]))
    is_stream = name == "stream"
    for _ in session.read(Document("lamp.txt", "txt", "part", iter(pages) if is_stream else pages,
                                   None if is_stream else 3, None if is_stream else len(TEXT))):  # fmt: skip
        pass
    return session


@pytest.fixture(scope="module")
def pots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SavedPot]:
    folder, found = tmp_path_factory.mktemp("pots"), {}
    for name in BASES:
        save_session(read(name), folder / name)
        found[name] = SavedPot(folder / name)
    return found


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Allocations of a gigabyte more than there is now fail, and the machine lives on."""
    if sys.platform != "linux":
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def reopen(path: Path) -> Session:
    return load_session(ENGINE, path, reopened(saved_config(path), ASKED))


def ask(session: Session, **generation: Any) -> AnswerFinished:
    *_, finished = session.ask("When?", replace(ASKED.generation, **generation))
    assert isinstance(finished, AnswerFinished)
    return finished


def test_a_pot_of_an_earlier_build_is_refused_with_a_sentence(pots: dict[str, SavedPot], tmp_path: Path) -> None:
    pot, path = pots["plain"], tmp_path / "a.pot"
    for before in range(1, FORMAT):
        said = f"saved in format {before}, this version reads format {FORMAT}"
        with pytest.raises(PotMismatch, match=said) as caught:
            reopen(spoilt(pot, path, header=pot.header | {"format": before}))
        assert (caught.value.where, caught.value.fix) == (str(path), "Read the document again.")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_no_mutant_does_harm(
    part: int, pots: dict[str, SavedPot], tmp_path: Path, little_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 in all: every one opens and answers, or is refused by name; none takes much time or memory."""
    monkeypatch.setattr(hub, "_download", lambda *args: pytest.fail("a file has sent for a model"))
    path, slowest, untyped, num_asked, num_refused = tmp_path / "a.pot", 0.0, list[str](), 0, 0
    for seed in range(250 * part, 250 * (part + 1)):
        rng = random.Random(seed)
        name = rng.choice(list(BASES))
        done = spoil(pots[name], path, rng)
        began = time.process_time()
        try:
            session = reopen(path)
            ask(session, temperature=rng.choice((0.0, 1.0)))
            num_asked += 1
        except OndeviceError:
            num_refused += 1
        except Exception as error:
            untyped.append(f"{seed} {name}: {done}: {error!r}")
        slowest = max(slowest, time.process_time() - began)
    assert not untyped, "\n".join(untyped)
    assert slowest < 20.0, "seconds of one mutant"  # a small part of what unbounded work would take
    assert min(num_asked, num_refused) > 25


def spoilt(pot: SavedPot, path: Path, *, header: Any = None, **tensors: torch.Tensor) -> Path:
    """A file with true checksums, and another header or other tensors."""
    named = {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    write_summed(
        path, {name: t.clone() for name, t in (pot.tensors | named).items()}, pot.header if header is None else header
    )
    return path


def filled(tensor: torch.Tensor, value: float) -> torch.Tensor:
    """The tensor with another first number."""
    tensor = tensor.clone()
    tensor.view(-1)[0] = value
    return tensor


def test_one_changed_bit_is_noticed(pots: dict[str, SavedPot], tmp_path: Path) -> None:
    pot, path = pots["plain"], tmp_path / "a.pot"
    for at in random.Random(0).sample(range(len(pot.data)), 100):
        data = bytearray(pot.data)
        data[at] ^= 1
        path.write_bytes(data)
        with pytest.raises(PotError):
            reopen(path)


def test_checksums_say_which_tensor_has_changed(pots: dict[str, SavedPot], tmp_path: Path) -> None:
    pot, path = pots["plain"], tmp_path / "a.pot"
    data, value = bytearray(pot.data), pot.tensors["keys.1"].numpy().tobytes()
    data[pot.data.index(value) + 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedPot, match=r"'keys\.1' is not what"):
        reopen(path)
    path.write_bytes(pot.data.replace(b'\\"num_kept\\": 64', b'\\"num_kept\\": 65'))
    with pytest.raises(DamagedPot, match="header is not what was written"):
        saved_config(path)


def test_positions_do_not_size_what_they_like(pots: dict[str, SavedPot], tmp_path: Path, little_memory: None) -> None:
    """One wrong number was the size of a table of 22 GB."""
    for pot in pots.values():
        for value in (2**31 - 1, 2**20, -1, -(2**31)):
            path = spoilt(pot, tmp_path / "a.pot", positions=filled(pot.tensors["positions"], value))
            with pytest.raises(DamagedPot, match="positions of layer 0"):
                reopen(path)
    pot = pots["plain"]
    path = spoilt(pot, tmp_path / "a.pot", next_position=torch.full((3,), 2**31))
    with pytest.raises(DamagedPot, match="next_position"):
        reopen(path)


@pytest.mark.parametrize(
    ("name", "tensor", "value", "reason"),
    [
        ("plain", "keys.0", math.nan, "no model computes"),
        ("plain", "values.2", math.inf, "no model computes"),
        ("plain", "values.2", 1e30, "no model computes"),
        ("plain", "importance", math.nan, "no model computes"),
        ("plain", "novelty", -math.inf, "no model computes"),
        ("plain", "origin", 10**6, "origin of layer 0 holds 1000000"),
        ("plain", "origin", -1, "holds -1"),
        ("plain", "num_cached", 225, "num_cached holds 225"),
        ("plain", "num_ranked", 10**6, "num_ranked"),
        ("plain", "tokens.ids", 260, "vocabulary"),
        ("plain", "tokens.ids", -1, "vocabulary"),
        ("plain", "tokens.spans", 10**6, "outside the text"),
        ("plain", "tokens.page_starts", 1, "do not follow each other"),
        ("plain", "tokens.page_numbers", 3, "page numbers do not rise"),
        ("plain", "tokens.text", 0xFF, "no UTF-8"),
        ("plain", "tokens.text_lengths", 2**62, "longer or shorter"),
        ("plain", "tokens.num_tokens", 0, "no tokens"),
        ("stream", "tokens.num_tokens", 2**31 - 1, "too long"),
        ("tier", "depths", 4, "depths"),
        ("tier", "tier.origin", 10**6, "host tier of layer 0"),
        ("tier", "tier.scales", math.nan, "no model computes"),
        ("tier", "tier.scales", 1e30, "no model computes"),
        ("tier", "tier.num_written", 2**40, "num_written"),
        ("tier", "tier.hidden.states", math.nan, "no model computes"),
        ("tier", "tier.hidden.layers", 2, "got further"),
        ("tier", "tier.hidden.layers", 7, "layers holds 7"),
        ("skims", "speculator.num_seen", 5, "num_seen"),
        ("skims", "speculator.keys.0", math.nan, "no model computes"),
        ("skims", "speculator.positions", 2**31 - 1, "positions"),
    ],
)
def test_every_number_is_looked_at(
    name: str, tensor: str, value: float, reason: str, pots: dict[str, SavedPot], tmp_path: Path
) -> None:
    pot = pots[name]
    changed = pot.tensors[tensor].clone()
    if changed.dtype == torch.uint16:
        changed.numpy()[0] = value
    else:
        changed = filled(changed, value)
    path = spoilt(pot, tmp_path / "a.pot", **{tensor: changed})
    with pytest.raises(DamagedPot, match=reason) as caught:
        reopen(path)
    assert caught.value.where == str(path)


@pytest.mark.parametrize(
    "counts",
    [{"loaded": None}, {"ask": "x"}, {"num_protected": -5}, {"num_read": -1}, {"num_read": 7}, {"num_skipped": 10**9},
     {"num_cycles": 10**9}, {"num_read": True}, {"num_read": 4.0}, {"num_read": None}, {"num_cycles": "2"}],
)  # fmt: skip
def test_counts_set_nothing_but_counts(counts: dict[str, Any], pots: dict[str, SavedPot], tmp_path: Path) -> None:
    pot = pots["plain"]
    path = spoilt(pot, tmp_path / "a.pot", header=pot.header | {"counts": pot.header["counts"] | counts})
    with pytest.raises(DamagedPot):
        reopen(path)


def test_a_header_is_what_we_write_or_nothing(pots: dict[str, SavedPot], tmp_path: Path) -> None:
    pot, path = pots["plain"], tmp_path / "a.pot"
    whole = json.dumps({"format": FORMAT, **pot.header})
    for text in ("5", "[]", "null", '"x"', "{", "[" * 100_000, "[" * 100_000 + "]" * 100_000, "\x00", ""):
        with pytest.raises(PotError, match="not a saved pot"):
            reopen(spoilt(pot, path, header=text))
    deep = '{"a":' * 500 + "1" + "}" * 500
    with pytest.raises(PotError, match="not a saved pot"):
        reopen(spoilt(pot, path, header=whole.replace('"notes"', f'"x": {deep}, "notes"')))
    for name in pot.header:
        without = {key: value for key, value in pot.header.items() if key != name}
        if name in ("saved", "capacities"):
            reopen(spoilt(pot, path, header=without))
            continue
        with pytest.raises(PotError):
            reopen(spoilt(pot, path, header=without))
    with pytest.raises(DamagedPot, match="'x'"):
        reopen(spoilt(pot, path, header=pot.header | {"x": 1}))
    for found in (2, 6, "5", None, True, [5]):
        with pytest.raises(PotMismatch, match="format"):
            reopen(spoilt(pot, path, header=pot.header | {"format": found}))
    with pytest.raises(DamagedPot, match="header"):
        reopen(spoilt(pot, path, header=pot.header | {"sha256": None}))
    save_file(pot.tensors, path, {"ondevice": whole})
    with pytest.raises(DamagedPot, match="header is not what was written"):
        reopen(path)


def test_a_long_header_is_not_read(tmp_path: Path, little_memory: None) -> None:
    path = tmp_path / "a.pot"
    path.write_bytes((2**26).to_bytes(8, "little") + b"{" + b" " * 100)
    with open(path, "r+b") as file:
        file.truncate(2**26 + 100)
    with pytest.raises(PotError, match="not a saved pot"):
        saved_config(path)


def test_slots_are_those_of_the_settings(pots: dict[str, SavedPot], tmp_path: Path) -> None:
    for name in ("plain", "full"):
        for change in ({"capacity": 10**5}, {"capacity": 0}, {"capacities": [9, 9, 9]}, {"capacities": "x"}):
            with pytest.raises(DamagedPot):
                reopen(spoilt(pots[name], tmp_path / "a.pot", header=pots[name].header | change))


def test_a_missing_host_tier_is_noticed(pots: dict[str, SavedPot], tmp_path: Path) -> None:
    pot, path = pots["tier"], tmp_path / "a.pot"
    tensors = {name: tensor.clone() for name, tensor in pot.tensors.items() if not name.startswith("tier.")}
    write_summed(path, tensors, pot.header)
    with pytest.raises(DamagedPot, match="origin is missing"):
        reopen(path)


def test_no_file_sends_for_a_model(pots: dict[str, SavedPot], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: list[Any] = []

    def snapshot_download(*args: Any, **options: Any) -> str:
        if not options.get("local_files_only"):
            asked.append(args)
        raise FileNotFoundError

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    pot = pots["skims"]
    for name in ("attacker/model", "//host/share", "\\\\host\\share", "~nobody/x", "x" * 5000, "a/b--c", "\x00"):
        header = json.loads(json.dumps(pot.header))
        header["config"]["spec"]["model"] = name
        with pytest.raises(ModelError, match="not on this machine") as caught:
            reopen(spoilt(pot, tmp_path / "a.pot", header=header))
        assert "spec.model" in caught.value.fix
        assert caught.value.where == name
    assert not asked


def test_a_table_of_angles_that_does_not_fit_is_refused() -> None:
    """Without a reset positions grow with the document, and only memory says how far."""
    with pytest.raises(PotError, match="positions take"):
        ENGINE.decoder.rotate_keys(torch.zeros(1, 2, 1, 16), torch.full((1, 2, 1), 2**31 - 1), 2**31)
