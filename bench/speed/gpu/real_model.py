"""A real model on the device: does it predict text as in float32 on the CPU, how fast does it read, and answer."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

from ondevice.config import DtypeName, EngineConfig, GenerationConfig, PotConfig
from ondevice.documents import Document, Page
from ondevice.events import AnswerToken
from ondevice.model.loading.load import LoadedModel, load_model
from ondevice.session.engine import Engine
from ondevice_bench.results.result import row
from ondevice_bench.speed.gpu.run import Run
from ondevice_bench.speed.natural_text import paragraphs

_COMPARED = 1024  # tokens
_POT = PotConfig(capacity=4096, num_kept=2048)
_PARAGRAPHS = 400  # some 35,000 tokens
_QUESTION, _NEW_TOKENS = "Who is named most often?", 64


def measure_model(
    run: Run,
    model: Path,
    *,
    num_compared: int = _COMPARED,
    num_paragraphs: int = _PARAGRAPHS,
    pot: PotConfig = _POT,
) -> None:
    """Compare and time the checkpoint at `model`, a folder with safetensors or a .gguf file."""
    is_gpu = run.device.type == "cuda"
    dtype: DtypeName = "bfloat16" if is_gpu else "float32"
    loaded = load_model(str(model), device="cuda" if is_gpu else "cpu", dtype=dtype)
    exact = load_model(str(model), device="cpu", dtype="float32", quantization="none")
    text = "\n\n".join(itertools.islice(paragraphs(), num_paragraphs))
    case = {"model": model.name, "tokens": num_compared}
    expected, loss = (_loss(one, text, num_compared) for one in (exact, loaded))
    run.add([row("float32 on the CPU", case, "loss", "nats", [expected]), row("device", case, "loss", "nats", [loss])])
    run.summary["model_loss_difference"] = loss - expected
    del exact
    engine = Engine(loaded, EngineConfig(pot=pot, dtype=dtype))
    session = engine.session()
    began = time.perf_counter()
    for _ in session.read(Document("text.txt", "txt", "part", (Page(1, text),), 1, len(text))):
        pass
    num_read = session.context.num_read
    case |= {"tokens": num_read}
    run.summary["model_reading_speed"] = num_read / (time.perf_counter() - began)
    run.add([row("pot", case, "reading speed", "tokens/s", [run.summary["model_reading_speed"]])])
    times = list[float]()
    for event in session.ask(
        _QUESTION, GenerationConfig(temperature=0.0, max_new_tokens=_NEW_TOKENS, num_passage_tokens=0)
    ):
        if isinstance(event, AnswerToken):
            times.append(time.perf_counter())
    if len(times) > 1:  # the model may have nothing to say
        run.summary["model_decoding_speed"] = (len(times) - 1) / (times[-1] - times[0])
        run.add([row("pot", case, "decoding speed", "tokens/s", [run.summary["model_decoding_speed"]])])


def _loss(loaded: LoadedModel, text: str, num_tokens: int) -> float:
    """Mean cross-entropy of the first tokens of a text, in nats."""
    engine = Engine(loaded, EngineConfig())
    ids = engine.decoder.ids(loaded.tokenizer.encode(text[: 16 * num_tokens])[0][: num_tokens + 1])
    out = engine.decoder.forward(ids[:, :-1], engine.decoder.new_pot(ids.shape[1]))
    return float(engine.decoder.head.token_loss(out.hidden_states, ids[:, 1:]).mean())
