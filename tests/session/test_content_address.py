"""What makes two readings the same, and when opening one beats making it again."""

from __future__ import annotations

from dataclasses import replace

from ondevice.config import PotConfig
from ondevice.documents.types import Document, Page
from ondevice.session.content_address import content_address
from tests.builders.models import plain_config, tiny_loaded

LOADED = tiny_loaded()
CONFIG = plain_config(pot=PotConfig(capacity=512, num_kept=128))


def document_of(*texts: str, name: str = "a.txt") -> Document:
    pages = tuple(Page(number, text) for number, text in enumerate(texts, 1))
    return Document(name, "txt", "part", pages, len(pages), 1)


def test_the_same_text_read_alike_has_one_address() -> None:
    address = content_address(LOADED, document_of("The lamp", "was lit."), CONFIG)
    assert len(bytes.fromhex(address)) == 32
    assert content_address(LOADED, document_of("The lamp", "was lit.", name="b.txt"), CONFIG) == address
    answers = replace(CONFIG, generation=replace(CONFIG.generation, max_new_tokens=7), device="cpu")
    assert content_address(LOADED, document_of("The lamp", "was lit."), answers) == address
    others = [
        content_address(LOADED, document_of("The lamp was", " lit."), CONFIG),
        content_address(LOADED, document_of("The lamp", "was lit!"), CONFIG),
        content_address(LOADED, document_of("The lamp", "was lit."), replace(CONFIG, seed=3)),
        content_address(
            LOADED, document_of("The lamp", "was lit."), replace(CONFIG, pot=replace(CONFIG.pot, num_kept=64))
        ),
        content_address(replace(LOADED, fingerprint="other"), document_of("The lamp", "was lit."), CONFIG),
        content_address(replace(LOADED, quantization="8bit"), document_of("The lamp", "was lit."), CONFIG),
    ]
    assert len({address, *others}) == len(others) + 1
