"""A model without its weights: its layers on torch's meta device, from a configuration or a row of the catalogue.

With it is planned what a session takes before anything large is loaded, or even fetched.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models

from ondevice.model.families import named
from ondevice.model.loading._transformers import empty_model, text_config, transformers
from ondevice.model.loading.catalogue import CatalogueModel
from ondevice.model.loading.checkpoint import Checkpoint

META = torch.device("meta")


def folder_outline(checkpoint: Checkpoint, dtype: torch.dtype = torch.float32) -> Any:
    """The causal LM of a checkpoint folder."""
    return empty_model(text_config(checkpoint.folder), dtype)


def row_outline(row: CatalogueModel, dtype: torch.dtype) -> tuple[Any, Checkpoint]:
    """The causal LM of a row of the catalogue, and the checkpoint that its files would be."""
    config = transformers.AutoConfig.for_model(
        row.family,
        **row.dimensions,
        max_position_embeddings=row.window,
        tie_word_embeddings=row.is_tied,
        pad_token_id=None,
    )
    model = empty_model(config, dtype)
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    if row.is_tied:  # empty weights are tied to nothing
        del shapes["lm_head.weight"]
    return model, Checkpoint(Path(row.name), {**named(row.family)}, (), shapes)


def no_tokenizer() -> Any:
    """A stand-in for the tokenizer of a model that is not here: every text is one unknown word."""
    backend = Backend(models.WordLevel({"?": 0}, unk_token="?"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend)
