"""The names that others build on change on purpose only."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from seekserve import errors


def test_the_exception_tree_is_drawn_as_it_is() -> None:
    drawn = re.findall(r"^ {4}([│├└─ ]*)([A-Z]\w+)(?: +exit (\d))?", errors.__doc__ or "", re.MULTILINE)
    parents: list[tuple[int, str]] = []
    names = []
    for branch, name, exit_code in drawn:
        kind = getattr(errors, name)
        while parents and parents[-1][0] >= len(branch):
            parents.pop()
        base = parents[-1][1] if parents else "Exception"
        assert kind.__bases__[0].__name__ == base, f"{name} is drawn below {base}"
        if exit_code:
            assert kind.exit_code == int(exit_code), f"{name} is drawn with exit {exit_code}"
            parents.append((len(branch), name))
        else:
            assert kind.exit_code == getattr(errors, base).exit_code
        names.append(name)
    assert sorted(names) == errors.__all__


def test_the_exported_errors_are_all_there_are() -> None:
    defined = [
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    ]
    assert sorted(defined) == sorted(errors.__all__) == errors.__all__


def test_a_hint_stands_on_a_line_of_its_own() -> None:
    assert str(errors.InputError("what")) == "what"
    assert str(errors.InputError("what", hint="do this")) == "what\n  hint: do this"


PUBLIC = {
    "seekserve.client": [
        "AnswerReader",
        "AsyncClient",
        "AsyncStream",
        "ChatAnswer",
        "Client",
        "Completion",
        "Delta",
        "GenerateRequest",
        "ServerInfo",
        "Stream",
        "TextKind",
        "ToolCall",
        "read_answer",
    ],
}


@pytest.mark.parametrize("module", PUBLIC)
def test_a_package_exports_exactly_its_public_nouns(module: str) -> None:
    assert import_module(module).__all__ == PUBLIC[module]


def sources(root: Path) -> list[Path]:
    return [path for folder in ("build", "python_backend") for path in sorted((root / folder).rglob("*.py"))]


def test_every_module_says_what_it_exports_and_has_it(repository_root: Path) -> None:
    wrong = []
    for path in sources(repository_root):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        listed = [
            ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]
        ]
        if not listed:
            continue
        bound = set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                bound.add(node.name)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                bound |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound.add(node.id)
        wrong += [f"{path.name}: {name}" for name in listed[0] if name not in bound]
    assert wrong == []


def test_every_module_begins_with_what_it_is_for(repository_root: Path) -> None:
    missing = [
        str(path.relative_to(repository_root))
        for path in sources(repository_root)
        if ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) is None and path.read_text(encoding="utf-8")
    ]
    assert missing == []
