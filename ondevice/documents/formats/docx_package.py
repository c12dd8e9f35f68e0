"""Parts of a Word file: the body, and what stands beside it (notes, comments, headers, charts, whole documents)."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from ondevice.documents.formats.archive import Archive, resolve, tag
from ondevice.errors import DocumentError

_NOTHING = Element("nothing")


class Package:
    """The parts of one file.

    Attributes:
        lost: what of them cannot be read.
        links: targets outside of the file, by their id.

    Raises:
        DocumentError: it has no main part.
    """

    def __init__(self, archive: Archive, name: str) -> None:
        self._archive, self.lost = archive, list[str]()
        self._main = self._main_part(name)
        self._folder, _, file = self._main.rpartition("/")
        self.links: dict[str, str] = {}
        self._members: dict[str, tuple[str, str]] = {}  # kind and member by id
        for relation in self.xml(f"{self._folder}/_rels/{file}.rels"):
            identifier, target = relation.get("Id", ""), relation.get("Target", "")
            if relation.get("TargetMode") == "External":
                self.links[identifier] = target
            elif member := resolve("" if target.startswith("/") else self._main, target.lstrip("/")):
                self._members[identifier] = relation.get("Type", "").rpartition("/")[2], member

    def body(self) -> Element:
        return self._archive.read_xml(self._main)

    def part(self, kind: str) -> Element:
        """The part of a kind that there is one of at most; empty where there is none."""
        named = (member for said, member in self._members.values() if said == kind)
        return self.xml(next(named, f"{self._folder}/{kind}.xml"))

    def parts(self, kind: str) -> Iterator[Element]:
        """All parts of a kind, such as headers, each once."""
        members = dict.fromkeys(member for said, member in self._members.values() if said == kind)
        return (self.xml(member) for member in members)

    def related(self, identifier: str) -> Element:
        """The part that an element of the body names."""
        return self.xml(self._members.get(identifier, ("", ""))[1])

    def xml(self, member: str) -> Element:
        """A part; empty where it is missing, and where it is damaged, which costs that part alone."""
        try:
            return self._archive.read_xml(member)
        except KeyError:
            return _NOTHING
        except DocumentError as error:
            self.lost.append(f"part ({member.rpartition('/')[2]}): {error.what}")
            return _NOTHING

    def about(self) -> dict[str, str]:
        """Title, author and date that the file says of itself."""
        said = {tag(one): one.text or "" for one in self.xml("docProps/core.xml")}
        return {"Title": said.get("title", ""), "Author": said.get("creator", ""), "Date": said.get("created", "")[:10]}

    def embedded(self, identifier: str) -> tuple[str, bytes]:
        """The name and the bytes of a document inside this one; no bytes where it is missing or damaged."""
        member = self._members.get(identifier, ("", ""))[1]
        try:
            return member, self._archive.read(member)
        except (KeyError, DocumentError) as error:
            self.lost.append(f"part (document inside this one): {type(error).__name__}")
            return member, b""

    def _main_part(self, name: str) -> str:
        if "_rels/.rels" in self._archive:
            for relation in self._archive.read_xml("_rels/.rels").iter():
                if relation.get("Type", "").endswith("/officeDocument"):
                    member = resolve("", relation.get("Target", "").lstrip("/"))
                    if member and member in self._archive:
                        return member
        if "word/document.xml" not in self._archive:
            fix = "Open it in Word or LibreOffice, save it again, then open the new file."
            raise DocumentError("its main part is missing", where=name, fix=fix)
        return "word/document.xml"
