"""Options and settings of the whole suite."""

import os
import tempfile

import pytest

os.environ.setdefault("PULLBACK_CHECK", "1")  # the verifier runs after every pass, in processes that tests start too
# one directory for all of a run's processes, where nothing is found that another run has compiled
if "PYTEST_XDIST_WORKER" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="pullback-tests-")
    os.environ["PULLBACK_CACHE_DIR"] = _cache.name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite the expected output of tests/filetests with what comes out")
