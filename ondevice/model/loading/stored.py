"""Catalogue models on this machine: which are there, fetching one, removing one."""

from __future__ import annotations

from pathlib import Path

from ondevice.model.loading import embedded, hub, model_file
from ondevice.model.loading.catalogue import SMOLLM2, CatalogueModel, HubRepository
from ondevice.model.loading.progress import Progress


def stored(row: CatalogueModel) -> Path | None:
    """The folder or file of a model; None: it is not here, or not whole."""
    if row is SMOLLM2:
        return embedded.cached_embedded()
    if row.file:
        return model_file.cached_file(row)
    return hub.cached(_repository(row))


def fetch(row: CatalogueModel, on_progress: Progress) -> Path:
    """Bring a model here, and check every byte of it where it is here already.

    Raises:
        ModelError: it cannot be had or written.
    """
    if row is SMOLLM2:
        return embedded.ensure_embedded(on_progress, verify=True)
    if row.file:
        return model_file.ensure_file(row, on_progress, verify=True)
    return hub.fetch(_repository(row), on_progress)


def remove(row: CatalogueModel) -> int:
    """Delete a model from this machine; returns the bytes that are free now."""
    if row is SMOLLM2:
        return embedded.remove_embedded()
    if row.file:
        return model_file.remove_file(row)
    return hub.remove(_repository(row))


def _repository(row: CatalogueModel) -> str:
    (source,) = row.sources
    assert isinstance(source, HubRepository), "what is no file is a repository"
    return source.repo
