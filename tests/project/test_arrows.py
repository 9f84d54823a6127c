"""Dependencies point inwards. The imports of every source file are read, wherever in the file they stand.

The tables below are the design's arrows; a new folder has to be entered here before it can import anything of ours.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PURE = {"contract", "core", "text"}
SERVICE = (
    "answers",
    "chat_template",
    "departures",
    "desk",
    "engine_keeper",
    "engine_loop",
    "exchange",
    "handover",
    "heartbeats",
    "intake",
    "live",
    "logprobs",
    "measures",
    "openings",
    "outbox",
    "prompts",
    "record",
    "service",
    "sharing",
    "step_log",
    "streams",
    "telling",
    "work",
)
BACKEND_ARROWS = {
    "contract": set[str](),
    "core": {"contract"},
    "text": {"contract"},
    "engines": {"contract"},
    # The service, in several files: it alone joins core, text and engines.
    **{name: {"contract", "core", "text", "engines", *SERVICE} for name in SERVICE},
    "triton": {"contract", "core", "text", "engines", *SERVICE},
}
BASE = {"errors", "output"}
_PLANNED = {*BASE, "checkpoint", "trtllm", "plan", "settings"}
TOOLKIT_ARROWS = {
    "errors": set[str](),
    "output": {"errors"},
    "data": set[str](),
    "checkpoint": BASE,
    "trtllm": BASE,
    "plan": {*BASE, "checkpoint", "trtllm"},
    "settings": {*BASE, "checkpoint", "plan"},
    # The same figures and records for what is measured as for what is simulated.
    "bench": {*_PLANNED, "client", "simulate"},
    "simulate": {*_PLANNED, "repository"},
    **dict.fromkeys(("server", "client", "repository", "engine"), _PLANNED),
    "gateway": {*_PLANNED, "client"},
    # Looks at launches, and tries them under the load of a benchmark.
    "monitor": {*_PLANNED, "bench", "client", "data", "repository", "server", "simulate"},
    "evaluate": {*BASE, "checkpoint", "plan", "client", "data"},
    "calibrate": {*BASE, "plan"},
    "convert": {*BASE, "checkpoint"},
    "swap": {*_PLANNED, "repository", "server"},
    "pipeline": {*_PLANNED, "data", "engine", "repository", "server", "client"},
    "__main__": {"cli"},
}
MAY_RUN_AN_ENGINE = {"evaluate", "bench", "calibrate"}
# What turns a question into an engine's request, as the service does it.
TO_RUN_AN_ENGINE = {"engines", "prompts", "answers"}
NOT_FOR_PURE = {"asyncio", "datetime", "io", "logging", "os", "random", "socket", "subprocess", "threading", "time"}


@dataclass(frozen=True)
class Import:
    file: Path
    line: int
    area: str
    """First part below the package of the importing module; empty for the package itself."""
    target: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {'.'.join(self.target)}"


def imports(root: Path, package: str) -> Iterator[Import]:
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        home = parts[:-1]
        module = home if parts[-1] == "__init__" else parts
        area = module[1] if len(module) > 1 else ""
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for target in _targets(node, home):
                yield Import(path.relative_to(root), getattr(node, "lineno", 0), area, target)


def _targets(node: ast.AST, home: tuple[str, ...]) -> list[tuple[str, ...]]:
    if isinstance(node, ast.Import):
        return [tuple(alias.name.split(".")) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = home[: len(home) - node.level + 1] if node.level else ()
        base += tuple(node.module.split(".")) if node.module else ()
        return [(*base, alias.name) for alias in node.names]
    return []


@pytest.fixture(scope="module")
def backend(repository_root: Path) -> list[Import]:
    return list(imports(repository_root / "python_backend", "seekserve_backend"))


@pytest.fixture(scope="module")
def toolkit(repository_root: Path) -> list[Import]:
    return list(imports(repository_root / "build", "seekserve"))


def broken(found: list[Import], package: str, arrows: dict[str, set[str]], free: set[str]) -> list[str]:
    """Imports inside one package that no arrow allows; `free` areas may import everything."""
    out = []
    for each in found:
        if each.target[0] != package or each.area in free:
            continue
        to = each.target[1] if len(each.target) > 1 else ""
        names_an_area = to in arrows or to in free
        if names_an_area and to != each.area and to not in arrows.get(each.area, set()):
            out.append(str(each))
    return out


def test_the_reader_sees_every_form_of_import(tmp_path: Path) -> None:
    package = tmp_path / "p" / "a"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from . import one\nfrom ..b import two\n")
    (package / "m.py").write_text("def f():\n    import x.y\n    from .n import z\n    from ..c.d import e\n")
    assert [each.target for each in imports(tmp_path, "p")] == [
        ("p", "a", "one"),
        ("p", "b", "two"),
        ("x", "y"),
        ("p", "a", "n", "z"),
        ("p", "c", "d", "e"),
    ]


def test_every_folder_of_ours_has_its_arrows(backend: list[Import], toolkit: list[Import]) -> None:
    assert {each.area for each in backend} - {""} <= set(BACKEND_ARROWS)
    assert {each.area for each in toolkit} - {""} <= {*TOOLKIT_ARROWS, "cli"}


def test_the_backend_never_imports_the_toolkit(backend: list[Import]) -> None:
    assert [str(each) for each in backend if each.target[0] == "seekserve"] == []


def test_the_arrows_of_the_backend_hold(backend: list[Import]) -> None:
    assert broken(backend, "seekserve_backend", BACKEND_ARROWS, set()) == []


def test_the_arrows_of_the_toolkit_hold(toolkit: list[Import]) -> None:
    assert broken(toolkit, "seekserve", TOOLKIT_ARROWS, {"cli"}) == []


def test_the_toolkit_takes_only_what_it_may_from_the_backend(toolkit: list[Import]) -> None:
    # The bare package is fine: it is how its files are found when they are installed.
    wrong = [
        str(each)
        for each in toolkit
        if each.target[0] == "seekserve_backend"
        and len(each.target) > 1
        and each.target[1] in BACKEND_ARROWS
        and each.target[1] not in PURE
        and not (each.target[1] in TO_RUN_AN_ENGINE and each.area in MAY_RUN_AN_ENGINE)
    ]
    assert wrong == []


def test_the_pure_parts_need_the_standard_library_only(backend: list[Import]) -> None:
    known = {*sys.stdlib_module_names, "seekserve_backend"}
    assert [str(each) for each in backend if each.area in PURE and each.target[0] not in known] == []


def test_core_and_text_have_no_clock_no_thread_and_no_io(backend: list[Import]) -> None:
    pure = [each for each in backend if each.area in ("core", "text")]
    assert [str(each) for each in pure if each.target[0] in NOT_FOR_PURE] == []


def test_only_the_triton_folder_knows_triton_s_python_module(backend: list[Import], toolkit: list[Import]) -> None:
    wrong = [
        str(each)
        for each in (*backend, *toolkit)
        if each.target[0] == "triton_python_backend_utils" and each.area != "triton"
    ]
    assert wrong == []
