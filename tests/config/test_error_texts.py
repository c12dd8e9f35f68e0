"""Errors of the core and the server name settings by their path: each face puts in what its users call them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ondevice.config import FIELDS

ROOT = Path(__file__).resolve().parents[2]
_OPTION = re.compile(r"(^|\s)--(?!auth\b)[a-z]")  # the app's password is no setting


def error_texts() -> Iterator[tuple[str, str]]:
    """(file, text) of every string in a call that makes an error, as written in the core and the server."""
    for path in sorted((ROOT / "ondevice").rglob("*.py")):
        where = path.relative_to(ROOT / "ondevice").as_posix()
        if where.startswith(("cli/", "ui/launch", "serving/address")):
            continue  # only the command line speaks there, and of its address
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and re.search(r"(Error|Mismatch|require)$", ast.unparse(node.func)):
                for part in ast.walk(node):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield where, part.value


def test_errors_name_settings_by_path_and_no_option() -> None:
    paths = [(where, path) for where, text in error_texts() for path in re.findall(r"\{([a-z_]+\.[a-z_]+)\}", text)]
    assert len(paths) > 20
    assert [(where, path) for where, path in paths if path not in FIELDS] == []
    options = [(where, text) for where, text in error_texts() if _OPTION.search(text)]
    assert options == []
