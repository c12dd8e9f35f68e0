"""Word scores of the blocks of a document for a question, rare words counting most: BM25 (Robertson and Zaragoza).

Mean keys blur a name that stands once in a block; the name itself does not blur. Words here are tokens, whatever their
case and the blank before them, so that no index has to be built or kept.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

K1 = 1.5  # how soon a repeated word counts no more


def blocks_sharing_words(
    document: npt.NDArray[np.integer], question: npt.NDArray[np.integer], block_size: int, most: int
) -> list[int]:
    """Blocks of a document that have words of a question, those with the rarest first; arguments as `score_blocks`.

    Args:
        most: blocks that are named, at most.
    """
    scores = score_blocks(document, question, block_size)
    best = np.argsort(-scores, kind="stable")[:most]
    return best[scores[best] > 0].tolist()


def score_blocks(
    document: npt.NDArray[np.integer], question: npt.NDArray[np.integer], block_size: int
) -> npt.NDArray[np.float64]:
    """Word scores of each block of a document for a question, (num_blocks,); 0 where it has none of them.

    Args:
        document: (n,) words of its tokens, as `Tokenizer.words` numbers them: -1 is none.
        question: (m,) likewise.
    """
    num_blocks = -(-document.size // block_size)
    wanted = np.unique(question[question >= 0])
    if not wanted.size:
        return np.zeros(num_blocks)
    found = np.minimum(np.searchsorted(wanted, document), wanted.size - 1)
    at = np.flatnonzero(wanted[found] == document)
    pairs, counts = np.unique(at // block_size * wanted.size + found[at], return_counts=True)
    blocks, words = np.divmod(pairs, wanted.size)
    weights = rarity(num_blocks, np.bincount(words, minlength=wanted.size))
    scores = np.zeros(num_blocks)
    np.add.at(scores, blocks, weights[words] * counts * (K1 + 1) / (counts + K1))
    return scores


def rarity(num_places: int, held_by: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """Weights of words by the number of places that hold each, (n,)."""
    return np.log1p((num_places - held_by + 0.5) / (held_by + 0.5))
