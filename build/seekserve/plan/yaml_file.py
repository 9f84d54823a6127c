"""Reading YAML that people write: safe types only, a repeated key is an error with both lines, UTF-8 always."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seekserve.errors import ConfigError

__all__ = ["parse_yaml", "read_yaml"]


def read_yaml(path: Path, *, setting: str) -> Any:
    """The document in `path`; `setting` names who asked for the file, e.g. `--config`."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{setting}: no such file: {path}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{setting}: {path} is not UTF-8 (byte {error.start})", hint="save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{setting}: cannot read {path}: {error.strerror}") from error
    return parse_yaml(text, where=str(path))


def parse_yaml(text: str, *, where: str) -> Any:
    """Raises ConfigError with the line of a syntax error or of a repeated key."""
    import yaml

    loader = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return {}
        _refuse_repeated_keys(node, where)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{where}{line}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"{where}: not YAML: {reason}") from error
    except ValueError as error:
        # PyYAML lets impossible dates and the like through as plain ValueErrors.
        raise ConfigError(f"{where}: {error}") from error
    except RecursionError:
        raise ConfigError(f"{where}: nested too deeply, or an alias that holds itself") from None
    finally:
        if loader is not None:
            loader.dispose()


def _refuse_repeated_keys(root: Any, where: str) -> None:
    import yaml

    seen_nodes: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen_nodes:
            continue
        seen_nodes.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            stack += node.value
        if not isinstance(node, yaml.MappingNode):
            continue
        first_lines: dict[str, int] = {}
        for key, value in node.value:
            stack.append(value)
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"{where}, line {key.start_mark.line + 1}: a key must be one word")
            line = key.start_mark.line + 1
            if key.value in first_lines:
                raise ConfigError(
                    f"{where}, line {line}: key {key.value!r} is given again (first on line {first_lines[key.value]})",
                    hint="keep one of them",
                )
            first_lines[key.value] = line
