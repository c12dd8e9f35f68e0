"""The only door to transformers: every file of `ondevice.model` that needs it imports this first.

transformers looks for an optional package called `kernels` and imports whatever answers to that name.
A checkout of this project has a folder `kernels/` at its root (installed as `ondevice.kernels`), so with
the root on sys.path (`python app.py`, `python -m pytest`) that search could find our folder instead.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[3]


def hide_our_kernels() -> bool:
    """Make a top-level `import kernels` fail where it would find this project's own folder.

    A real `kernels` package, installed and found first, stays visible. `ondevice.kernels` is another
    name and stays importable. Must run before transformers is imported for the first time.

    Returns:
        whether the name was hidden.
    """
    if "kernels" in sys.modules:
        found = getattr(sys.modules["kernels"], "__file__", None)
    else:
        spec = importlib.util.find_spec("kernels")
        found = spec.origin if spec is not None else None
    if found is None or Path(found).resolve().parent != _ROOT / "kernels":
        return False
    sys.modules["kernels"] = None  # type: ignore[assignment]  # the documented way to say "there is none"
    return True


hide_our_kernels()
# Set before the first import, which reads them: no telemetry, no bars over our own progress display.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.modules.module import register_module_parameter_registration_hook  # noqa: E402

__all__ = ["empty_model", "hide_our_kernels", "import_models", "text_config", "transformers"]


class _Transformers:
    """The package, imported by the first who asks it for something: that takes seconds, and many starts do without."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_imported(), name)


transformers: Any = _Transformers()


@cache
def _imported() -> Any:
    import_models()
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    return transformers


@cache
def import_models() -> None:
    """Import what transformers imports with its models, without Triton where torch was built for no GPU.

    torch's compiler, which they mark some functions for, loads it: 70 MB, of which a CPU has no use.
    """
    is_useless = torch.version.cuda is None and torch.version.hip is None and os.environ.get("TRITON_INTERPRET") != "1"
    if not is_useless or "triton" in sys.modules:
        return
    sys.modules["triton"] = None  # type: ignore[assignment]
    try:
        import_module("torch._dynamo")
    finally:
        del sys.modules["triton"]


_emptying = threading.local()


def _emptied(module: nn.Module, name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
    dtype = getattr(_emptying, "dtype", None)
    if parameter is None or dtype is None:
        return None
    return nn.Parameter(torch.empty(parameter.shape, dtype=dtype, device="meta"), parameter.requires_grad)


# Once, for good: another thread may go through the hooks while it makes a model.
register_module_parameter_registration_hook(_emptied)  # type: ignore[arg-type]  # it may return a parameter


def text_config(folder: Path) -> Any:
    """The configuration of a folder's causal LM; of one that sees pictures, too, that of its text model."""
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    text = config.get_text_config()
    if hasattr(config, "quantization_config"):
        text.quantization_config = config.quantization_config
    return text


def empty_model(config: Any, dtype: torch.dtype = torch.float32) -> Any:
    """The causal LM of a configuration without its weights; buffers are there, for nothing stores them.

    Another thread may read, or load a model, meanwhile: neither its parameters nor torch's default dtype are touched,
    as they would be by accelerate's `init_empty_weights` and by a dtype for `from_config`.
    """
    _emptying.dtype = dtype
    try:
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    finally:
        _emptying.dtype = None
