"""Options and settings of the whole suite."""

import os

import pytest

os.environ.setdefault("PULLBACK_CHECK", "1")  # the verifier runs after every pass, in processes that tests start too


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite the expected output of tests/filetests with what comes out")
