"""MiniLM (all-MiniLM-L6-v2): a small BERT that turns texts into vectors, close ones for texts that mean the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import Tensor

from ondevice.model.loading._transformers import transformers

DIMENSIONS = 384
_MAX_TOKENS = 256  # that the model was made for; what a text has beyond them is not seen
_BATCH = 32
_SIZES = {
    "vocab_size": 30522,
    "hidden_size": DIMENSIONS,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}


class SentenceEncoder:
    """The encoder, on the CPU in float32.

    Args:
        weights: tensors of a BERT by name.
        tokenizer: contents of its `tokenizer.json`.
        sizes: fields of the BERT's configuration; those of MiniLM are the default.
    """

    def __init__(self, weights: dict[str, Tensor], tokenizer: str, **sizes: int) -> None:
        config = transformers.BertConfig(**{**_SIZES, **sizes})
        self._model = transformers.BertModel(config, add_pooling_layer=False).eval().requires_grad_(False)
        known = self._model.state_dict()
        self._model.load_state_dict({name: tensor for name, tensor in weights.items() if name in known})
        self._tokenizer = Tokenizer.from_str(tokenizer)
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        self._tokenizer.enable_padding()

    @torch.inference_mode()
    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors of length 1, shape (num_texts, dimensions): the mean over the tokens of each text."""
        vectors = []
        for start in range(0, len(texts), _BATCH):
            batch = self._tokenizer.encode_batch(list(texts[start : start + _BATCH]))
            ids = torch.tensor([one.ids for one in batch])
            mask = torch.tensor([one.attention_mask for one in batch])
            states = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
            mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            vectors.append(torch.nn.functional.normalize(mean, dim=-1))
        return torch.cat(vectors).numpy()
