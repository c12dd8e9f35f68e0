"""Catalogue models on this machine: which are there, fetching one, removing one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ondevice.errors import ModelError
from ondevice.model.loading import cache_folder, hub, model_file
from ondevice.model.loading.cache_folder import models_dir
from ondevice.model.loading.catalogue import SMOLLM2, CatalogueModel
from ondevice.model.loading.kept_tiles import drop_tiles
from ondevice.model.loading.progress import Progress
from ondevice.model.loading.recommend import Recommendation


def stored(row: CatalogueModel) -> Path | None:
    """The folder or file of a model; None: it is not here, or not whole."""
    return model_file.cached_file(row) if row.sha256 else hub.cached(row.repository)


def place(row: CatalogueModel) -> Path:
    """The folder that a model is fetched to, which may not be there yet."""
    from huggingface_hub import constants

    return cache_folder.cache_dir() if row.sha256 else Path(constants.HF_HUB_CACHE)


def choices(suited: Iterable[Recommendation]) -> list[Recommendation]:
    """Models in the order that `auto` tries: those that are here, then those that are fetched, each as in `suited`.

    A download is no surprise then. The smallest one counts as fetched: it came with a set-up, not as somebody's choice.
    """
    return sorted(suited, key=lambda one: one.model is SMOLLM2 or stored(one.model) is None)


def require_readable(row: CatalogueModel) -> None:
    """Refuse a model that lies here and may not be read by this user: it is not missing; raises ModelError."""
    if row.sha256:
        cache_folder.require_readable(model_file.folder_name(row), row.title)


def ensure(row: CatalogueModel, on_progress: Progress, *, verify: bool = False) -> Path:
    """The folder or file of a model, fetched where it is not here.

    Args:
        verify: read every byte of what is here already, instead of sizes and samples.

    Raises:
        ModelError: it cannot be had, read or written.
    """
    require_readable(row)
    if row.sha256:
        return model_file.ensure_file(row, on_progress, verify=verify)
    return hub.fetch(row.repository, on_progress, verify=verify)


def remove(row: CatalogueModel) -> int:
    """Delete a model from this machine; returns the bytes that are free now.

    Raises:
        ModelError: it lies where nothing is deleted, and nowhere else.
    """
    if row.sha256:
        file = model_file.cached_file(row) if row.file else None
        tiles = 0 if file is None or is_given(file) else drop_tiles(file)
        freed = tiles + model_file.remove_file(row)
    else:
        freed = hub.remove(row.repository.repo)
    left = stored(row)
    if not freed and left is not None and is_given(left):
        raise ModelError(
            f"{row.title} came with this machine or image and is not deleted",
            where=str(left),
            fix="Delete it where the folder named by ONDEVICE_MODELS is filled, or unset that variable.",
        )
    return freed


def is_given(path: Path) -> bool:
    """True if a model lies in the read-only place that ONDEVICE_MODELS names."""
    given = models_dir()
    return given is not None and path.is_relative_to(given)
