"""Places that a batch reads and writes: paths, URIs, lists; whole files or none."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from ondevice.errors import ConfigError, DocumentError

pytest.importorskip("fsspec")
pytest.importorskip("pyarrow")

from ondevice_batch.places import Place, local_file, named, unescaped


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    for name in ("b.txt", "a.txt", "deep/c.md", ".hidden"):
        (folder / name).write_text(name)
    return folder


def names(found: list[str]) -> list[str]:
    return [Path(one).name for one in found]


def test_a_folder_a_pattern_and_a_file_are_a_corpus(corpus: Path, tmp_path: Path) -> None:
    out = Place(str(tmp_path / "out"))
    assert names(named(str(corpus), out)) == ["a.txt", "b.txt", "c.md"]
    assert names(named(f"{corpus}/*.txt", out)) == ["a.txt", "b.txt"]
    assert named(str(corpus / "a.txt"), out) == [str(corpus / "a.txt")]


def test_what_a_batch_wrote_itself_is_no_document(corpus: Path) -> None:
    out = Place(str(corpus / "out"))
    out.write("pots/x.pot", b"pot")
    assert names(named(str(corpus), out)) == ["a.txt", "b.txt", "c.md"]


def test_a_list_names_paths_and_uris(corpus: Path, tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text(f"{corpus / 'a.txt'}\n\nfile://{corpus / 'b.txt'}\n")
    assert named(f"@{listed}", Place(str(tmp_path / "out"))) == [str(corpus / "a.txt"), f"file://{corpus / 'b.txt'}"]


def test_names_that_are_no_utf8_or_look_like_uris_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in (b"caf\xe9.txt", b"a::b.txt", b"a\nb.txt", rb"back\xe9.txt"):
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_bytes(name)
    found = named(str(folder), Place(str(tmp_path / "out")))
    assert names(found) == ["a::b.txt", r"a\x0ab.txt", r"back\x5cxe9.txt", r"caf\xe9.txt"]
    for uri in found:
        with local_file(unescaped(uri)) as path:
            assert path.read_bytes() == os.fsencode(path.name)
    (tmp_path / "list").write_bytes(os.fsencode(folder) + b"/caf\xe9.txt\r\n" + found[-1].encode() + b"\n")
    assert named(f"@{tmp_path / 'list'}", Place(str(tmp_path / "out"))) == [found[-1]] * 2, "written either way"


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    folder, name = tmp_path / "corpus", "deep" * 60
    folder.mkdir()
    (folder / "a.txt").write_text("text")
    descriptors = [os.open(folder, os.O_RDONLY)]
    for _ in range(4096 // len(name) + 1):  # deeper than a path can be long
        os.mkdir(name, dir_fd=descriptors[-1])
        descriptors.append(os.open(name, os.O_RDONLY, dir_fd=descriptors[-1]))
    for descriptor in descriptors:
        os.close(descriptor)
    found = names(named(str(folder), Place(str(tmp_path / "out"))))
    assert found == ["a.txt", name]


def test_a_place_whose_name_is_no_utf8_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no UTF-8 \(caf\\xe9\)"):
        Place("caf\udce9")


@pytest.mark.timeout(10)
def test_a_pipe_in_place_of_an_archive_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "all.zip")
    with pytest.raises(DocumentError, match="a pipe or a device"):
        named(f"zip://*.txt::{tmp_path / 'all.zip'}", Place(str(tmp_path / "out")))


@pytest.mark.parametrize("corpus", ["/nowhere/at/all", "@/nowhere/list.txt", "nothing-known://x"])
def test_a_corpus_that_is_not_there_is_refused(corpus: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        named(corpus, Place(str(tmp_path / "out")))


def test_files_in_an_archive_are_read_by_their_uris(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("lamp.txt", "The lamp is lit.")
    (uri,) = named(f"zip://*.txt::{tmp_path / 'all.zip'}", Place(str(tmp_path / "out")))
    with local_file(uri) as path:
        assert path.name == "lamp.txt"
        assert path.read_text() == "The lamp is lit."
    assert not path.exists(), "the copy has gone"


@pytest.mark.parametrize("uri", ["{folder}/out", "memory://out-{name}"])
def test_a_file_is_whole_or_not_there(uri: str, tmp_path: Path) -> None:
    place = Place(uri.format(folder=tmp_path, name=tmp_path.name))
    place.write("pots/a.json", b"first")
    with pytest.raises(ZeroDivisionError), place.writing("pots/a.json") as file:
        file.write_bytes(b"half" * (1 // 0))
    assert place.read("pots/a.json") == b"first"
    assert place.keys("pots") == ["a.json"]
    assert place.has("pots/a.json")
    assert not place.has("pots/b.json")
    assert place.keys("nothing") == []
