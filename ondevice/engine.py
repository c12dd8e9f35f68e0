"""The engine: a loaded model that reads documents into pots and answers from them.

`Engine` owns the model and hands out sessions; `Session` owns one document, its pot and the reading cursor.
`read`, `ask` are generators of events: they never print, and closing one leaves the session usable.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from ondevice.config import EngineConfig, GenerationConfig
from ondevice.documents.tokens import DocumentTokens
from ondevice.documents.types import Document
from ondevice.errors import ConfigError, EmptyDocument, PotError
from ondevice.events import (
    AnswerFinished,
    AnswerToken,
    DocumentOpened,
    DocumentRead,
    Event,
    Ledger,
    PotDistilled,
    QuestionRead,
    TextTokenized,
    TokensRead,
)
from ondevice.model.decoder import Decoder
from ondevice.model.load import LoadedModel, load_model
from ondevice.model.sampling import sample
from ondevice.model.wheel import Progress
from ondevice.pot.catalyst import catalyst_prompt
from ondevice.pot.distill import distill
from ondevice.pot.memory_pot import PROMPT, MemoryPot
from ondevice.pot.policies import make_policy
from ondevice.pot.retention import count_heads, tokens_per_layer
from ondevice.pot.undo import UndoLog


class Engine:
    """A model in memory, one lane: one session works at a time.

    Args:
        loaded: the model, from `load_model`.
        config: settings of the sessions made here.
    """

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        self.loaded = loaded
        self.config = config
        self.decoder = Decoder(loaded.model)

    @classmethod
    def load(cls, config: EngineConfig, on_progress: Progress | None = None) -> Engine:
        """Load the model named in the settings."""
        loaded = load_model(
            config.model,
            device=config.device,
            dtype=config.dtype,
            quantization=config.quantization,
            on_progress=on_progress,
        )
        return cls(loaded, config)

    def session(self, config: EngineConfig | None = None) -> Session:
        """A new session with an empty pot; `config` replaces the engine's settings, for the same model."""
        return Session(self, config or self.config)


class Session:
    """One document in one pot.

    Attributes:
        pot: the memory pot; None until a document is opened with policy `full`, whose pot has the document's size.
        tokens: tokens and provenance of the document; None before one is opened.
        num_read: document tokens that went through the model.
        num_skipped: document tokens that policy `truncate` leaves out.
        num_cycles: distillations so far.
    """

    def __init__(self, engine: Engine, config: EngineConfig) -> None:
        self.engine, self.config = engine, config
        self.tokens: DocumentTokens | None = None
        self.pot: MemoryPot | None = None
        self.num_read = self.num_skipped = self.num_cycles = 0
        tokenizer = engine.loaded.tokenizer
        self.parts = tokenizer.chat_parts(use_template=config.generation.chat)
        self._decoder = engine.decoder
        self._policy = make_policy(config.pot, config.seed)
        self._catalyst = tokenizer.encode(catalyst_prompt(config.pot))[0] if self._observes("catalyst") else []
        if len(self._catalyst) > config.pot.reserve:
            raise ConfigError(
                f"The catalyst prompt has {len(self._catalyst)} tokens, more than --reserve {config.pot.reserve}",
                fix="Shorten it or raise --reserve.",
            )
        self._num_protected = max(len(self.parts.prefix), config.pot.num_sink_tokens)
        if self._num_protected >= (config.pot.adaptive_keep or (config.pot.num_kept,))[0]:
            raise ConfigError(
                f"The model's prompt and the sinks take {self._num_protected} slots, all that --keep leaves",
                fix="Raise --keep, or ask without the chat template.",
            )
        self._spans: list[tuple[int, int]] = []  # document tokens still to be read
        # Hidden states and ids of the tokens whose novelty is not computed yet, and the state before them.
        self._unscored: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._state_before: torch.Tensor | None = None
        if config.pot.policy != "full":
            self.pot = self._decoder.new_pot(config.pot.capacity)

    @property
    def num_heads_total(self) -> int:
        """(layer, KV head) pairs of the model: the most that can hold one token."""
        return len(self._decoder.parts.layers) * self._decoder.parts.num_kv_heads

    # -- reading ---------------------------------------------------------------------------------

    def read(self, document: Document) -> Iterator[Event]:
        """Read a document into the pot. Closing the generator stops; `resume` goes on from there.

        Raises:
            EmptyDocument: there is not one token in it.
            PotError: this session has a document already, or the policy cannot read a stream.
        """
        yield from self.open(document)
        yield from self.resume()

    def open(self, document: Document) -> Iterator[Event]:
        """Tokenise a document and plan its reading, without reading it yet; raises as `read`."""
        if self.tokens is not None:
            raise PotError("This session has read a document already", fix="Start a new session for another one.")
        tokens = DocumentTokens(document, self.engine.loaded.tokenizer.encode)
        yield DocumentOpened(document.name, document.kind, document.unit, document.num_pages, document.size_bytes)
        start = time.perf_counter()
        if tokens.keeps_text:
            for done in tokens.read_pages():
                yield TextTokenized(done, document.num_pages, tokens.num_tokens, time.perf_counter() - start)
        if not tokens.ensure(1):
            raise EmptyDocument(
                "There is no text in this document", where=document.name, fix="Scanned pages need OCR first."
            )
        self._plan(tokens)
        self.tokens = tokens

    def resume(self) -> Iterator[Event]:
        """Read on from the cursor to the end of the document."""
        tokens = self._opened()
        started = time.perf_counter()
        while self._spans:
            yield from self._read_chunk(tokens)
        yield DocumentRead(
            self.ledger, time.perf_counter() - started, self.num_cycles, self.num_heads_total, self.retention
        )

    def _plan(self, tokens: DocumentTokens) -> None:
        """Decide which tokens go through the model, make the pot that `full` needs, store the prompt in front."""
        pot_config, total = self.config.pot, tokens.num_total
        num_prefix = len(self.parts.prefix)
        if pot_config.policy in ("full", "truncate") and total is None:
            raise PotError(
                f"Policy {pot_config.policy!r} needs to know the document's length",
                where=tokens.document.name,
                fix="Save the stream to a file first, or use another policy.",
            )
        self._spans = [(0, total if total is not None else -1)]  # -1: until the stream ends
        if pot_config.policy == "full":
            assert total is not None
            self.pot = self._decoder.new_pot(num_prefix + total + pot_config.reserve)
        elif pot_config.policy == "truncate":
            assert total is not None
            half = (pot_config.capacity - pot_config.reserve - num_prefix) // 2
            if 2 * half < total:
                self._spans = [(0, half), (total - half, total)]
                self.num_skipped = total - 2 * half
        if num_prefix:
            assert self.pot is not None
            out = self._decoder.forward(self._tensor(np.array(self.parts.prefix)), self.pot)
            self._state_before = out.hidden_states[:, -1:]

    def _read_chunk(self, tokens: DocumentTokens) -> Iterator[Event]:
        """Fill the pot in steps of even size; distill it when more is to come than fits."""
        pot = self._pot()
        room = pot.num_free - self.config.pot.reserve
        start, stop = self._spans[0]
        if stop < 0:
            is_last = not tokens.ensure(start + room + 1)
            end = min(start + room, tokens.num_tokens)
        else:
            is_last = stop - start <= room
            end = min(start + room, stop)
        will_distill = not is_last or (end - start == room and len(self._spans) > 1)
        num_steps = -(-(end - start) // self.config.pot.step_size)
        for i in range(num_steps):
            step = (start + (end - start) * i // num_steps, start + (end - start) * (i + 1) // num_steps)
            yield from self._read_step(tokens, step, will_distill and i == num_steps - 1)
        if is_last:
            self._spans.pop(0)

    def _read_step(self, tokens: DocumentTokens, step: tuple[int, int], distill_after: bool) -> Iterator[Event]:
        pot, began = self._pot(), time.perf_counter()
        start, stop = step
        ids = self._tensor(tokens.ids(start, stop))
        origin = torch.arange(start, stop, dtype=torch.int32, device=self._decoder.device)
        catalyst = self._catalyst if distill_after else []
        num_observed = len(catalyst) or int(distill_after and self._observes("last-token"))
        inputs = torch.cat((ids, self._tensor(np.asarray(catalyst))), dim=1) if len(catalyst) else ids
        out = self._decoder.forward(inputs, pot, origin=origin, num_transient=len(catalyst), num_observed=num_observed)
        self._synchronize()
        forward_seconds = time.perf_counter() - began
        if self._policy.needs_novelty:
            self._unscored.append((out.hidden_states[:, : stop - start], ids))
        self.num_read += stop - start
        end_of_span = self._spans[0][1]
        self._spans[0] = (stop, end_of_span)
        read = TokensRead(
            num_read=self.num_read,
            num_total=None if end_of_span < 0 else tokens.num_total,
            num_tokens=stop - start,
            page=tokens.page_of(stop - 1),
            seconds=forward_seconds,
            num_cached=tuple(pot.num_cached),
            capacity=pot.shape.capacity,
        )
        # Both are done before either is told: whoever stops here leaves a pot with room for the next chunk.
        distilled = self._distill(out.mass) if distill_after else None
        yield read
        if distilled is not None:
            yield distilled

    def _distill(self, mass: list[torch.Tensor]) -> PotDistilled:
        began = time.perf_counter()
        self._score_novelty()
        novelty_seconds = time.perf_counter() - began
        pot = self._pot()
        result = distill(
            pot,
            self._policy,
            mass,
            self.config.pot,
            num_protected=self._num_protected,
            rotate_keys=self._decoder.rotate_keys,
        )
        self.num_cycles += 1
        self._synchronize()
        return PotDistilled(
            cycle=self.num_cycles,
            num_read=self.num_read,
            num_before=result.num_before,
            num_kept=result.num_kept,
            seconds=time.perf_counter() - began - novelty_seconds,
            novelty_seconds=novelty_seconds,
            num_heads_total=self.num_heads_total,
            retention=self.retention,
            novelty_tokens=result.novelty_tokens.cpu().numpy(),
        )

    def _score_novelty(self) -> None:
        """Give every token read since the last distillation its cross-entropy.

        It waits until then because the last chunk of a document never needs it. The first token of all has no
        predecessor and gets 0; it is a sink anyway.
        """
        if not self._unscored:
            return
        hidden = torch.cat([states for states, _ in self._unscored], dim=1)
        ids = torch.cat([ids for _, ids in self._unscored], dim=1)
        if self._state_before is not None:
            novelty = self._decoder.token_loss(torch.cat((self._state_before, hidden[:, :-1]), dim=1), ids)
        else:
            novelty = torch.nn.functional.pad(self._decoder.token_loss(hidden[:, :-1], ids[:, 1:]), (1, 0))
        self._pot().set_novelty(novelty)
        self._state_before, self._unscored = hidden[:, -1:].clone(), []

    def continue_from(self, other: Session) -> None:
        """Take over what another session has read, where both documents begin alike: nothing is read twice.

        This session has opened its document and read nothing; the first `other.num_read` tokens of the two
        documents are equal, and so are their settings. From then on both give the same results as if each had
        read its document from the beginning.
        """
        start, mine, theirs = other.num_read, self._opened(), other._opened()
        assert self.num_read == 0 and self.config == other.config
        assert np.array_equal(mine.ids(0, start), theirs.ids(0, start)), "the documents do not begin alike"
        self._pot().restore(other._pot().state(), self._decoder.rotate_keys)
        self.num_read, self.num_cycles = other.num_read, other.num_cycles
        self._unscored, self._state_before = list(other._unscored), other._state_before
        self._spans = [(start, stop) for _, stop in self._spans[:1]]

    # -- asking ----------------------------------------------------------------------------------

    def ask(self, question: str, generation: GenerationConfig | None = None) -> Iterator[Event]:
        """Answer a question from the pot, reading no document token again. Afterwards the pot is bit-identical.

        Raises:
            PotError: no document has been read, or the question does not fit.
        """
        self._opened()
        if not question.strip():
            raise PotError("The question is empty", fix="Type a question.")
        yield from self._answer(question, self.parts.question(question), generation or self.config.generation)

    def complete(self, text: str, generation: GenerationConfig | None = None) -> Iterator[Event]:
        """Continue the document with `text` and what the model adds to it, without any template; else as `ask`."""
        self._opened()
        ids = self.engine.loaded.tokenizer.encode(text)[0].tolist()
        yield from self._answer(text, ids, generation or self.config.generation)

    def _answer(self, question: str, ids: list[int], generation: GenerationConfig) -> Iterator[Event]:
        pot, began = self._pot(), time.perf_counter()
        if len(ids) > pot.num_free:
            raise PotError(
                f"The question has {len(ids)} tokens and the pot has {pot.num_free} free slots",
                fix="Shorten the question or raise --reserve.",
            )
        generator = torch.Generator(device=self._decoder.device).manual_seed(self.config.seed)
        tokenizer = self.engine.loaded.tokenizer
        stream, text, stop_reason = tokenizer.stream_decoder(), "", "length"
        undo = UndoLog(pot, self._num_protected)
        may_overflow = len(ids) + generation.max_new_tokens - 1 > pot.num_free
        num_tokens, ttft, decode_began = 0, 0.0, began
        try:
            out = self._decoder.forward(self._tensor(np.array(ids)), pot, num_observed=len(ids) if may_overflow else 0)
            if may_overflow:
                undo.rank(out.mass)
            yield QuestionRead(question, len(ids), time.perf_counter() - began)
            while True:
                logits = self._decoder.logits(out.hidden_states[:, -1])
                token = int(
                    sample(logits, temperature=generation.temperature, top_p=generation.top_p, generator=generator)
                )
                if num_tokens == 0:
                    decode_began = time.perf_counter()
                    ttft = decode_began - began
                if token in tokenizer.eos_ids:
                    stop_reason = "end"
                    break
                piece = stream.push(token)
                text += piece
                num_tokens += 1
                yield AnswerToken(token, piece, num_tokens - 1, time.perf_counter() - began)
                if num_tokens == generation.max_new_tokens:
                    break
                if pot.num_free == 0:
                    undo.make_room()
                out = self._decoder.forward(self._tensor(np.array([token])), pot)
            decode_seconds = time.perf_counter() - decode_began
        finally:
            undo.rewind()
        yield AnswerFinished(
            question=question,
            text=(text + stream.flush()).strip(),
            num_tokens=num_tokens,
            stop_reason=stop_reason,
            ttft_seconds=ttft,
            decode_seconds=decode_seconds,
            num_overwritten=undo.num_overwritten,
            ledger=self.ledger,
        )

    # -- accounts --------------------------------------------------------------------------------

    @property
    def retention(self) -> npt.NDArray[np.uint16]:
        """How many (layer, head) pairs hold each document token up to the cursor: (num_tokens,), uint16."""
        end = self._spans[0][0] if self._spans else (self.tokens.num_tokens if self.tokens else 0)
        return count_heads(self._pot().origin, end)

    @property
    def ledger(self) -> Ledger:
        """Where every token of the document is now."""
        tokens, pot = self.tokens, self.pot
        if tokens is None or pot is None:
            return Ledger()
        kept_per_layer, kept = tokens_per_layer(pot.origin)
        return Ledger(
            tokens_total=tokens.num_tokens,
            tokens_read=self.num_read,
            tokens_kept=kept,
            tokens_evicted=self.num_read - kept,
            tokens_skipped=self.num_skipped,
            tokens_unread=tokens.num_tokens - self.num_read - self.num_skipped,
            slots_used=max(pot.num_cached),
            slots_capacity=pot.shape.capacity,
            kept_per_layer=kept_per_layer,
            pages_total=tokens.num_pages,
            pages_without_text=tuple(tokens.notes),
        )

    def _pot(self) -> MemoryPot:
        if self.pot is None:
            raise PotError("There is no document in the pot yet", fix="Read a document first.")
        return self.pot

    def _opened(self) -> DocumentTokens:
        if self.tokens is None:
            raise PotError("There is no document in the pot yet", fix="Read a document first.")
        return self.tokens

    def _observes(self, what: str) -> bool:
        return self.config.pot.policy not in ("full", "truncate") and self._policy.observes == what

    def _tensor(self, ids: npt.NDArray) -> torch.Tensor:
        return torch.as_tensor(ids, dtype=torch.int64).to(self._decoder.device)[None]

    def _synchronize(self) -> None:
        if self._decoder.device.type == "cuda":
            torch.cuda.synchronize()
