"""Long work on a tiny model: millions of tokens into one pot, and a thousand questions to it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import psutil

from ondevice.config import EngineConfig, GenerationConfig, PotConfig, TierConfig
from ondevice.documents import Document, Page
from ondevice.events import AnswerFinished, TokensRead
from ondevice.machine.process import return_free_memory
from ondevice.session.engine import Engine, Session
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.generated_text import generated_pages

Progress = Callable[..., None]

_WARM_SHARE = 0.1  # of the work, after which memory has to stay
_READING, _ASKING = "reading without end", "questions to one pot"


def soak_config(config: EngineConfig, tier_bytes: int = 0) -> EngineConfig:
    """Settings of both."""
    pot = PotConfig(capacity=8192, num_kept=512, reserve=256, step_size=2048)
    return replace(config, pot=pot, tier=TierConfig(budget_bytes=tier_bytes))


def read_on(engine: Engine, num_tokens: int, report: Progress) -> list[Row]:
    """A stream of at least `num_tokens` tokens: memory between a tenth of it and its end, and the ledger."""
    session = engine.session(soak_config(engine.config))
    encode, num_made = engine.loaded.tokenizer.encode, 0
    began, memory, num_read = time.perf_counter(), _Memory(num_tokens), 0

    def until_read() -> Iterator[Page]:
        nonlocal num_made
        for page in generated_pages(engine.config.seed):
            if num_read >= num_tokens:
                return
            num_made += len(encode(page.text)[0])
            yield page

    for event in session.read(Document("a stream", "txt", "part", until_read())):
        if isinstance(event, TokensRead):
            num_read = event.num_read
            report("Reading without end", min(num_read / num_tokens, 1.0))
            memory.note(num_read)
    case = {"tokens": num_read}
    return [
        row(_READING, case, "memory grew after a tenth", "%", [memory.growth_percent]),
        row(_READING, case, "memory grew after a tenth", "bytes", [memory.most - memory.least]),
        row(_READING, case, "the ledger counts every token", "yes", [float(_is_exact(session, num_made))]),
        row(_READING, case, "distillations", "times", [session.context.num_cycles]),
        row(_READING, case, "tokens a second", "tokens/s", [num_read / (time.perf_counter() - began)]),
    ]


def ask_on(engine: Engine, num_questions: int, report: Progress) -> list[Row]:
    """Questions to one pot with its host tier: the pot before and after, bit for bit, and memory."""
    session = engine.session(soak_config(engine.config, 4_000_000))
    pages = tuple(page for page, _ in zip(generated_pages(engine.config.seed), range(6), strict=False))
    for _ in session.read(Document("a text", "txt", "part", pages, len(pages), 1)):
        pass
    generation = replace(engine.config.generation, max_new_tokens=8)
    before, memory, answers = _digest(session), _Memory(num_questions), set[str]()
    for number in range(num_questions):
        answers.add(_answer(session, generation))
        report("Asking", (number + 1) / num_questions)
        memory.note(number + 1)
    case = {"questions": num_questions}
    return [
        row(_ASKING, case, "the pot is the same bit for bit", "yes", [float(_digest(session) == before)]),
        row(_ASKING, case, "different answers to one question", "answers", [len(answers)]),
        row(_ASKING, case, "memory grew after a tenth", "%", [memory.growth_percent]),
        row(_ASKING, case, "memory grew after a tenth", "bytes", [memory.most - memory.least]),
    ]


def _answer(session: Session, generation: GenerationConfig) -> str:
    *_, finished = session.ask("Which colour has the door of the lamp room?", generation)
    return finished.text if isinstance(finished, AnswerFinished) else ""


def _digest(session: Session) -> str:
    digest = hashlib.sha256()
    state = session.context.pot.state()
    for name in sorted(state):
        digest.update(name.encode() + state[name].contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()


class _Memory:
    """Memory of this process between a tenth of the work and its end, without what it has freed and not given back.

    Args:
        num_steps: of the work.
    """

    def __init__(self, num_steps: int) -> None:
        self._num_steps, self._next, self.least, self.most = num_steps, _WARM_SHARE * num_steps, 0, 0

    def note(self, step: int) -> None:
        """The work has come so far; looked at fifty times in all."""
        if step >= self._next:
            return_free_memory()
            used = int(psutil.Process().memory_info().rss)
            self.least, self.most = self.least or used, max(self.most, used)
            self._next = step + self._num_steps / 50

    @property
    def growth_percent(self) -> float:
        return 100 * (self.most / self.least - 1) if self.least else 0.0


def _is_exact(session: Session, num_tokens: int) -> bool:
    """True if each of so many tokens is in one count of the ledger, and no head holds one twice, or another one."""
    context, ledger, pot = session.context, session.context.ledger, session.context.pot
    num_gone = ledger.tokens_evicted + ledger.tokens_pruned + ledger.tokens_skipped + ledger.tokens_unread
    held: list[list[int]] = [
        [one for one in head.tolist() if one >= 0]
        for part, used in enumerate(pot.num_cached)
        for head in pot.origin[part, 0, :, :used]
    ]
    return (
        num_tokens == context.num_read == ledger.tokens_read == ledger.tokens_total
        and ledger.tokens_kept + num_gone == num_tokens
        and ledger.tokens_kept == len({one for head in held for one in head})
        and all(len(set(head)) == len(head) and max(head, default=0) < num_tokens for head in held)
    )
