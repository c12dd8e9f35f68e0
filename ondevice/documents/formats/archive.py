"""Members of a ZIP file, read with a hard limit on what they may unpack to. Nothing is ever written to a disk."""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from io import BytesIO
from typing import BinaryIO
from xml.etree.ElementTree import Element, ParseError, tostring

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from ondevice.errors import DocumentError, DocumentTooComplex, UnsupportedDocument

MAX_ENTRIES = 10_000
MAX_MEMBER_BYTES = 64_000_000
MAX_TOTAL_BYTES = 256_000_000
# Deflate cannot do better than 1032; text and markup stay below 100.
MAX_RATIO = 200
# A small member may be as repetitive as it likes.
_RATIO_FREE_BYTES = 1_000_000
_RESAVE_FIX = "Open it in the program that made it, save it again, then open the new file."


class Archive(AbstractContextManager["Archive"]):
    """An open ZIP file. Use it as a context manager."""

    def __init__(self, path: str | BinaryIO, name: str) -> None:
        self._name = name
        self._total = 0
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:  # the last: a later version of ZIP
            raise self._damaged(error) from error
        self._members = {info.filename: info for info in self._zip.infolist()}
        if len(self._members) > MAX_ENTRIES:
            raise self._too_large(f"it holds {len(self._members):,} files; the limit is {MAX_ENTRIES:,}")

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def __contains__(self, member: str) -> bool:
        return member in self._members

    def files(self) -> list[str]:
        """Names of the members that are files, in order."""
        return sorted(name for name, info in self._members.items() if not info.is_dir())

    def read(self, member: str) -> bytes:
        """The unpacked bytes of one member.

        Raises:
            KeyError: there is no such member.
            DocumentTooComplex: it unpacks to more than any real document does.
        """
        info = self._members[member]
        limit = min(MAX_MEMBER_BYTES, MAX_TOTAL_BYTES - self._total)
        if info.file_size > min(limit, max(_RATIO_FREE_BYTES, MAX_RATIO * info.compress_size)):
            raise self._too_large("a part of it unpacks to far more than it should")
        if info.flag_bits & 1:
            raise UnsupportedDocument("a part of it is encrypted", where=self._name, fix=_RESAVE_FIX)
        try:
            with self._zip.open(info) as stream:
                # The size announced may be a lie.
                data = stream.read(limit + 1)
        # NotImplementedError is of zipfile: a compression that it does not know, or strong encryption.
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
            raise self._damaged(error) from error
        if len(data) > limit:
            raise self._too_large("a part of it unpacks to far more than it should")
        self._total += len(data)
        return data

    def read_xml(self, member: str) -> Element:
        """One member as XML. Entities of its own, which could unpack to anything, are refused."""
        try:
            return fromstring(self.read(member))
        except (ParseError, DefusedXmlException, ValueError) as error:
            raise self._damaged(error) from error

    def rewritten(self, changes: Mapping[str, Callable[[bytes], bytes]]) -> bytes:
        """An archive of the XML in this one, members of a folder as its change makes them; raises as `read`.

        A library that reads archives itself gets it: nothing in it unpacks to more than it should. Other members, such
        as pictures, are there and empty.
        """
        copy = BytesIO()
        with zipfile.ZipFile(copy, "w") as made:
            for name in self.files():
                data = self.read(name) if name.endswith((".xml", ".rels")) else b""
                change = next((one for folder, one in changes.items() if name.startswith(folder)), bytes)
                made.writestr(name, change(data))
        return copy.getvalue()

    def _damaged(self, error: Exception) -> DocumentError:
        return DocumentError(f"a part of it is damaged [{type(error).__name__}]", where=self._name, fix=_RESAVE_FIX)

    def _too_large(self, what: str) -> DocumentTooComplex:
        return DocumentTooComplex(what, where=self._name, fix=_RESAVE_FIX)


def changed(part: bytes, change: Callable[[Element], object]) -> bytes:
    """A part in XML, as `change` leaves its root; a damaged one as it is."""
    with suppress(ParseError, DefusedXmlException, ValueError, RecursionError):
        change(root := fromstring(part))
        part = tostring(root)
    return part


def tag(element: Element) -> str:
    """Its name without the namespace."""
    return element.tag.rpartition("}")[2]


def inner(element: Element, wanted: str, wrappers: frozenset[str]) -> Iterator[Element]:
    """Elements of this tag, also those within wrappers: rows of a table, cells of a row."""
    for one in element:
        if tag(one) == wanted:
            yield one
        elif tag(one) in wrappers:
            yield from inner(one, wanted, wrappers)


def attribute(element: Element, name: str) -> str:
    """The attribute of this name in any namespace, "" where there is none."""
    return next((value for key, value in element.items() if key.rpartition("}")[2] == name), "")


def resolve(base: str, reference: str) -> str | None:
    """The member that `reference`, found in the member `base`, means; None when it leads out of the archive."""
    path = reference.partition("#")[0].partition("?")[0]
    if not path or ":" in path.partition("/")[0]:
        return None
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(base), path))
    joined = joined.lstrip("/")
    return None if joined.startswith("..") else joined
