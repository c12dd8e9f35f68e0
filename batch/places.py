"""Places of a batch's documents and output: paths and URIs, all of them through fsspec."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.fs
from fsspec.implementations.local import LocalFileSystem

from ondevice.errors import ConfigError
from ondevice.files import READABLE, escaped, replacing
from ondevice.regular_file import open_regular, require_space

_PART = ".part"  # ends the key of what is still being written
_LIST = "@"  # begins the name of a file with a path or URI on each line
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")


def unescaped(text: str) -> str:
    """The path or URI that `escaped` was given."""
    return os.fsdecode(_ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), os.fsencode(text)))


def opened(uri: str) -> tuple[Any, str]:
    """The file system of a path or URI, and its path there.

    Raises:
        ConfigError: nothing here knows its protocol.
        DocumentError: an archive on this machine that it names is no regular file.
    """
    if os.path.isabs(uri):  # whatever its name holds, `::` and `://` too
        return LocalFileSystem(), LocalFileSystem._strip_protocol(uri)
    _, chained, archive = uri.rpartition("::")
    if chained:
        fs, path = opened(archive)
        if isinstance(fs, LocalFileSystem) and not os.path.isdir(path):
            open_regular(path).close()  # fsspec opens it as well, and would wait at a pipe
    try:
        return fsspec.core.url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"This place cannot be opened: {error}",
            where=escaped(uri),
            fix="Install the package that it names, or use a path.",
        ) from None


def named(corpus: str, but: Place) -> list[str]:
    """Paths and URIs of the documents that a corpus names, as `escaped`: a file, all that is in a folder, a pattern, or
    `@LIST`, a file with one path or URI on each line.

    Args:
        but: what lies there is no document.

    Raises:
        ConfigError: there is none, or the place cannot be opened.
    """
    if corpus.startswith(_LIST):
        fs, path = opened(corpus.removeprefix(_LIST))
        try:
            lines = [line.strip() for line in fs.cat_file(path).splitlines()]
        except OSError as error:
            raise ConfigError(f"The list cannot be read: {error}", where=corpus, fix="Check its name.") from None
        found = [line.decode(errors="backslashreplace") for line in lines if line]  # as names stand in our tables, too
    else:
        fs, path = opened(corpus)
        is_local = isinstance(fs, LocalFileSystem)
        try:
            if is_local and os.path.isdir(path):
                paths = _all_in(path)
            else:
                paths = fs.glob(path) if any(letter in path for letter in "*?[") else fs.find(path)
        except OSError as error:
            raise ConfigError(f"The corpus cannot be listed: {error}", where=corpus, fix="Check its name.") from None
        shown = (one for one in paths if not Path(one).name.startswith("."))
        own = "" if but.fs != fs else f"{but.root}/"
        ours = (one for one in shown if not own or not one.startswith(own))
        found = [escaped(one if is_local else _uri(fs, corpus, one)) for one in ours]
    if not found:
        raise ConfigError(
            "There is no document", where=corpus, fix="Name a folder, a pattern, a file, or @LIST with a path a line."
        )
    return sorted(found)


def _all_in(folder: str) -> list[str]:
    """All that is in a folder of this machine; folders by name only where they are links, or cannot be listed."""
    found: list[str] = []
    unlisted: list[OSError] = []
    for parent, folders, names in os.walk(folder, onerror=unlisted.append):
        found += [os.path.join(parent, name) for name in names]
        found += filter(os.path.islink, (os.path.join(parent, name) for name in folders))
    return [*found, *(error.filename for error in unlisted)]


def _uri(fs: Any, corpus: str, path: str) -> str:
    """The URI of one file of a corpus; of `zip://*.txt::https://...` the part behind `::` stays."""
    _, colons, rest = corpus.partition("::")
    return f"{fs.unstrip_protocol(path)}{colons}{rest}"


@contextmanager
def local_file(uri: str) -> Iterator[Path]:
    """A document as a local file, under its own name: itself, or a copy for as long as the block runs.

    Raises:
        OSError: it cannot be fetched.
        ConfigError, DocumentError: as `opened`, or the disk has no room for the copy.
    """
    fs, path = opened(uri)
    if isinstance(fs, LocalFileSystem):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="ondevice-batch-") as folder:
        require_space(Path(folder), fs.size(path) or 0, escaped(uri))
        copy = Path(folder) / (Path(path).name or "document")
        fs.get_file(path, str(copy))
        yield copy


class Place:
    """A folder or bucket that a batch writes to.

    Args:
        uri: its path or URI; made where it is missing.

    Attributes:
        fs: of fsspec.
        root: its path there.
        arrow: the same file system for pyarrow and Ray Data.

    Raises:
        ConfigError: as `opened`, or the name is no UTF-8.
    """

    def __init__(self, uri: str) -> None:
        if any("\ud800" <= letter <= "\udfff" for letter in uri):  # Arrow takes text alone
            raise ConfigError("The name is no UTF-8", where=escaped(uri), fix="Name another --out.")
        self.fs, root = opened(uri)
        self.root = root.rstrip("/")
        self.arrow = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(self.fs))

    def path(self, key: str) -> str:
        """The path of a key on its file system."""
        return f"{self.root}/{key}"

    def has(self, key: str) -> bool:
        return bool(self.fs.exists(self.path(key)))

    def read(self, key: str) -> bytes:
        return bytes(self.fs.cat_file(self.path(key)))

    def keys(self, folder: str) -> list[str]:
        """Names of what lies in a folder; none where there is no such folder."""
        self.fs.invalidate_cache()
        with suppress(FileNotFoundError):
            return [Path(one).name for one in self.fs.ls(self.path(folder), detail=False)]
        return []

    @contextmanager
    def writing(self, key: str) -> Iterator[Path]:
        """A local file to fill; it is at `key`, whole, when the block ends, and nowhere when it fails.

        Elsewhere than on a local disk it is copied to a key of its own first, and then moved.

        Raises:
            OSError: it cannot be written.
        """
        path = self.path(key)
        if isinstance(self.fs, LocalFileSystem):
            with replacing(Path(path), mode=READABLE) as temporary:
                yield temporary
            return
        with tempfile.TemporaryDirectory(prefix="ondevice-batch-") as folder:
            filled = Path(folder) / "file"
            filled.touch()
            yield filled
            part = f"{path}.{secrets.token_hex(8)}{_PART}"
            self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            try:
                self.fs.put_file(str(filled), part)
                self.fs.mv(part, path)
            except BaseException:
                with suppress(OSError):
                    self.fs.rm_file(part)
                raise

    def write(self, key: str, data: bytes) -> None:
        """Write a small file; raises as `writing`."""
        with self.writing(key) as file:
            file.write_bytes(data)
