"""Checks of a saved document's arrays before its tokens are restored from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ondevice.documents.formats.split import PART_CHARS
from ondevice.documents.types import Document
from ondevice.errors import DamagedPot
from ondevice.events import PageNote

_ARRAYS = {  # name: type and number of dimensions
    "page_starts": (np.int32, 1),
    "page_numbers": (np.int32, 1),
    "ids": (np.int32, 1),
    "spans": (np.int32, 2),
    "text": (np.uint8, 1),
    "text_lengths": (np.int64, 1),
    "num_tokens": (np.int64, 1),
}
# A character of several bytes may have a token for each, and be several characters to a tokenizer.
_TOKENS_PER_CHAR = 16


def check_tokens(
    document: Document, state: Mapping[str, npt.NDArray], notes: Sequence[PageNote], vocab_size: int
) -> list[str]:
    """The texts of the pages; what `DocumentTokens.state` never gives of such a document is refused.

    Args:
        document: its `num_pages` says whether its text is kept.
        notes: of its pages.
        vocab_size: ids lie below it.

    Raises:
        DamagedPot: says what cannot be.
    """
    for name, (kind, num_dims) in _ARRAYS.items():
        if name not in state or state[name].dtype != kind or state[name].ndim != num_dims:
            raise DamagedPot(f"{name} is missing or of a wrong type")
    if unknown := state.keys() - _ARRAYS.keys():
        raise DamagedPot(f"it holds {min(unknown)!r:.40}, which is not known")
    keeps_text, num_pages = document.num_pages is not None, len(state["page_starts"])
    if state["num_tokens"].shape != (1,) or not 0 < state["num_tokens"][0] < 2**31:
        raise DamagedPot("it has no tokens, or too many")
    num_tokens = int(state["num_tokens"][0])
    sizes = _page_sizes(state["page_starts"], num_tokens)
    numbers = state["page_numbers"]
    if numbers.shape != (num_pages,) or numbers[0] < 1 or (np.diff(numbers.astype(np.int64)) < 1).any():
        raise DamagedPot("the page numbers do not rise")
    if not {note.page for note in notes} <= set(numbers.tolist()):
        raise DamagedPot("a note is about a page that it does not have")
    if keeps_text:
        if document.num_pages != num_pages:
            raise DamagedPot("it has another number of pages than it says")
        return _check_text(state, sizes, num_tokens, vocab_size)
    if any(state[name].size for name in ("ids", "spans", "text", "text_lengths")):
        raise DamagedPot("a stream has no text")
    if sizes.max() > PART_CHARS * _TOKENS_PER_CHAR:
        raise DamagedPot("a part of a stream is too long")
    return []


def _page_sizes(starts: npt.NDArray, num_tokens: int) -> npt.NDArray[np.int64]:
    """Tokens of each page."""
    sizes: npt.NDArray[np.int64] = np.diff(np.append(starts.astype(np.int64), num_tokens))
    if not starts.size or starts[0] != 0 or (sizes < 0).any():
        raise DamagedPot("the pages do not follow each other")
    return sizes


def _check_text(state: Mapping[str, npt.NDArray], sizes: npt.NDArray, num_tokens: int, vocab_size: int) -> list[str]:
    ids, spans, lengths = state["ids"], state["spans"], state["text_lengths"]
    if ids.shape != (num_tokens,) or spans.shape != (num_tokens, 2) or lengths.shape != sizes.shape:
        raise DamagedPot("ids, spans and texts do not belong together")
    if ids.min() < 0 or ids.max() >= vocab_size:
        raise DamagedPot("an id is in no vocabulary of this model")
    if (lengths < 0).any() or (lengths > state["text"].size).any() or lengths.sum() != state["text"].size:
        raise DamagedPot("the texts of the pages are longer or shorter than all of it")
    data, ends = state["text"].tobytes(), np.cumsum(lengths).tolist()
    try:
        texts = [data[start:end].decode() for start, end in pairwise([0, *ends])]
    except UnicodeDecodeError as error:
        raise DamagedPot("its text is no UTF-8") from error
    num_chars = np.repeat([*map(len, texts)], sizes)
    starts, stops = spans[:, 0], spans[:, 1]
    if starts.min() < 0 or (stops < starts).any() or (stops > num_chars).any():
        raise DamagedPot("a token lies outside the text of its page")
    falls = np.diff(starts) < 0
    begins = np.cumsum(sizes)
    falls[begins[(begins > 0) & (begins < num_tokens)] - 1] = False  # another page
    if falls.any():
        raise DamagedPot("the tokens of a page do not follow each other")
    return texts
