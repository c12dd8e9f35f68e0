# ruff: noqa: RUF001 - letters of other alphabets are what is tested here
"""Plain text and Markdown: normalising, decoding, splitting, streams."""

from __future__ import annotations

import codecs
import contextlib
import io
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ondevice.documents import read, read_stream
from ondevice.documents.formats import pdf_page
from ondevice.documents.formats.decode import Decoder
from ondevice.documents.formats.normalize import normalize, normalize_chunks
from ondevice.documents.formats.sections import SECTION_CHARS, Block, join_sections
from ondevice.documents.formats.split import PART_CHARS, piece_chars, split_pages, split_parts
from ondevice.documents.formats.terminal import without_terminal
from ondevice.documents.worker.limits import MAX_PAGES, Limits
from ondevice.errors import EmptyDocument, UnsupportedDocument

# Text with all that is awkward: line ends, marks that compose, controls, wide characters.
AWKWARD = st.text(
    st.sampled_from("a b\n\r\f\t\x00\x0b\x85\u0301\u0316e\u1100\u1161\u11a8\u202e\ufeff\ud800\u2028語😀é")
)
TEXTS = st.one_of(st.text(), AWKWARD)


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(places)]


# normalising


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("a\r\nb\rc\n", "a\nb\nc\n"),
        ("a\x00b\x07\x1b\x7f", "ab"),
        ("\ufeffa\ufeff", "a"),
        ("pass\u200bword com\xadpany har\u2060bour\U000e0041", "password company harbour"),
        ("a\tb\fc\n", "a\tb\fc\n"),
        ("a\ud800b", "a\ufffdb"),
        ("e\u0301", "\xe9"),
        ("\u202eevil\u202c \u2066x\u2069", "evil x"),
        ("a\u2028b\x85c\x0bd", "a\nb\nc\nd"),
        ("\u05d0\u200f \u200d", "\u05d0\u200f \u200d"),  # marks that a reader needs stay
    ],
)
def test_normalize(raw: str, clean: str) -> None:
    assert normalize(raw) == clean


@given(TEXTS)
def test_normalized_text_keeps_its_promises(text: str) -> None:
    clean = normalize(text)
    assert unicodedata.is_normalized("NFC", clean)
    assert not any(unicodedata.category(character) in ("Cs",) for character in clean)
    assert {c for c in clean if unicodedata.category(c) == "Cc"} <= set("\t\n\f")
    assert not set(clean) & set("\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    assert normalize(clean) == clean


@given(TEXTS, st.lists(st.integers(0, 200), max_size=6))
def test_pieces_do_not_change_the_normalized_text(text: str, cuts: list[int]) -> None:
    assert "".join(normalize_chunks(pieces(text, cuts))) == normalize(text)


def test_piles_of_marks_take_linear_time_and_lose_nothing() -> None:
    pile = "e" + "\u0301\u0316" * 50_000
    clean = normalize(pile)
    assert clean.count("\u0316") == 50_000
    assert "\u034f" in clean


def test_ligatures() -> None:
    assert pdf_page._clean("of\ufb01ce \ufb02ow e\ufb00ect a\ufb03x ba\ufb04e") == "office flow effect affix baffle\n"


# logs


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[1;31mERROR\x1b[0m disk full\n", "ERROR disk full\n"),
        ("\x1b]0;title\x07$ ls\x1b[K\n\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\\n", "$ ls\nlink\n"),
        ("start\n" + "".join(f"\rcopied {share}%" for share in range(101)) + "\ndone\n", "start\ncopied 100%\ndone\n"),
        ("a\n\x1b[2K\x1b[1Gstep 1/3\x1b[2K\x1b[1Gstep 3/3\n", "a\nstep 3/3\n"),
        ("x\nfetching one\rfetching two\rdone\r\n", "x\nfetching one\nfetching two\ndone\n"),
        ("N\bNA\bAM\bME\bE\n_\bo_\bi_\bl i\b_s\b_\n", "NAME\noil is\n"),
        ("10%\b\b\b20%\b\b\b100%\n", "100%\n"),
        ("one\rtwo\rthree\r", "one\rtwo\rthree\r"),
        ("a\nb\rc\n12\r13\n", "a\nb\nc\n12\n13\n"),
    ],
)
def test_logs_are_what_the_terminal_showed(raw: str, shown: str) -> None:
    assert "".join(without_terminal([raw])) == shown
    assert "".join(without_terminal(raw)) == shown


def test_a_line_that_is_written_over_without_end_takes_linear_time() -> None:
    raw = "a\n" + "\rcopied 1%" * 100_000 + "\b" * 100_000
    assert len("".join(without_terminal(raw[at : at + 1000] for at in range(0, len(raw), 1000)))) < 5000


# splitting


@given(TEXTS, st.lists(st.integers(0, 200), max_size=6), st.integers(4, 40))
def test_parts_hold_every_character_once(text: str, cuts: list[int], size: int) -> None:
    parts = list(split_parts(pieces(text, cuts), size))
    assert "".join(parts) == text.replace("\f", "\n")
    assert all(0 < len(part) <= size for part in parts)
    assert parts == list(split_parts([text], size))


@given(st.text(st.sampled_from("ab\f\n")), st.lists(st.integers(0, 200), max_size=6))
def test_pages_hold_every_character_once(text: str, cuts: list[int]) -> None:
    pages = list(split_pages(pieces(text, cuts)))
    assert "".join(pages) == text.replace("\f", "\n")
    assert len(pages) == text.count("\f") + (not text.endswith("\f") and text != "")


def test_as_many_pages_as_there_may_be_hold_the_longest_text() -> None:
    for size, share in ((PART_CHARS, 1), (SECTION_CHARS, 2 / 3)):  # a short block before a long one is a section, too
        shortest = sum(piece_chars(number, size)[0] for number in range(MAX_PAGES))
        assert share * shortest > Limits().text_chars


@pytest.mark.parametrize("text", ["\f", "x\f"])
def test_form_feeds_without_end_make_few_parts_and_lose_nothing(text: str) -> None:
    num_parts = num_chars = 0
    for part in split_parts([text * 1000] * 1000):
        assert len(part) <= piece_chars(num_parts, PART_CHARS)[1]
        assert "\f" not in part
        num_parts, num_chars = num_parts + 1, num_chars + len(part)
    assert num_chars == 1_000_000 * len(text)
    assert num_parts < 21_000


def test_headings_without_end_make_few_sections_and_lose_nothing() -> None:
    blocks = [Block("# a\n", is_heading=True), Block("b\n")] * 100_000
    sections = list(join_sections(blocks))
    assert "".join(sections) == "# a\nb\n" * 100_000
    assert len(sections) < 21_000


def test_parts_end_at_a_paragraph_then_a_line_then_a_space() -> None:
    assert next(split_parts(["a" * 60 + "\n\n" + "b\n" * 5 + "c" * 60], 100)) == "a" * 60 + "\n\n"
    assert next(split_parts(["a" * 60 + "\n" + "b c" * 30], 100)) == "a" * 60 + "\n"
    assert next(split_parts(["a" * 60 + " " + "b" * 60], 100)) == "a" * 60 + " "
    assert next(split_parts(["a" * 99 + "e\u0301" + "a" * 9], 100)) == "a" * 99


@given(st.lists(st.tuples(st.text("ab \n", min_size=1, max_size=30), st.booleans())), st.integers(5, 50))
def test_sections_hold_every_character_once(lines: list[tuple[str, bool]], size: int) -> None:
    sections = list(join_sections((Block(*line) for line in lines), size))
    assert "".join(sections) == "".join(text for text, _ in lines)
    assert all(len(section) <= size for section in sections)


def test_sections_begin_at_headings() -> None:
    blocks = [Block("A\n", True), Block("B\n", True), Block("text\n"), Block("C\n", True), Block("more\n")]
    assert list(join_sections(blocks)) == ["A\nB\ntext\n", "C\nmore\n"]


# decoding


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=8))
def test_any_bytes_decode(blocks: list[bytes]) -> None:
    "".join(Decoder().decode(blocks)).encode("utf-8", "surrogatepass")


@given(st.text(st.characters(codec="utf-8")), st.integers(1, 7))
def test_utf8_decodes_exactly_however_it_is_cut(text: str, size: int) -> None:
    data = b"plain ascii first " + text.encode()
    decoder = Decoder()
    blocks = [data[start : start + size] for start in range(0, len(data), size)]
    assert "".join(decoder.decode(blocks)) == data.decode()
    assert not decoder.is_damaged


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
        (b"", "utf-16-le"),
        (b"", "utf-16-be"),
    ],
)
def test_marks_and_wide_text(mark: bytes, encoding: str) -> None:
    text = "The café is open, and this is plain text.\n"
    assert "".join(Decoder().decode([mark + text.encode(encoding)])) == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Le café était fermé, déjà, à l'époque où j'étais élève. " * 3, "cp1252"),
        ("La città è più bella perché il porto è aperto; così potrà partire già lunedì.", "cp1252"),
        ("He said “hello” and left… it was late.", "cp1252"),
        ("The fee of the harbour is paid in May. All in all it is 5 €", "cp1252"),
        ("Die Mole ist bis Mai gesperrt. " * 900 + "Die Gebühr: 7 €", "cp1252"),
        ("Zażółć gęślą jaźń. Wszyscy ludzie rodzą się wolni i równi pod względem swej godności. " * 3, "cp1250"),
        ("Přístav je zavřený až do středy.", "cp1250"),
        ("Přístav je zavřený až do středy, poplatek činí tři sta korun.", "cp852"),
        ("Liman salı gününe kadar kapalı. Ücret üç yüz liradır.", "cp1254"),
        ("L'élève a payé à Noël. Ça va, même sans être présent là-bas.", "cp850"),
        ("Die Gebühr für größere Schiffe beträgt fünfzig Mark, sagte Jürgen.", "cp437"),
        ("Привет, как дела? Это обычный русский текст.", "cp1251"),
        ("Привет, как дела? Это обычный русский текст.", "koi8_r"),
        ("Привет, как дела? Это обычный русский текст.", "cp866"),
        ("Το λιμάνι είναι κλειστό μέχρι την Τετάρτη.", "cp1253"),
        ("ท่าเรือปิดจนถึงวันอังคาร ค่าธรรมเนียมสามร้อย", "tis_620"),
        ("これは日本語の文章です。今日は天気がいいですね。", "shift_jis"),
        ("これは日本語の文章です。今日は天気がいいですね。", "euc_jp"),
        ("Port: これは日本語の文章です。 next", "iso2022_jp"),
        ("港口关闭至星期三。费用为三百元，必须提前支付。", "gb18030"),
        ("港口關閉至星期三。費用為三百元，必須提前支付。", "big5"),
    ],
)
def test_legacy_encodings_are_guessed_and_that_is_said(tmp_path, text: str, encoding: str) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    document = read(tmp_path / "a.txt")
    assert "".join(page.text for page in document.pages) == text
    guesses = [page.problem for page in document.pages if page.problem_code == "guessed"]
    assert len(guesses) == (encoding != "iso2022_jp"), "which says itself what it is"
    assert all("is a guess" in guess for guess in guesses)


def test_the_guess_looks_at_the_whole_file(tmp_path) -> None:
    text = "(c) Häfen. " + "Plain words without end. " * 4000 + "\nПривет, как дела? Это обычный русский текст.\n" * 9
    (tmp_path / "a.txt").write_bytes(text.replace("ä", "©").encode("cp1251"))
    assert read(tmp_path / "a.txt").pages[-1].text.endswith("Это обычный русский текст.\n")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
@pytest.mark.parametrize(
    "text", ["港口费用为三百欧元，码头关闭至星期二。", "Портовый сбор триста рублей.", "ท่าเรือปิดจนถึงวันอังคาร", "รา"]
)
def test_wide_text_without_a_mark_in_any_script(tmp_path, text: str, encoding: str) -> None:
    (tmp_path / "a.txt").write_bytes(f"{text}\n{text}\n".encode(encoding))
    (page,) = read(tmp_path / "a.txt").pages
    assert (page.text, page.problem) == (f"{text}\n{text}\n", "")


def test_a_line_of_another_encoding_is_read_and_said(tmp_path) -> None:
    (tmp_path / "a.log").write_bytes("Öl €\n".encode() * 3 + "café\n".encode("cp1252") + "naïve\n".encode() * 3)
    (page,) = read(tmp_path / "a.log").pages
    assert page.text == "Öl €\n" * 3 + "café\n" + "naïve\n" * 3
    assert page.problem == "some lines are not UTF-8 like the others; their encoding is a guess"


def test_damage_is_shown_and_said(tmp_path) -> None:
    path = tmp_path / "damaged.txt"
    path.write_bytes("grüße, schöne Tür, Öl ".encode() * 3 + b"\xff and on" + b" ascii" * 600)
    document = read(path)
    assert "\ufffd and on" in document.pages[0].text
    assert [page.problem_code for page in document.pages] == ["unreadable", ""]


# files


def test_text_file_comes_back_exactly_once(tmp_path) -> None:
    path = tmp_path / "novel.txt"
    text = "It was a dark night.\r\nRain fell.\r\n\r\n" * 400
    path.write_bytes(text.encode())
    document = read(path)
    assert (document.kind, document.unit, document.size_bytes) == ("txt", "part", len(text))
    assert "".join(page.text for page in document.pages) == normalize(text)
    assert [page.number for page in document.pages] == list(range(1, document.num_pages + 1))
    assert len(document.sha256) == 64


def test_form_feeds_make_pages_and_blank_ones_keep_their_number(tmp_path) -> None:
    path = tmp_path / "paged.txt"
    path.write_bytes(b"one\f\fthree\f")
    document = read(path)
    assert document.unit == "page"
    assert [(page.text, page.problem_code) for page in document.pages] == [
        ("one\n", ""),
        ("\n", "blank"),
        ("three\n", ""),
    ]


def test_one_form_feed_in_a_novel_makes_no_page(tmp_path) -> None:
    path = tmp_path / "novel.txt"
    path.write_bytes(b"title\f" + b"word " * 40_000)
    assert read(path).unit == "part"


def test_form_feeds_beyond_the_limit_are_no_pages(tmp_path) -> None:
    path = tmp_path / "feeds.txt"
    path.write_bytes(b"x" + b"\f" * MAX_PAGES)
    document = read(path)
    assert document.unit == "part"
    assert document.num_pages < 21_000
    assert "".join(page.text for page in document.pages) == "x" + "\n" * MAX_PAGES
    path.write_bytes(b"x" + b"\f" * 3)
    assert read(path).unit == "page"


def test_one_line_of_a_megabyte(tmp_path) -> None:
    path = tmp_path / "line.txt"
    path.write_bytes(b"x" * 1_000_000)
    document = read(path)
    assert sum(len(page.text) for page in document.pages) == 1_000_000
    assert max(len(page.text) for page in document.pages) == 3000


def test_controls_and_utf16(tmp_path) -> None:
    controls = tmp_path / "controls.log"
    controls.write_bytes(b"The ferry\x00 leaves\x07 at 18:45\r\x1b[0m")
    assert read(controls).pages[0].text == "The ferry leaves at 18:45\n"
    wide = tmp_path / "wide.csv"
    wide.write_bytes("name;città\r\n".encode("utf-16"))
    assert read(wide).pages[0].text == "name;città\n"


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        ("---\ntitle: T\n# draft\n---\n\nIntro\n=====\n\nOne.\n\nDues\n----\nTwo.\n", ["---\ntitle", "Dues\n----"]),
        ("# A\n````md\n```\n# no\n```\n# no\n````\n# B\nx\n", ["# A", "# B"]),
        ("# A\n~~~\n```\n# no\n~~~\n# B\nx\n", ["# A", "# B"]),
        ("# A\n- item\n---\n| a | b |\n--- | ---\n> q\n---\n\n---\nx\n", ["# A"]),
        ("---\n" + "\n".join("a: 1" for _ in range(300)) + "\n# B\nx\n", ["---", "# B"]),
    ],
)
def test_sections_of_markdown(tmp_path, text: str, sections: list[str]) -> None:
    path = tmp_path / "a.md"
    path.write_text(text)
    pages = read(path).pages
    assert "".join(page.text for page in pages) == text
    assert len(pages) == len(sections)
    assert all(page.text.startswith(start) for page, start in zip(pages, sections, strict=True))


def test_markdown_is_cut_at_headings_but_not_in_code(tmp_path) -> None:
    path = tmp_path / "readme.md"
    text = "# A\nalpha\n```\n# no heading\n```\n## B\nbeta\n"
    path.write_text(text)
    document = read(path)
    assert (document.kind, document.unit) == ("md", "section")
    assert [page.text for page in document.pages] == [text[: text.index("## B")], text[text.index("## B") :]]


# streams


@settings(max_examples=60)
@given(st.binary(max_size=300), st.integers(1, 40))
def test_any_stream_gives_pages_or_says_why_not(data: bytes, size: int) -> None:
    class Slow(io.BytesIO):
        def read1(self, _: int = -1) -> bytes:
            return self.read(size)

    # Any other exception, a UnicodeDecodeError first of all, fails the test.
    with contextlib.suppress(EmptyDocument, UnsupportedDocument):
        assert any(page.text.strip() for page in list(read_stream(Slow(data)).pages))


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1).map(lambda text: "x" + text))
def test_a_stream_holds_every_character_once(text: str) -> None:
    data = text.encode()
    assert "".join(page.text for page in read_stream(io.BytesIO(data)).pages) == normalize(data.decode("utf-8-sig"))


def test_a_stream_is_read_only_as_far_as_pages_are_taken() -> None:
    class Endless(io.RawIOBase):
        taken = 0

        def read1(self, size: int) -> bytes:
            self.taken += size
            return b"word " * (size // 5)

    stream = Endless()
    document = read_stream(stream)
    pages = iter(document.pages)
    assert (stream.taken, document.num_pages, document.unit) == (0, None, "part")
    for _ in range(100):
        next(pages)
    assert stream.taken < 100 * 3000 + 2 * 65_536


def test_a_stream_of_form_feeds_has_few_pages() -> None:
    pages = list(read_stream(io.BytesIO(b"x" + b"\f" * 1_000_000)).pages)
    assert len(pages) < 21_000
    assert sum(len(page.text) for page in pages) == 1_000_001


def test_a_stream_that_is_no_text() -> None:
    with pytest.raises(UnsupportedDocument, match="a PDF"):
        list(read_stream(io.BytesIO(b"%PDF-1.7\n")).pages)
    with pytest.raises(EmptyDocument):
        list(read_stream(io.BytesIO(b" \n")).pages)
