"""Options of the browser tests."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-baselines", action="store_true", help="make the screens as they are now the baselines")
    parser.addoption("--repeats", type=int, default=1, help="how often every screen is compared")
