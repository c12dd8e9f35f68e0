"""A checkpoint of the Hugging Face hub as a local folder: from its cache if it is there, else downloaded.

Only safetensors, json and text files of the repository's top folder are fetched.
"""

from __future__ import annotations

import re
from pathlib import Path

from ondevice.errors import ModelError
from ondevice.model.loading.checkpoint import inspect, read_config
from ondevice.model.loading.progress import Progress

_HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
_ALLOWED = ["*.safetensors", "*.json", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt"]
_IGNORED = ["*/*", "consolidated*"]  # Mistral publishes its weights twice


def is_hub_id(name: str) -> bool:
    """Whether `name` has the form owner/model."""
    return _HUB_ID.fullmatch(name) is not None


def fetch(hub_id: str, on_progress: Progress) -> Path:
    """The folder of a repository's files; no connection is made when they are all in the cache.

    Raises:
        ModelError: it does not exist, needs a licence accepted, or cannot be reached.
    """
    folder = cached(hub_id)
    if folder is not None:
        return folder
    on_progress(f"Downloading {hub_id}", None)
    read_config(_download(hub_id, ["config.json"]))  # refuse what cannot be used before its gigabytes arrive
    return _download(hub_id, _ALLOWED)


def cached(hub_id: str) -> Path | None:
    """The folder of a repository's files if they are all in the cache, else None; no connection is made."""
    from huggingface_hub import errors, snapshot_download

    try:
        folder = snapshot_download(hub_id, allow_patterns=_ALLOWED, ignore_patterns=_IGNORED, local_files_only=True)
        inspect(Path(folder))
    except (errors.LocalEntryNotFoundError, errors.HFValidationError, OSError, ModelError):
        return None
    return Path(folder)


def _download(hub_id: str, patterns: list[str]) -> Path:
    from huggingface_hub import errors, snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=patterns, ignore_patterns=_IGNORED))
    except errors.GatedRepoError as error:
        raise ModelError(
            "The model's licence has to be accepted first",
            where=hub_id,
            fix="Accept it on the model's page on the hub, then log in on this machine with `hf auth login`.",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            "There is no such model on the hub, and no such folder here", where=hub_id, fix="Check the name."
        ) from error
    except errors.HFValidationError as error:
        raise ModelError("No model on the hub can have that name", where=hub_id, fix="Check the name.") from error
    except OSError as error:  # every other failure of the hub's client is one: offline, cut off, server error
        raise ModelError(
            "The model is not on this machine, and the hub cannot be reached",
            where=hub_id,
            fix="Connect once (and unset HF_HUB_OFFLINE), or copy the model here and name its folder.",
        ) from error
