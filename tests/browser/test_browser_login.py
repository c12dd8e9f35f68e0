"""The page for the password: it says why a password was not taken."""

from __future__ import annotations

from typing import Any

import pytest

from ondevice.serving import login

SERVED = {"auth": ("reader", "correct horse"), "keeps": False}


def test_a_full_line_is_said_and_the_next_password_is_taken(
    program: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = program.new_page()
    page.goto(url)
    page.get_by_label("username").fill("reader")
    page.get_by_label("password").fill("wrong horse")
    with monkeypatch.context() as patched:
        patched.setattr(login, "ADDRESS_PLACES", 0)
        page.get_by_role("button", name="Login").click()
        page.get_by_text("Too many passwords are being tried. Try again in ").wait_for()
    page.get_by_role("button", name="Login").click()
    page.get_by_text("Incorrect credentials").wait_for()
    assert page.get_by_role("status").inner_text() == ""
    page.get_by_label("username").fill("reader")
    page.get_by_label("password").fill("correct horse")
    page.get_by_role("button", name="Login").click()
    page.locator(".od-mark").first.wait_for()
    page.close()
