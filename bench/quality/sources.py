"""Truth of the sources of an answer: a sentence is hidden in a text and asked for; is it among them?

Each trial hides another sentence at another depth, so that nothing but attention can show where it is. Rules by which
passages could be chosen are compared over the same answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from ondevice.config import EngineConfig, GenerationConfig
from ondevice.decode.passages import strongest_passages
from ondevice.decode.sources import Look, look_back, token_weights
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.events import AnswerFinished, AnswerToken, Event
from ondevice.session.engine import Engine, Session
from ondevice_bench.quality.measurement import Measurement
from ondevice_bench.results.result import Row, row

NUM_SOURCES = 3
_NEW_TOKENS = 40
_PLACES = (
    "Lisbon", "Oslo", "Vienna", "Prague", "Cairo", "Lima", "Dublin", "Zurich", "Athens", "Madrid", "Warsaw", "Helsinki",
    "Tokyo", "Bogota", "Nairobi", "Havana", "Quito", "Ankara", "Riga", "Sofia", "Dakar", "Hanoi", "Delhi", "Perth",
)  # fmt: skip

RULES: dict[str, Callable[[Look], list[Tensor]]] = {
    "all attention": lambda look: look.answer,
    "beyond a neutral text": lambda look: look.beyond_neutral(first_layer=0),
    "beyond a neutral text, later layers": lambda look: look.beyond_neutral(),
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One hidden sentence.

    Attributes:
        number: of the trial.
        depth: where the sentence stands, as a share of the text.
        is_right: whether the answer holds what was asked for.
        ranks: for each rule which of its sources, from 1 on, holds the sentence; None: none of them.
    """

    number: int
    depth: float
    is_right: bool
    ranks: dict[str, int | None]


def sources_config(config: EngineConfig) -> EngineConfig:
    """The settings with which sources are measured: those given, greedy, and looked for by us."""
    generation = GenerationConfig(
        max_new_tokens=_NEW_TOKENS, chat=config.generation.chat, num_sources=0, grounded=False
    )
    return replace(config, generation=generation)


def run_sources(engine: Engine, text: str, num_trials: int) -> Iterator[Event | Trial]:
    """Events of each trial, with its `Trial` after them.

    Args:
        engine: with settings from `sources_config`.
        text: in which sentences are hidden, between two of its paragraphs.

    Raises:
        ConfigError: it has too few paragraphs.
    """
    paragraphs = text.split("\n\n")
    if len(paragraphs) < 3:
        raise ConfigError("The text has fewer than 3 paragraphs", fix="Name another file.")
    for number in range(num_trials):
        chance = random.Random(f"{engine.config.seed} {number}")
        place, secret = _PLACES[number % len(_PLACES)], chance.randint(10_000, 99_999)
        sentence = f"The secret number of {place} is {secret}."
        at = chance.randrange(1, len(paragraphs))
        whole = "\n\n".join((*paragraphs[:at], sentence, *paragraphs[at:]))
        session = engine.session()
        yield from session.read(Document("hidden", "txt", "part", (Page(1, whole),), 1, len(whole)))
        start = whole.index(sentence)
        question, answer, written = f"What is the secret number of {place}?", "", []
        for event in session.ask(question):
            yield event
            if isinstance(event, AnswerToken):
                written.append(event.token_id)
            elif isinstance(event, AnswerFinished):
                answer = event.text
        ranks = _ranks(session, question, written, start, start + len(sentence))
        yield Trial(number, start / len(whole), str(secret) in answer, ranks)


def rows_of(trials: Sequence[Trial]) -> tuple[Row, ...]:
    """Two rows for each trial and rule."""
    rows = []
    for trial in trials:
        case = {"answer": "right" if trial.is_right else "wrong", "trial": trial.number}
        for rule, rank in trial.ranks.items():
            rows.append(row(rule, case, "first source", "share", [float(rank == 1)]))
            rows.append(row(rule, case, f"among {NUM_SOURCES} sources", "share", [float(rank is not None)]))
    return tuple(rows)


def summary_of(trials: Sequence[Trial]) -> dict[str, float]:
    """Shares over all trials: of right answers, and for the rule in use of sentences that were found."""
    *_, rule = RULES
    found = [trial.ranks[rule] for trial in trials]
    return {
        "first_source_share": sum(rank == 1 for rank in found) / len(trials),
        "top_sources_share": sum(rank is not None for rank in found) / len(trials),
        "right_answers_share": sum(trial.is_right for trial in trials) / len(trials),
    }


def _ranks(session: Session, question: str, written: list[int], start: int, stop: int) -> dict[str, int | None]:
    """For each rule the first of its sources that shares a character with characters [start, stop) of the page."""
    if not written:
        return dict.fromkeys(RULES)
    tokens = session.context.tokens
    look = look_back(session.context, session.context.chat.question(question), written, lambda: False)
    ranks: dict[str, int | None] = {}
    for rule, choose in RULES.items():
        scores = token_weights(session.context, choose(look))
        found = strongest_passages(tokens, scores, scores, NUM_SOURCES)
        hits = (i for i, source in enumerate(found, 1) if source.start_char < stop and source.stop_char > start)
        ranks[rule] = next(hits, None)
    return ranks


MEASUREMENT = Measurement[Trial](
    lambda setup, options: run_sources(
        setup.engine, "\n\n".join(page.text for page in setup.open(options.text).pages), options.trials
    ),
    lambda trials, _: rows_of(trials),
    summary_of,
    config=lambda given, _: sources_config(given()),
    line=lambda trial: (
        f"depth {trial.depth:.2f}, answer {'right' if trial.is_right else 'wrong'}, found: "
        + ", ".join(f"{rule} {rank or 'not'}" for rule, rank in trial.ranks.items())
    ),
)
