"""Engines on the double of the package, each closed at its test's end, with nothing of the double left behind."""

from __future__ import annotations

import multiprocessing.spawn
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.doubles.double_tests.package import PROFILES, Package, imported
from tests.engines.trtllm.bundles import write_bundle

from seekserve_backend.contract.bundle import Bundle
from seekserve_backend.engines.trtllm.engine import TrtllmEngine

ENGINE_PROFILES = tuple(version for version in PROFILES if version != "1.4.0rc4")


class World:
    """One import of the double and the engines made on it."""

    def __init__(self, folder: Path, version: str, stack: ExitStack) -> None:
        self.folder = folder
        self.version = version
        self._stack = stack
        self.package: Package | None = None

    def bundle(self, **wishes: Any) -> tuple[Path, Bundle]:
        folder = wishes.pop("folder", self.folder / "bundle")
        return folder, write_bundle(folder, wishes.pop("version", self.version), **wishes)

    def start(self, behaviour: dict[str, Any] | None = None, *, silence_s: float = 60.0, **wishes: Any) -> TrtllmEngine:
        """`behaviour` of the double; DOUBLE_ names go to its environment; the rest describes the bundle."""
        environ = {name: wishes.pop(name) for name in list(wishes) if name.startswith("DOUBLE_")}
        if self.package is None:
            self.package = self._stack.enter_context(imported(self.folder, self.version, behaviour, **environ))
        engine = TrtllmEngine(*self.bundle(**wishes), silence_s=silence_s, shutdown_s=0.5)
        self._stack.callback(engine.close)
        return engine

    def order(self, **behaviour: Any) -> None:
        assert self.package is not None
        self.package.order(**behaviour)


@pytest.fixture(params=PROFILES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    yield from worlds(request.param, tmp_path)


@pytest.fixture
def old_world(tmp_path: Path) -> Iterator[World]:
    """1.2.1: the release in which what waits for a dead engine waits for ever."""
    yield from worlds("1.2.1", tmp_path)


@pytest.fixture
def new_world(tmp_path: Path) -> Iterator[World]:
    yield from worlds("1.4.0rc4", tmp_path)


@pytest.fixture(params=ENGINE_PROFILES)
def engine_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Releases that run engines of trtllm-build."""
    yield from worlds(request.param, tmp_path)


def worlds(version: str, folder: Path) -> Iterator[World]:
    python, of_spawn = sys.executable, multiprocessing.spawn.get_executable()
    with ExitStack() as stack:
        world = World(folder, version, stack)
        try:
            yield world
        finally:
            sys.executable = python
            multiprocessing.set_executable(of_spawn)
    if world.package is not None:
        assert world.package.violations() == [], "the double was used as the real package must not be"


Start = Callable[..., TrtllmEngine]
