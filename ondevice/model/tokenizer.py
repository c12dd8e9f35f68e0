"""Text to token ids with character offsets, and back, id by id; the chat template cut in pieces around the document.

A document is hostile: `<|im_end|>` written in it must become ordinary tokens, never the control token.
So there are two ways in: `encode` for documents and questions, `encode_prompt` for our own templates.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as Backend

from ondevice.model.chat import ChatParts, chat_parts
from ondevice.model.control_tokens import control_tokens, document_backend

# Names under which models end an answer or a turn, besides the one their tokenizer calls `eos_token`.
_END_TOKENS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
)
# Text goes to the backend in pieces of about this many characters: its own record of a text takes
# some 250 bytes per token, which for a whole book would outweigh the model.
_PIECE_CHARS = 1 << 18
# A line may be as long as a book. Where no end of a line comes, or the tokenizer must not be given lines, a piece ends
# at a blank, or anywhere: a token there may be another one than in the whole text.
_MAX_PIECE_CHARS = 1 << 19
# One line feed between a mark and a word: no tokenizer has a token that spans it.
_PIECE_END = re.compile(r"(?<=\S\n)(?=\w)")
_HALVES = re.compile("[\ud800-\udfff]")
_UNKNOWN = "\ufffd"  # what decoders write for bytes that are not (yet) a character
_CONTEXT = 8  # ids kept as left context: some decoders drop the space before the first word
_MAX_PENDING = 64  # ids after which bytes that never became a character are shown as U+FFFD

Int32Array = npt.NDArray[np.int32]


class Tokenizer:
    """A fast tokenizer of transformers, restricted to what the engine needs.

    Args:
        hf: a `PreTrainedTokenizerFast`, for this object alone: its truncation and padding are switched off.
        eos_ids: further ids that end an answer, from the model's generation config.

    Attributes:
        vocab_size: ids are below this number (the model's embedding may have more rows).
        eos_ids: every id that ends an answer.
        control_ids: ids that only `encode_prompt` can produce.
        fingerprint: sha256, hexadecimal; equal for equal vocabulary, merges and template.
        has_chat_template: whether `chat_parts` has a template to use.
    """

    def __init__(self, hf: Any, *, eos_ids: Iterable[int] = ()) -> None:
        self._hf = hf
        self._template: str = hf.chat_template or ""
        self._prompt: Backend = hf.backend_tokenizer
        self._prompt.no_truncation()
        self._prompt.no_padding()
        control = control_tokens(self._prompt, self._template)
        self._plain = document_backend(self._prompt, control)
        self._can_cut = self._is_linewise()
        self.control_ids: frozenset[int] = frozenset(control)
        self.vocab_size: int = self._prompt.get_vocab_size(with_added_tokens=True)
        self.eos_ids: frozenset[int] = self._end_ids(eos_ids)
        self.has_chat_template: bool = bool(self._template)
        spec = getattr(hf, "spec", "") or self._prompt.to_str()  # which takes a fifth of a second for large ones
        self.fingerprint: str = hashlib.sha256(f"{spec}\0{self._template}".encode()).hexdigest()

    def has_vocabulary_of(self, other: Tokenizer) -> bool:
        """True if every id stands for the same token in both; templates may differ."""
        return bool(self._prompt.get_vocab() == other._prompt.get_vocab())

    def encode(self, text: str) -> tuple[Int32Array, Int32Array]:
        """Text of a document or a question, without any token added.

        Returns:
            ids, shape (n,), int32, and their character spans [start, end) in `text`, shape (n, 2), int32.
            Tokens that are parts of one character share its span; a character that the vocabulary has no
            bytes for (in SmolLM2 a few control characters) has no token. No id is in `control_ids`.
        """
        ids: list[Int32Array] = [np.empty(0, np.int32)]
        spans: list[Int32Array] = [np.empty((0, 2), np.int32)]
        for start, piece in self._pieces(text):
            encoding = self._plain.encode(_encodable(piece), add_special_tokens=False)
            ids.append(np.array(encoding.ids, dtype=np.int32))
            spans.append(np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2) + np.int32(start))
            del encoding  # before the next one is made
        return np.concatenate(ids), np.concatenate(spans)

    def encode_prompt(self, text: str) -> list[int]:
        """Text that we wrote ourselves: control tokens in it are parsed, none is added."""
        return self._prompt.encode(_encodable(text), add_special_tokens=False).ids

    def decode(self, ids: Iterable[int], *, skip_control: bool = True) -> str:
        """The text of `ids`; bytes that form no character come out as U+FFFD."""
        return self._prompt.decode([int(token) for token in ids], skip_special_tokens=skip_control)

    def words(self, ids: npt.NDArray[np.integer]) -> Int32Array:
        """The word that each id (n,) stands for, (n,) int32 from 0 on; -1 where it has no letter and no digit.

        Ids whose texts differ in case or in blanks around them stand for one word. A model may have more ids than its
        tokenizer: those stand for none.
        """
        return self._words[np.minimum(ids, self.vocab_size)]

    @cached_property
    def _words(self) -> Int32Array:
        """The word of each id, and one more that is none, (vocab_size + 1,)."""
        texts = self._prompt.decode_batch([[token] for token in range(self.vocab_size)], skip_special_tokens=True)
        words: dict[str, int] = {}
        number = np.full(self.vocab_size + 1, -1, np.int32)
        for token, text in enumerate(texts):
            word = text.strip().casefold()
            if any(map(str.isalnum, word)):
                number[token] = words.setdefault(word, len(words))
        return number

    def stream_decoder(self) -> StreamDecoder:
        """A decoder that takes one id at a time."""
        return StreamDecoder(self.decode)

    def leading_ids(self) -> list[int]:
        """Ids that the tokenizer itself puts before a text (a begin token), when no template does."""
        with_added = self._prompt.encode("a", add_special_tokens=True).ids
        plain = self._prompt.encode("a", add_special_tokens=False).ids
        for start in range(len(with_added) - len(plain) + 1):
            if with_added[start : start + len(plain)] == plain:
                return with_added[:start]
        return []

    def chat_parts(self, *, use_template: bool = True, grounded: bool = False) -> ChatParts:
        """The ids around a document and its questions.

        Args:
            use_template: False gives plain completion even when the model has a chat template.
            grounded: each question asks for an answer from the document.

        Raises:
            ModelError: the template does not show the document and the question in this order.
        """
        return chat_parts(self, self._hf if use_template and self.has_chat_template else None, grounded=grounded)

    def _pieces(self, text: str) -> Iterator[tuple[int, str]]:
        start = 0
        while len(text) - start > _PIECE_CHARS:
            most = start + _MAX_PIECE_CHARS
            match = _PIECE_END.search(text, start + _PIECE_CHARS, most) if self._can_cut else None
            if match is None and len(text) <= most:
                break
            cut = match.start() if match else text.find(" ", start + _PIECE_CHARS, most)
            cut = most if cut < 0 else cut
            yield start, text[start:cut]
            start = cut
        if start < len(text):
            yield start, text[start:]

    def _is_linewise(self) -> bool:
        """True if encoding line by line gives the same ids: not so when each text gets a space in front."""

        def ids(text: str) -> list[int]:
            return self._plain.encode(text, add_special_tokens=False).ids

        return ids("one.\ntwo") == ids("one.\n") + ids("two")

    def _end_ids(self, more: Iterable[int]) -> frozenset[int]:
        known = [self._prompt.token_to_id(name) for name in _END_TOKENS]
        # Others are text: Gemma 3 has a token of that name for the end of what HTML strikes out.
        ends = [token for token in known if token in self.control_ids]
        own = self._prompt.token_to_id(self._hf.eos_token or "")
        return frozenset(token for token in [own, *ends, *more] if token is not None)


class StreamDecoder:
    """Collects ids and gives out text as soon as it cannot change any more.

    Args:
        decode: ids to text, the tokenizer's.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._num_shown = 0  # characters of decode(self._ids) already given out

    def push(self, token_id: int) -> str:
        """The text that `token_id` completes; "" while a character of several bytes is unfinished."""
        self._ids.append(token_id)
        text = self._decode(self._ids)
        # The last few bytes may be the beginning of a character. A run of U+FFFD is held as a whole:
        # decoders with byte fallback judge consecutive byte tokens together.
        is_overdue = len(self._ids) > _CONTEXT + _MAX_PENDING
        settled = text if is_overdue else text.rstrip(_UNKNOWN)
        piece = settled[self._num_shown :]
        self._num_shown += len(piece)
        if settled == text:
            self._forget()
        return piece

    def flush(self) -> str:
        """Return the text still held back; the decoder starts from nothing."""
        piece = self._decode(self._ids)[self._num_shown :]
        self._ids, self._num_shown = [], 0
        return piece

    def _forget(self) -> None:
        """Drop ids that are decoded for good, where the rest decodes alone: else cost grows with the answer."""
        if len(self._ids) < 2 * _CONTEXT:
            return
        context = self._ids[-_CONTEXT:]
        text = self._decode(context)
        if _UNKNOWN not in text or len(self._ids) > _CONTEXT + _MAX_PENDING:
            self._ids, self._num_shown = context, len(text)


def _encodable(text: str) -> str:
    """The same text, a character for a character, where halves of surrogate pairs become U+FFFD.

    A terminal, JSON and names of files may bring such halves, and no UTF-8 can say them.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return _HALVES.sub("\ufffd", text)
    return text
