"""Some layers of a model with random weights in the form that its own would have: to be timed, before it is loaded.

What they say does not matter, and products of packed weights take the same time whatever the codes are.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from ondevice.kernels.packed import FORMATS, TILE_ROWS, Format, PackedWeight, empty, parted
from ondevice.kernels.projection import prepare_packed
from torch import Tensor, nn

from ondevice.model.families.gguf_fields import EMBEDDING, HEAD
from ondevice.model.loading._transformers import empty_model
from ondevice.model.loading.catalogue import find
from ondevice.model.loading.gguf_blocks import BLOCK_TYPES
from ondevice.model.loading.gguf_file import GgufFile, read_header
from ondevice.model.loading.gguf_packed import smallest
from ondevice.model.loading.gguf_weights import names_in
from ondevice.model.loading.load import LoadedModel
from ondevice.model.loading.stored import stored
from ondevice.model.packed_modules import PackedLinear, replace_module

WORDS = 1024  # rows of the embedding: ids lie below
_HEAD = "lm_head"
_SCALE = 2.0**-10  # keeps activations finite


def sample_model(outline: LoadedModel, num_layers: int) -> Any:
    """The first layers of an outlined model and its head, on the CPU, with random weights.

    Args:
        outline: from `outline_model`, for a CPU.
        num_layers: at most as many as it has.

    Returns:
        A causal LM of transformers whose embedding has `WORDS` rows.
    """
    config = copy.deepcopy(outline.model.config)
    config.num_hidden_layers = num_layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:num_layers]
    config.tie_word_embeddings = False
    model = empty_model(config, outline.dtype)
    forms = _Forms(outline)
    for name, module in list(model.named_modules()):
        if type(module) is nn.Embedding:
            replace_module(model, name, _embedding(module, outline.dtype))
        elif type(module) is nn.Linear and (form := forms.of(name, module)) is not None:
            bias = None if module.bias is None else torch.zeros(module.out_features)
            replace_module(model, name, PackedLinear(_packed(module.out_features, module.in_features, form), bias))
        else:
            for part, weight in list(module.named_parameters(recurse=False)):
                setattr(module, part, nn.Parameter(_random(weight, outline.dtype), requires_grad=False))
    prepare_packed(module.weight for module in model.modules() if isinstance(module, PackedLinear))
    return model.eval()


def file_of(source: str) -> Path | None:
    """The single file of a model, by what loads it; None: it lies in a folder, or is not here."""
    row = find(source)
    path = Path(source).expanduser() if row is None else stored(row)
    return path if path is not None and path.is_file() else None


class _Forms:
    """The stored forms of the weights of linear modules."""

    def __init__(self, outline: LoadedModel) -> None:
        self._quantization, self._own = outline.quantization, dict[str, Format]()
        path = file_of(outline.source)
        if self._quantization == "stored" and path is not None:
            gguf = read_header(path)
            self._own, self._names = _forms_in(gguf), names_in(gguf)

    def of(self, name: str, module: nn.Linear) -> Format | None:
        """None: it is not packed."""
        if self._quantization == "stored":  # a file that is not here is of the usual kind: four bits, six in the head
            own = self._own.get(self._names(f"{name}.weight")) if self._own else None
            return parted(own or FORMATS[6, False, True]) if name == _HEAD else own or FORMATS[4, True, True]
        bits = {"8bit": 8, "4bit": 8 if name == _HEAD else 4}.get(self._quantization)
        form = None if bits is None else FORMATS[bits, bits == 4, False]
        return form if form is not None and module.in_features % form.group_size == 0 else None


def _forms_in(gguf: GgufFile) -> dict[str, Format]:
    """The packed form of each weight by its name in the file."""
    kinds = {tensor.name: tensor.kind for tensor in gguf.tensors if tensor.kind in BLOCK_TYPES}
    kinds.setdefault(HEAD, kinds[EMBEDDING])
    return {name: smallest(kind).parts[0].form for name, kind in kinds.items()}


def _packed(num_rows: int, num_columns: int, form: Format) -> PackedWeight:
    num_groups = -(-num_columns // form.group_size)
    weight = empty(form, -(-num_rows // TILE_ROWS), -(-num_groups // form.unit_groups))
    data = weight.parts[0].data.random_(0, 256)
    # What is in float16: random bytes could be no numbers.
    num_bytes = form.unit_header_bytes or form.header_bytes
    scales = torch.full((num_bytes // 2,), _SCALE, dtype=torch.float16).view(torch.uint8)
    data[..., :num_bytes] = scales
    return weight.rows(0, num_rows)


def _random(weight: Tensor, dtype: torch.dtype) -> Tensor:
    if weight.dim() == 1:  # norms and biases
        return torch.ones(weight.shape, dtype=dtype)
    return torch.randn(weight.shape, dtype=dtype) * weight.shape[1] ** -0.5


def _embedding(module: nn.Embedding, dtype: torch.dtype) -> nn.Embedding:
    return nn.Embedding(WORDS, module.embedding_dim, dtype=dtype).requires_grad_(False)
