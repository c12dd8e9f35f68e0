"""`ondevice bench ingest`, `decode`, `equip`, `slim`, `art`, `specprefill`: ours and the others in one run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ondevice.cli.options import AsJson, OutFile, PotOptions, numbers
from ondevice.cli.progress import ProgressDisplay
from ondevice.cli.running import begin, finish, load_engine
from ondevice.cli.terminal import err, say, told
from ondevice.errors import ConfigError

if TYPE_CHECKING:
    from ondevice.bench.reference import Reference
    from ondevice.config import EngineConfig
    from ondevice.documents import Document
    from ondevice.engine import Engine

_TOKENS, _QUICK_TOKENS = 65_536, 4_096
_SLIM_TOKENS = 32_768
_TOKENS_PER_SEGMENT = 4_096  # between two prefills of transformers
_CACHED, _QUICK_CACHED = "1024,2000", "1024"
_MIN_SEGMENTS, _MAX_SEGMENTS = 2, 32

Quick = Annotated[bool, typer.Option("--quick", help="The same on small sizes, in under a minute.")]
Text = Annotated[Path | None, typer.Option(help="Read this document instead of generated text.")]


def ingest(
    options: PotOptions,
    tokens: Annotated[
        int | None, typer.Option(help="Tokens to read.", show_default="65536, or the whole of --text")
    ] = None,
    text: Text = None,
    quick: Quick = False,
    out_file: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """Reading speed and memory of the pot, beside transformers' full KV cache on a prompt of 2,048 tokens."""
    with told(as_json), ProgressDisplay(err()) as display:
        from ondevice.bench.ingest import Reading, rows_of, run_ingest, summary_of

        config = options.config()
        if config.pot.policy == "full":
            raise ConfigError("--policy full has no pot to measure", fix="It is the other contender; choose a pot.")
        engine, reference = _contenders(config, display)
        document = _document(text, tokens or (_QUICK_TOKENS if quick else None), engine, display)
        size = tokens or (_QUICK_TOKENS if quick else _TOKENS)
        result = begin(engine)
        num_segments = min(max(size // _TOKENS_PER_SEGMENT, _MIN_SEGMENTS), _MAX_SEGMENTS)
        for item in run_ingest(engine, reference, document, num_segments):
            if isinstance(item, Reading):
                result = replace(result, rows=rows_of(item, engine), summary=summary_of(item))
            else:
                display.apply(item)
        display.clear()
        finish(result, out_file, as_json)


def decode(
    options: PotOptions,
    cached: Annotated[str, typer.Option(help="Tokens in the cache when decoding starts.", show_default=_CACHED)] = "",
    new_tokens: Annotated[int, typer.Option(help="Tokens to decode in each round.", min=8)] = 64,
    rounds: Annotated[int, typer.Option(help="Rounds; each measures all contenders.", min=1)] = 5,
    llama_cpp: Annotated[
        Path | None, typer.Option(help="A .gguf file that llama.cpp is to decode, too (needs xllamacpp).")
    ] = None,
    quick: Quick = False,
    out_file: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """Decoding speed from the pot, beside model.generate of transformers at the same cache length."""
    with told(as_json), ProgressDisplay(err()) as display:
        import torch

        from ondevice.bench.decode import rows_of, run_decode, summary_of
        from ondevice.bench.source import generated

        lengths = numbers("--cached", cached or (_QUICK_CACHED if quick else _CACHED), int)
        if quick:
            new_tokens, rounds = min(new_tokens, 32), min(rounds, 3)
        if min(lengths) < 1:
            raise ConfigError(f"--cached is {cached!r}", fix="Give token counts of 1 and more.")
        engine, reference = _contenders(options.config(), display)
        tokenizer = engine.loaded.tokenizer
        text = "".join(page.text for page in generated(max(lengths) + 1, tokenizer, options.seed).pages)
        ids = torch.as_tensor(tokenizer.encode(text)[0], dtype=torch.int64).to(engine.loaded.device)[None]
        result, decodings = begin(engine), []
        for length in lengths:
            stage = f"Decoding with {length:,} cached tokens"
            display.stage(stage, 0.0)
            for done, decoding in run_decode(engine, reference, ids[:, : length + 1], new_tokens, rounds):
                display.stage(stage, done / rounds, f"{decoding.pot_speeds[-1]:.1f} tokens/s")
            decodings.append(decoding)
        if llama_cpp is not None:
            from ondevice.bench.llama_cpp import LlamaCpp

            display.stage("Decoding with llama.cpp", None)
            llama = LlamaCpp(llama_cpp, max(lengths) + new_tokens + 64, torch.get_num_threads())
            for length, decoding in zip(lengths, decodings, strict=True):
                prompt = ids[0, : length + 1].tolist()
                decoding.llama_speeds += [llama.decode(prompt, new_tokens) for _ in range(rounds)]
            llama.close()
        display.clear()
        result = replace(result, rows=rows_of(decodings), summary=summary_of(decodings))
        finish(result, out_file, as_json)


def equip(
    options: PotOptions,
    parts: Annotated[str, typer.Option(help="Some of proofs,updates,decoding.", show_default="all")] = "",
    quick: Quick = False,
    out_file: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """A full cache updated in place, beside StreamingLLM and H2O with their copies; about 45 minutes on two cores.

    The model named is the one of the proofs, and the one with grouped heads; the other gets random weights.
    """
    with told(as_json), ProgressDisplay(err()) as display:
        from ondevice.bench.equip import FULL, PARTS, QUICK, run_equip, summary_of
        from ondevice.bench.turns import LeftOut

        chosen = parts.split(",") if parts else PARTS
        if unknown := set(chosen) - set(PARTS):
            raise ConfigError(f"--parts names {', '.join(sorted(unknown))}", fix=f"Name some of {', '.join(PARTS)}.")
        plan, rows = QUICK if quick else FULL, []
        engine = load_engine(options.config(), display)
        result = begin(engine)
        for item in run_equip(engine.loaded, plan, options.seed, display.stage, chosen):
            if isinstance(item, LeftOut):
                display.clear()
                say(item.reason, "yellow")
            else:
                rows += item
        display.clear()
        finish(replace(result, rows=tuple(rows), summary=summary_of(rows, plan)), out_file, as_json)


def slim(
    options: PotOptions,
    tokens: Annotated[int | None, typer.Option(help="Tokens to read.", show_default="32768")] = None,
    text: Text = None,
    quick: Quick = False,
    out_file: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """A pot that prunes hidden states while it reads, beside the same pot without; --slim is the schedule."""
    with told(as_json), ProgressDisplay(err()) as display:
        from ondevice.bench.slim import SlimReading, memory_rows, rows_of, run_reading, summary_of
        from ondevice.method_config import SlimConfig

        config = options.config()
        schedule = config.slim if config.slim.schedule != "off" else SlimConfig("auto")
        engine = load_engine(config, display)
        size = tokens or (_QUICK_TOKENS if quick else _SLIM_TOKENS)
        document = _document(text, size, engine, display)
        result, reading = begin(engine), SlimReading()
        for reading in run_reading(engine, document, schedule):
            display.stage("Reading with both", reading.num_tokens / size)
        if not reading.slim_speeds:
            raise ConfigError(f"{size:,} tokens do not fill the pot", fix="Read more with --tokens.")
        display.stage("Measuring whole prompts", 0.0)
        memory, saving = memory_rows(engine.loaded.device)
        display.clear()
        rows = (*rows_of(reading, engine, schedule), *memory)
        finish(replace(result, rows=rows, summary=summary_of(reading) | saving), out_file, as_json)


def art(
    options: PotOptions,
    text: Text = None,
    quick: Quick = False,
    out_file: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """Decode attention with an early end, beside the same without, on caches that have read a document.

    The thresholds are those of `ondevice calibrate`, where there are any for the model.
    """
    with told(as_json), ProgressDisplay(err()) as display:
        from ondevice.bench.art import FULL, QUICK, run_art, summary_of
        from ondevice.model.calibration import thresholds

        engine = load_engine(replace(options, art=True).config(), display)
        plan, rows = QUICK if quick else FULL, []
        document = _document(text, plan.num_tokens, engine, display)
        result, art, model = begin(engine), engine.config.art, engine.loaded.fingerprint
        result.config["art"]["thresholds"] = {cache.name: thresholds(model, art, cache.pot) for cache in plan.caches}
        for part in run_art(engine, document, plan, display.stage):
            rows += part
        display.clear()
        finish(replace(result, rows=tuple(rows), summary=summary_of(rows)), out_file, as_json)


def specprefill(
    options: PotOptions,
    text: Text = None,
    tokens: Annotated[int | None, typer.Option(help="Tokens of the prompt.", show_default="2048")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of prompts; each measures all shares.", min=1)] = 3,
    prompts: Annotated[int | None, typer.Option(help="Prompts of speculative decoding.", show_default="50")] = None,
    new_tokens: Annotated[int | None, typer.Option(help="Tokens of each answer.", show_default="128")] = None,
    quick: Quick = False,
    out_file: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """Time to the first token with SpecPrefill, beside the paper's estimate, and answers written with drafts.

    The first token comes from random weights of the proportions of a 1B and an 8B model and, without --speculator, from
    the model named and its first layers; drafts from the speculator of --speculator and --speculator-layers. About 25
    minutes on two cores.
    """
    with told(as_json), ProgressDisplay(err()) as display:
        from ondevice.bench import specprefill as ttft
        from ondevice.bench import speculative

        engine = load_engine(options.config(), display)
        size = tokens or (256 if quick else 2048)
        num_prompts, num_new = prompts or (2 if quick else 50), new_tokens or (16 if quick else 128)
        result, rows = begin(engine), []
        device, dtype = engine.decoder.device, engine.decoder.dtype
        pairs = [ttft.random_pair("llama-3.1-8b-small", "llama-3.2-1b-small", device=device, dtype=dtype)]
        if not engine.config.spec.model:
            speculator = engine.speculator(replace(engine.config.spec, keep=0.5))
            assert speculator is not None
            width, depth = engine.loaded.model.config.intermediate_size, len(speculator.parts.layers)
            pairs.append(ttft.own_pair(engine.decoder, width, engine.loaded.name, depth))
        rounds = 1 if quick else rounds
        for pair in pairs:
            for num_lookahead in (0,) if quick else (0, 8):
                display.stage(f"Reading prompts with {pair.name}", None)
                rows += ttft.run_ttft(pair, size, num_lookahead=num_lookahead, step_size=options.step, rounds=rounds)
        document = _document(text, 512 if quick else 1024, engine, display)
        display.stage("Reading with and without drafts", None)
        decoding = speculative.run_reading(engine, document, rounds)
        answers: list[list[speculative.Answer]] = []
        for one in speculative.run_speculative(engine, document, num_prompts, num_new):
            answers.append(one)
            display.stage("Answering with and without drafts", len(answers) / num_prompts)
        display.clear()
        decoding += speculative.rows_of(answers, num_new)
        summary = ttft.summary_of(rows) | speculative.summary_of(decoding)
        finish(replace(result, rows=(*rows, *decoding), summary=summary), out_file, as_json)


def _contenders(config: EngineConfig, display: ProgressDisplay) -> tuple[Engine, Reference]:
    """The engine, and transformers with weights of its own that no engine has touched."""
    from ondevice.bench.reference import Reference
    from ondevice.model.load import load_model

    engine = load_engine(config, display)
    untouched = load_model(
        config.model,
        device=config.device,
        dtype=config.dtype,
        quantization=config.quantization,
        on_progress=display.stage,
    )
    return engine, Reference(untouched)


def _document(text: Path | None, num_tokens: int | None, engine: Engine, display: ProgressDisplay) -> Document:
    from ondevice.bench.source import beginning, generated
    from ondevice.cli.opening import open_document

    tokenizer = engine.loaded.tokenizer
    if text is None:
        return generated(num_tokens or _TOKENS, tokenizer, engine.config.seed)
    document = open_document(str(text), False, display)
    return document if num_tokens is None else beginning(document, num_tokens, tokenizer)
