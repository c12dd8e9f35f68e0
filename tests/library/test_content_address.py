"""What makes two readings the same, and when opening one beats making it again."""

from __future__ import annotations

from dataclasses import replace

from ondevice.config import PotConfig
from ondevice.documents.tokens import DocumentTokens
from ondevice.documents.types import Document, Page
from ondevice.library.content_address import content_address
from tests.builders.models import plain_config, tiny_loaded

LOADED = tiny_loaded()
CONFIG = plain_config(pot=PotConfig(capacity=512, num_kept=128))


def tokens_of(*texts: str, name: str = "a.txt") -> DocumentTokens:
    pages = tuple(Page(number, text) for number, text in enumerate(texts, 1))
    tokens = DocumentTokens(Document(name, "txt", "part", pages, len(pages), 1), LOADED.tokenizer.encode)
    for _ in tokens.read_pages():
        pass
    return tokens


def test_the_same_text_read_alike_has_one_address() -> None:
    address = content_address(LOADED, tokens_of("The lamp", "was lit."), CONFIG)
    assert len(bytes.fromhex(address)) == 32
    assert content_address(LOADED, tokens_of("The lamp", "was lit.", name="b.txt"), CONFIG) == address
    answers = replace(CONFIG, generation=replace(CONFIG.generation, max_new_tokens=7), device="cpu")
    assert content_address(LOADED, tokens_of("The lamp", "was lit."), answers) == address
    others = [
        content_address(LOADED, tokens_of("The lamp was", " lit."), CONFIG),
        content_address(LOADED, tokens_of("The lamp", "was lit!"), CONFIG),
        content_address(LOADED, tokens_of("The lamp", "was lit."), replace(CONFIG, seed=3)),
        content_address(
            LOADED, tokens_of("The lamp", "was lit."), replace(CONFIG, pot=replace(CONFIG.pot, num_kept=64))
        ),
        content_address(replace(LOADED, fingerprint="other"), tokens_of("The lamp", "was lit."), CONFIG),
        content_address(replace(LOADED, quantization="8bit"), tokens_of("The lamp", "was lit."), CONFIG),
    ]
    assert len({address, *others}) == len(others) + 1
