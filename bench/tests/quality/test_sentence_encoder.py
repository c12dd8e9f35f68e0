"""The sentence encoder: vectors of length 1, each the mean over the tokens of its own text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.builders.models import tiny_encoder


def test_vectors_have_length_one_and_do_not_depend_on_the_batch() -> None:
    encoder = tiny_encoder()
    texts = ["the lamp", "the keeper lit the lamp at dusk", "sea " * 400, *(f"word {i}" for i in range(40))]
    vectors = encoder.encode(texts)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-5)
    for text, vector in zip(texts[:4], vectors, strict=False):
        assert encoder.encode([text])[0] == pytest.approx(vector, abs=1e-5)


def test_a_vector_is_the_mean_over_the_tokens() -> None:
    encoder = tiny_encoder()
    ids = encoder._tokenizer.encode("the lamp").ids
    with torch.inference_mode():
        mean = encoder._model(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(0)
    assert encoder.encode(["the lamp", "a far longer text than the other"])[0] == pytest.approx(
        (mean / mean.norm()).numpy(), abs=1e-5
    )
