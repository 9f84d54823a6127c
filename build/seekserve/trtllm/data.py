"""Reading YAML, our own facts and what people write: safe types, UTF-8, a repeated key is an error with both lines."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from seekserve.errors import ConfigError

__all__ = ["FACTS_FOLDER", "facts", "read_people_yaml"]

FACTS_FOLDER: Final = Path(__file__).parent / "facts"


@functools.cache
def facts(name: str) -> Mapping[str, Any]:
    """The document `facts/<name>.yaml`; not to be changed."""
    path = FACTS_FOLDER / f"{name}.yaml"
    document = parse(path.read_text(encoding="utf-8"), where=str(path), is_ours=True)
    assert isinstance(document, dict)
    return document


def read_people_yaml(path: Path, *, setting: str) -> Any:
    """`setting` names who asked for the file. Raises ConfigError with the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{setting}: {path} is not UTF-8 (byte {error.start})", hint="save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{setting}: cannot read {path}: {error.strerror}") from error
    return parse(text, where=str(path))


def parse(text: str, *, where: str, is_ours: bool = False) -> Any:
    import yaml

    # The C loader is ten times as fast; some builds of PyYAML lack it, and deep nesting overflows its stack.
    make = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if is_ours else yaml.SafeLoader
    loader = None
    try:
        loader = make(text)
        node = loader.get_single_node()
        if node is None:
            return {}
        _refuse_repeated_keys(node, where, set(), frozenset())
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{where}{line}: not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{where}: not YAML: {str(error).partition(chr(10))[0]}") from error
    except RecursionError:
        raise ConfigError(f"{where}: nested too deeply, or an alias that holds itself") from None
    finally:
        if loader is not None:
            loader.dispose()


def _refuse_repeated_keys(node: Any, where: str, seen: set[int], above: frozenset[int]) -> None:
    if id(node) in above:
        raise RecursionError
    if id(node) in seen:
        return
    seen.add(id(node))
    above |= {id(node)}
    if node.id == "sequence":
        for value in node.value:
            _refuse_repeated_keys(value, where, seen, above)
    if node.id != "mapping":
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.id != "scalar":
            raise ConfigError(f"{where}, line {line}: a key must be one word")
        if key.value in lines:
            raise ConfigError(
                f"{where}, line {line}: key {key.value!r} is given again (first on line {lines[key.value]})",
                hint="keep one of them",
            )
        lines[key.value] = line
        _refuse_repeated_keys(value, where, seen, above)
