"""Pots saved in another type than their own: what that loses, and where they open."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ondevice.config import PotConfig, SaveAs
from ondevice.documents.types import Document, Page
from ondevice.errors import DamagedPot, PotError
from ondevice.pot.saved_types import rounded, widened
from ondevice.pot.saving import read_header, read_tensors, write_pot
from ondevice.session.engine import Engine
from ondevice.session.saving import load_session, save_session
from ondevice.session.session import Session
from tests.builders.models import plain_config, plain_generation, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

POT = PotConfig(capacity=192, num_kept=64, reserve=70, step_size=40)
TEXT = "The lamp was lit at dusk, écru and bright, and burned until the morning. " * 6
LOADED = tiny_loaded("qwen2")
CONFIG = plain_config(pot=POT, generation=plain_generation(max_new_tokens=6))
LARGEST = {"int8": 0.02, "bf16": 0.005, "float32": 0.0}


def read(kv_dtype: str = "model") -> Session:
    fields = {name: getattr(POT, name) for name in ("capacity", "num_kept", "reserve", "step_size")}
    pot = PotConfig(**fields, kv_dtype=kv_dtype)
    session = Engine(LOADED, plain_config(pot=pot, generation=CONFIG.generation)).session()
    for _ in session.read(Document("lamp.txt", "txt", "part", (Page(1, TEXT),), 1, len(TEXT))):
        pass
    return session


@pytest.mark.parametrize("save_as", ["int8", "bf16", "float32"])
def test_a_saved_pot_is_off_by_what_is_said(save_as: SaveAs, tmp_path: Path) -> None:
    session, path = read(), tmp_path / "lamp.pot"
    loss = save_session(session, path, save_as)
    assert max(loss) <= LARGEST[save_as]
    assert (max(loss) > 0) == (save_as != "float32")
    opened = load_session(Engine(LOADED, CONFIG), path)
    pot, expected = opened.context.pot, session.context.pot
    assert all(map(torch.equal, pot.provenance(), expected.provenance()))
    for kind, said in zip(("keys", "values"), loss, strict=True):
        found, meant = (torch.cat([part.flatten() for part in getattr(one, kind)]) for one in (pot, expected))
        assert float((found - meant).norm() / meant.norm()) == pytest.approx(said, rel=1e-3, abs=1e-7)
    assert list(opened.ask("What was lit?"))[-1].text


def test_files_are_as_small_as_their_type_says(tmp_path: Path) -> None:
    session, sizes = read(), {}
    for save_as in ("own", "int8", "bf16", "float32"):
        save_session(session, tmp_path / "lamp.pot", save_as)
        names = ("keys.", "values.", "key_scales.", "value_scales.")
        tensors = read_tensors(tmp_path / "lamp.pot", read_header(tmp_path / "lamp.pot")["sha256"])
        sizes[save_as] = sum(tensor.nbytes for name, tensor in tensors.items() if name.startswith(names))
    assert sizes["own"] == sizes["float32"] == 2 * sizes["bf16"]
    assert sizes["int8"] < sizes["bf16"]


def test_models_of_another_type_open_what_was_saved_in_a_type_of_its_own(tmp_path: Path) -> None:
    session, path = read(), tmp_path / "lamp.pot"
    other = tiny_loaded("qwen2", dtype=torch.bfloat16)
    other_engine = Engine(other, CONFIG)
    save_session(session, path)
    with pytest.raises(PotError, match="another data type"):
        load_session(other_engine, path)
    save_session(session, path, "int8")
    opened = load_session(other_engine, path)
    assert opened.context.pot.keys[0].dtype == torch.bfloat16
    assert list(opened.ask("What was lit?"))[-1].text is not None


def test_codes_are_saved_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(PotError, match="as it is"):
        save_session(read("int8"), tmp_path / "lamp.pot", "bf16")


@pytest.mark.parametrize("damage", ["type", "scales", "frame", "codes"])
def test_a_damaged_file_is_refused(damage: str, tmp_path: Path) -> None:
    session, path = read(), tmp_path / "lamp.pot"
    save_session(session, path, "int8")
    header = read_header(path)
    tensors = read_tensors(path, header["sha256"])
    if damage == "type":
        header["saved_as"] = "int3"
    elif damage == "scales":
        tensors["key_scales.0"] = torch.full_like(tensors["key_scales.0"], torch.inf)
    elif damage == "frame":
        del tensors["own_frame.mean.1"]
    else:
        tensors["values.0"] = tensors["values.0"].float()
    write_pot(path, tensors, {name: value for name, value in header.items() if name not in ("format", "sha256")})
    with pytest.raises(DamagedPot):
        load_session(Engine(LOADED, CONFIG), path)


def test_an_empty_layer_has_a_frame() -> None:
    state = {"keys.0": torch.zeros(1, 2, 0, 8), "values.0": torch.zeros(1, 2, 0, 8)}
    saved, loss = rounded(state, "int8")
    assert loss == (0.0, 0.0)
    assert widened(saved, "int8", 1, torch.float32)["keys.0"].shape == (1, 2, 0, 8)
