"""A checkpoint of the Hugging Face hub as a local folder: from its cache if it is there, else downloaded.

Only safetensors, json and text files of the repository's top folder are fetched.
"""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import monotonic
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ondevice.errors import ModelDownloadError, ModelError
from ondevice.model.loading.cache_folder import models_dir
from ondevice.model.loading.catalogue import HubFile, HubRepository
from ondevice.model.loading.checkpoint import inspect, read_config
from ondevice.model.loading.checksums import file_sha256
from ondevice.model.loading.progress import Progress

_HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
_REACH_SECONDS = 3.0
_SAME_SECONDS = 30.0  # after a failure: several models are asked for, one after the other
_unreached_at = -_SAME_SECONDS
_ALLOWED = ["*.safetensors", "*.json", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt"]
_IGNORED = ["*/*", "consolidated*"]  # Mistral publishes its weights twice


def is_hub_id(name: str) -> bool:
    """True if `name` has the form owner/model."""
    return _HUB_ID.fullmatch(name) is not None


def fetch(source: HubRepository, on_progress: Progress, *, verify: bool = False) -> Path:
    """The folder of a repository's files; no connection is made when they are all in the cache.

    Weights of a known hash are checked as they come, and with `verify` also in the cache.

    Raises:
        ModelError: it does not exist, needs a licence accepted, or cannot be reached; or its weights are others.
    """
    folder = cached(source)
    if folder is None:
        on_progress(f"Downloading {source.repo}", None)
        read_config(_download(source, ["config.json"]))  # refuse what cannot be used before its gigabytes arrive
        folder, verify = _download(source, _ALLOWED), True
    if verify and source.sha256:
        on_progress(f"Checking {source.repo}", None)
        if tuple(map(file_sha256, sorted(folder.glob("*.safetensors")))) != source.sha256:
            remove(source.repo)
            raise ModelDownloadError("The hub sent other weights: their sha256 differs", where=source.repo)
    return folder


def fetch_file(source: HubFile, folder: Path, stage: str, on_progress: Progress) -> Path:
    """One file of a repository, in `folder`; goes on where an earlier attempt was cut off.

    Raises:
        ModelDownloadError: the hub cannot be reached, or does not have it.
    """
    from huggingface_hub import hf_hub_download

    require_reachable(source.repo)
    on_progress(stage, None)
    try:
        return Path(hf_hub_download(source.repo, source.file, revision=source.revision, local_dir=folder))
    except (OSError, ValueError) as error:  # every failure of the hub's client is one of them
        raise ModelDownloadError("The hub could not send it", where=f"{source.repo}/{source.file}") from error


def require_reachable(where: str) -> None:
    """Give up at once where the hub cannot be reached: its client tries for half a minute.

    Raises:
        ModelDownloadError: it cannot be reached.
    """
    from huggingface_hub import constants

    global _unreached_at
    if constants.is_offline_mode():
        raise ModelDownloadError("The hub is switched off (HF_HUB_OFFLINE)", where=where)
    address = urlsplit(constants.ENDPOINT)
    proxies = {} if proxy_bypass(address.hostname or "") else getproxies()
    if proxy := proxies.get(address.scheme) or proxies.get("all"):  # it looks the name up by itself
        address = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    port = address.port or (443 if address.scheme == "https" else 80)
    if monotonic() - _unreached_at > _SAME_SECONDS:
        if _answers(address.hostname or "", port):
            return
        _unreached_at = monotonic()
    raise ModelDownloadError("The hub cannot be reached", where=where)


def _answers(host: str, port: int) -> bool:
    """True if somebody takes a connection there within `_REACH_SECONDS`."""
    found = list[socket.socket]()

    def connect() -> None:
        with suppress(OSError):
            found.append(socket.create_connection((host, port), timeout=_REACH_SECONDS))

    thread = Thread(target=connect, daemon=True)
    thread.start()
    thread.join(_REACH_SECONDS)
    for connection in found:
        connection.close()
    return bool(found)


def cached(source: HubRepository) -> Path | None:
    """The folder of a repository's files if they are all here, else None; no connection is made."""
    given = models_dir()
    found = _complete(source, given / "hub") if given is not None else None
    return found or _complete(source, None)


def _complete(source: HubRepository, place: Path | None) -> Path | None:
    """The folder of a repository in a cache of the hub's, None for the user's, if all of it is there."""
    from huggingface_hub import errors, snapshot_download

    try:
        folder = snapshot_download(
            source.repo, revision=source.revision, cache_dir=place, allow_patterns=_ALLOWED, ignore_patterns=_IGNORED,
            local_files_only=True,
        )  # fmt: skip
        inspect(Path(folder))
    except (errors.LocalEntryNotFoundError, errors.HFValidationError, OSError, ModelError):
        return None
    return Path(folder)


def remove(hub_id: str) -> int:
    """Delete a repository from the hub's cache; returns the bytes that are free now."""
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        found = [one for one in scan_cache_dir().repos if one.repo_type == "model" and one.repo_id == hub_id]
    except CacheNotFound:
        return 0
    strategy = scan_cache_dir().delete_revisions(*(rev.commit_hash for one in found for rev in one.revisions))
    strategy.execute()
    return int(strategy.expected_freed_size)


def _download(source: HubRepository, patterns: list[str]) -> Path:
    from huggingface_hub import errors, snapshot_download

    hub_id, revision = source.repo, source.revision
    try:
        require_reachable(hub_id)
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=patterns, ignore_patterns=_IGNORED))
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
    except (OSError, ModelDownloadError) as error:  # of the hub's client: cut off, server error; or not reached
        raise ModelError(
            "The model is not on this machine, and the hub cannot be reached",
            where=hub_id,
            fix="Connect once (and unset HF_HUB_OFFLINE), or copy the model here and name its folder.",
        ) from error
