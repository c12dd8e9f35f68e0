"""The commands of `ondevice bench`: a row for each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ondevice_bench.quality.entry import INTS, Entry, Option

_TEXT = Option("text", Path, "Read this document instead of generated text.")
_QUICK = Option("quick", bool, "The same on small sizes, in under a minute.", False, flag="--quick")
_SPECPREFILL = """\
Time to the first token with SpecPrefill, beside the paper's estimate.

The first token comes from random weights of the proportions of a 1B and an 8B model and, without --speculator, from
the model named and its first layers.
"""

BENCHMARKS = (
    Entry(
        "ingest",
        "ondevice_bench.speed.ingest",
        "Reading speed and memory of the pot, beside transformers' full KV cache on a prompt of 2,048 tokens.",
        (Option("tokens", int, "Tokens to read.", shown="65536, or the whole of --text"), _TEXT, _QUICK),
    ),
    Entry(
        "decode",
        "ondevice_bench.speed.decode",
        "Decoding speed from the pot, beside model.generate of transformers at the same cache length.",
        (
            Option("cached", INTS, "Tokens in the cache when decoding starts.", "", shown="1024,2000"),
            Option("new_tokens", int, "Tokens to decode in each round.", 64, min=8),
            Option("rounds", int, "Rounds; each measures all contenders.", 5, min=1),
            Option(
                "llama_cpp",
                Path,
                "A .gguf file that llama.cpp is to decode, too (needs llama-cpp-python or xllamacpp).",
            ),
            _QUICK,
        ),
    ),
    Entry(
        "quantized",
        "ondevice_bench.speed.quantized",
        "Weights in 4 to 8 bits (those of a .gguf file, or --quantization), beside float32.",
        (Option("tokens", int, "Tokens of the text for perplexity.", shown="4096"), _TEXT, _QUICK),
    ),
    Entry(
        "int4",
        "ondevice_bench.speed.int4",
        "Perplexity with weights of 4 bits as torch has them on a GPU, emulated on a CPU, beside bfloat16 and float32.",
        (Option("tokens", int, "Tokens of the text.", shown="4096"), _TEXT, _QUICK),
    ),
    Entry(
        "delta-rule",
        "ondevice_bench.speed.delta_rule",
        "A layer of Qwen3.5 with the gated delta rule on a CPU, by our kernel and by transformers.",
        (_QUICK,),
    ),
    Entry(
        "quantized-pot",
        "ondevice_bench.speed.quantized_pot",
        "Quantised pots, and saved ones, beside those in the model's type: bytes, speed, loss of the next tokens.",
        (Option("cached", INTS, "Tokens in the pot.", "", shown="1024,4096"), _TEXT, _QUICK),
    ),
    Entry(
        "plan",
        "ondevice_bench.speed.plan",
        "Memory and speed that `ondevice plan` says, beside those of a session which reads and answers.",
        (Option("capacities", INTS, "Slots of the pots.", "", shown="1024,4096,8192"), _QUICK),
    ),
    Entry(
        "memory",
        "ondevice_bench.speed.document_memory",
        "Memory that documents of several lengths take at the highest, beside --memory.",
        (Option("tokens", INTS, "Lengths of the documents.", "", shown="8192,32768,131072"), _QUICK),
    ),
    Entry(
        "roofline",
        "ondevice_bench.speed.roofline",
        "What this machine can multiply and read from memory, and the share of it that reading and decoding reach.",
        (_QUICK,),
    ),
    Entry(
        "peers",
        "ondevice_bench.speed.peers",
        """Loading, reading and answering from one .gguf file (--model), beside llama.cpp and transformers.

        llama.cpp is that of llama-cpp-python, best built on this machine, and of xllamacpp, whichever is installed;
        with flash attention and without, and the better one counts.
        """,
        (
            Option("lengths", INTS, "Tokens of the text.", "", shown="2048,8192"),
            Option("rounds", int, "Rounds; each measures all contenders.", 1, min=1),
            Option(
                "llama_cpp_python",
                Path,
                "The python of the environment that has llama-cpp-python or xllamacpp.",
                shown="this one's",
            ),
            Option("no_transformers", bool, "Without transformers.", False, flag="--no-transformers"),
            Option("limit_minutes", int, "Leave out who takes longer for a text.", min=1, shown="no limit"),
            Option(
                "kvpress",
                bool,
                "With kvpress, too, in an environment of its own: 150 MB are fetched once.",
                False,
                flag="--kvpress",
            ),
            _TEXT,
            _QUICK,
        ),
        fits_text=True,
    ),
    Entry(
        "distillation",
        "ondevice_bench.speed.distillation",
        "The share of reading that goes into choosing what stays, by the length of the text, beside a full cache.",
        (
            Option("lengths", INTS, "Tokens of the text.", "", shown="4096,8192,16384"),
            Option("contenders", str, "As for `eval ruler`.", "infinipot,infinipot-published,snapkv,repeat,full"),
            Option("rounds", int, "Rounds; each measures all contenders.", 3, min=1),
            _TEXT,
            _QUICK,
        ),
    ),
    Entry(
        "equip",
        "ondevice_bench.speed.equip.run",
        """A full cache updated in place, beside StreamingLLM and H2O with their copies; about 45 minutes on two cores.

        The model named is the one of the proofs, and the one with grouped heads; the other gets random weights.
        """,
        (Option("parts", str, "Some of proofs,updates,decoding.", "", shown="all"), _QUICK),
    ),
    Entry(
        "slim",
        "ondevice_bench.speed.slim",
        "A pot that prunes hidden states while it reads, beside the same pot without; --slim is the schedule.",
        (Option("tokens", int, "Tokens to read.", shown="32768"), _TEXT, _QUICK),
    ),
    Entry(
        "tier",
        "ondevice_bench.speed.tier",
        "A look into a full host tier, by mean keys first, beside one that compares every key; and what it takes.",
        (Option("tokens", int, "Tokens in the tier.", shown="65536"), _QUICK),
    ),
    Entry(
        "reliability",
        "ondevice_bench.speed.reliability.run",
        """Outcomes of hostile files and requests, reading without end, a thousand questions, many clients, and kills.

        About an hour and a half on two cores with the smallest model.
        """,
        (
            Option(
                "parts",
                str,
                "Some of documents,pots,entries,bodies,calls,soak,questions,clients,kills.",
                "",
                shown="all",
            ),
            _QUICK,
        ),
    ),
    Entry(
        "scale",
        "ondevice_bench.speed.scale.run",
        """Many documents: a batch beside a plain loop, two engines beside one, kills in its middle (all three need the
        extra `scale`), and a question to the index of 100,000.

        What 100,000 documents would take on up to 1,000 engines is worked out from the part `overhead`. About half an
        hour on two cores with the smallest model.
        """,
        (
            Option("parts", str, "Some of overhead,speedup,kills,index.", "", shown="all"),
            replace(_QUICK, help="The same on small sizes, in some minutes: Ray is started a dozen times."),
        ),
    ),
    Entry(
        "calibrate",
        "ondevice_bench.speed.calibrate",
        "Thresholds of --art as `ondevice calibrate` finds and keeps them, and what they leave unread.",
        (
            Option("text", Path, "What to read: a text like those that will be read.", ...),
            Option("error", float, "Relative error of a head's output, in 99 of 100 tokens.", 0.1),
            Option("tokens", int, "Read only its beginning.", 12_288),
        ),
    ),
    Entry(
        "art",
        "ondevice_bench.speed.art",
        """Decode attention with an early end, beside the same without, on caches that have read a document.

        The thresholds are those of `ondevice calibrate`, where there are any for the model.
        """,
        (_TEXT, _QUICK),
    ),
    Entry(
        "specprefill",
        "ondevice_bench.speed.specprefill",
        _SPECPREFILL,
        (
            Option("tokens", int, "Tokens of the prompt.", shown="2048"),
            Option("rounds", int, "Rounds of prompts; each measures all shares.", 3, min=1),
            _QUICK,
        ),
    ),
)
