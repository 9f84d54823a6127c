"""Shared by all tests: where this checkout is."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    # What a shell starts with `&` ignores SIGINT, what nohup starts SIGHUP; so would everything that the tests start.
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.fixture(scope="session")
def repository_root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Bundles of the promised deployments by name; made once, for the tests of building and those of serving."""
    from tests.deployments.builds import builder

    return builder(tmp_path_factory.mktemp("deployments"))
