"""Which blocks of a document share words with a question, the rare ones counting most: BM25 (Robertson and Zaragoza).

Mean keys blur a name that stands once in a block; the name itself does not blur. Words here are tokens, whatever their
case and the blank before them, so that no index has to be built or kept.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

K1 = 1.5  # how soon a repeated word counts no more


def blocks_sharing_words(
    document: npt.NDArray[np.integer],
    question: npt.NDArray[np.integer],
    word_of: npt.NDArray[np.integer],
    block_size: int,
    most: int,
) -> list[int]:
    """Blocks of a document that have words of a question, those with the rarest first.

    Args:
        document: (n,) ids.
        question: (m,) ids.
        word_of: (vocabulary,) the word that each id stands for, at least 0, or -1 for none: `Tokenizer.word_of`.
        most: blocks that are named, at most.
    """
    wanted = np.unique(word_of[question])
    wanted = wanted[wanted >= 0]
    index = np.full(int(word_of.max(initial=-1)) + 2, -1)  # its last place is that of no word
    index[wanted] = np.arange(wanted.size)
    found = index[word_of[document]]
    at = np.flatnonzero(found >= 0)
    pairs, counts = np.unique(at // block_size * max(wanted.size, 1) + found[at], return_counts=True)
    blocks, words = np.divmod(pairs, max(wanted.size, 1))
    num_blocks, held_by = -(-document.size // block_size), np.bincount(words, minlength=wanted.size)
    weights = np.log1p((num_blocks - held_by + 0.5) / (held_by + 0.5))
    scores = np.bincount(blocks, weights[words] * counts * (K1 + 1) / (counts + K1), minlength=num_blocks)
    best = np.argsort(-scores, kind="stable")[:most]
    return best[scores[best] > 0].tolist()
