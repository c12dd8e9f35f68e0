"""Stand-ins for the packages that bring llama.cpp, importable by a program of its own process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

PACKAGES = {"llama-cpp-python": "llama_cpp", "xllamacpp": "xllamacpp"}
_BEGIN = """
import json, os, sys
os.write(1, b"what is printed is no figure")

def asked(**what):
    with open({log!r}, "a") as log:
        log.write(json.dumps(what) + chr(10))
"""
_SOURCES = {
    "llama_cpp": """
class Llama:
    def __init__(self, path, **settings):
        asked(path=path, **settings)
        for size in "6.00", "0.50":
            print("llama_kv_cache:  CPU KV buffer size =  ", size, "MiB", file=sys.stderr)

    def reset(self):
        asked(reset=True)

    def eval(self, ids):
        asked(prompt=ids)

    def generate(self, ids, temp):
        asked(prompt=ids, temp=temp)
        while True:
            yield 7

def llama_print_system_info():
    return b"CPU : AVX512 = 1 |  AVX512_VNNI = 1 | "
""",
    "xllamacpp": """
from types import SimpleNamespace

class CommonParams(SimpleNamespace):
    def __init__(self):
        super().__init__(model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())

class llama_flash_attn_type:
    LLAMA_FLASH_ATTN_TYPE_DISABLED, LLAMA_FLASH_ATTN_TYPE_ENABLED = 0, 1

class Server:
    def __init__(self, params):
        asked(path=params.model.path, n_ctx=params.n_ctx, shifts=params.ctx_shift, flash=params.flash_attn_type)

    def handle_completions(self, request):
        asked(**request)
        return {reply!r}

def get_system_info():
    return "CPU : AVX2 = 1 | "
""",
}
_TIMINGS = {"timings": {"prompt_ms": 500.0, "predicted_ms": 1000.0, "predicted_n": 5.0}}


class FakeLlamaCpp:
    """A folder on PYTHONPATH that packages are put into."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._packages, self._log = folder / "packages", folder / "asked.jsonl"
        self._packages.mkdir()
        monkeypatch.setenv("PYTHONPATH", str(self._packages))

    def install(self, package: str, *, reply: dict[str, Any] = _TIMINGS, source: str | None = None) -> None:
        """Put one there; xllamacpp gives every request this reply; `source` stands for all that is in the package."""
        module = PACKAGES[package]
        text = (_BEGIN + _SOURCES[module]).replace("{log!r}", repr(str(self._log))).replace("{reply!r}", repr(reply))
        (self._packages / f"{module}.py").write_text(text if source is None else source)
        about = self._packages / f"{package.replace('-', '_')}-1.2.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")

    def asked(self) -> list[dict[str, Any]]:
        """All that was asked of them since the last time."""
        lines = self._log.read_text().splitlines()
        self._log.unlink()
        return [json.loads(line) for line in lines]
