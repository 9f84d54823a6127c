"""A user's own arguments: `--set path=value` flags and a YAML file. Only what was given comes out, without defaults.

Values are typed by the schema, so `revision=123` stays text and `max_num_tokens=0.9` is a mistake. Text is taken as it
stands: only the first `=` divides, and commas, colons and quotes belong to the value. Problems are reported together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from seekserve.errors import ConfigError
from seekserve.output import problems_text

from .arguments import check_names
from .check import every_path
from .data import parse, read_people_yaml
from .finding import ArgFinding, error, raise_errors
from .kinds import Kind, describe
from .schema import ROOT, llm_schema
from .versions import VersionFacts

__all__ = ["load_extra_args", "overlay", "parse_set"]

_PATH: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z")
_WHOLE: Final = re.compile(r"[+-]?\d{1,18}\Z")
_SHAPE: Final = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size", "moe_expert_parallel_size")


def parse_set(
    assignments: Iterable[str], version: str | VersionFacts, *, engine_kind: str = "trtllm-pytorch"
) -> dict[str, Any]:
    """Nested mapping of `path=value` texts. Raises ConfigError with every problem."""
    values: dict[str, object] = {}
    texts: dict[str, str] = {}
    problems: list[str] = []
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        path = path.strip()
        if not equals or not _PATH.match(path):
            problems.append(f"{assignment!r} is not of the form path=value, such as kv_cache_config.dtype=fp8")
        elif path in texts and texts[path] != text:
            problems.append(f"{path} is given twice, as {texts[path]!r} and as {text!r}: keep one")
        elif (other := _whole_and_part(path, texts)) is not None:
            problems.append(f"{path} and {other} overlap: give one of them")
        else:
            texts[path] = text
            try:
                values[path] = _value(path, text)
            except ConfigError as problem:
                problems.append(problem.message)
    nested = _nest(values)
    problems += [finding.text for finding in check_names(nested, version, engine_kind) if finding.is_error]
    if problems:
        raise ConfigError(problems_text("--set", problems))
    return nested


def load_extra_args(path: Path, version: str | VersionFacts, *, engine_kind: str = "trtllm-pytorch") -> dict[str, Any]:
    """The arguments in a YAML file. Raises ConfigError with every wrong name, type, bound or word."""
    document = read_people_yaml(path, setting="--extra-args")
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: holds {_document_words(document)} where a mapping of arguments is due")
    raise_errors(check_names(document, version, engine_kind), str(path))
    return document


def overlay(base: Mapping[str, Any], extra: Mapping[str, Any]) -> tuple[dict[str, Any], list[ArgFinding]]:
    """`extra` over `base`, section by section, and an error for every parallel size on which the two disagree."""
    conflicts = [
        error(
            "shape-conflict", name, f"is {extra[name]} here, but the plan says {base[name]}", "change the plan instead"
        )
        for name in _SHAPE
        if base.get(name) is not None and extra.get(name) is not None and base[name] != extra[name]
    ]
    return _merged(base, extra), conflicts


def _document_words(document: object) -> str:
    return {list: "a list", str: "text", type(None): "nothing"}.get(type(document), repr(document)[:40])


def _merged(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in extra.items():
        old = out.get(key)
        out[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


def _whole_and_part(path: str, seen: Mapping[str, str]) -> str | None:
    return next((other for other in seen if path.startswith(f"{other}.") or other.startswith(f"{path}.")), None)


def _nest(values: Mapping[str, object]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        place = out
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return out


def _value(path: str, text: str) -> object:
    """An unknown path is left to the check of names, which knows the nearest one."""
    kind = _kinds().get(path)
    if kind is None:
        return text
    if any(ord(letter) < 32 for letter in text):
        raise ConfigError(f"{path}: the value holds a line break or control character")
    if kind.takes_null and text == "null":
        return None
    return _typed(kind, text, path)


def _typed(kind: Kind, text: str, path: str) -> object:
    if kind.name in ("str", "path"):
        return _text(text, path)
    if kind.name in ("config", "union", "map", "either", "any", "object", "scalar"):
        return parse(text, where=f"--set {path}")
    if kind.name == "list":
        listed = text if text.lstrip().startswith("[") else f"[{text}]"
        return parse(listed, where=f"--set {path}")
    stripped = text.strip()
    if kind.name == "bool" and stripped.lower() in ("true", "false"):
        return stripped.lower() == "true"
    if kind.name in ("int", "float") and _WHOLE.match(stripped):
        return int(stripped)
    if kind.name == "float":
        try:
            return float(stripped)
        except ValueError:
            pass
    raise ConfigError(f"{path}: {text!r} is not {describe(kind)}")


def _text(text: str, path: str) -> object:
    """Text wholly in double quotes is read as YAML, so that "null" can be said where null means nothing."""
    return parse(text, where=f"--set {path}") if len(text) > 1 and text[0] == text[-1] == '"' else text


def _kinds() -> dict[str, Kind]:
    kinds = {path: _joined((field.kind, *field.kinds.values())) for path, field in every_path()}
    for name, field in llm_schema().configs[ROOT].items():
        if field.kind.name == "union":
            kinds[f"{name}.{llm_schema().unions[field.kind.target].key}"] = Kind(name="str")
    return kinds


def _joined(kinds: tuple[Kind, ...]) -> Kind:
    """What any snapshot takes. Kinds that differ in null only stay one kind, so that text stays text."""
    bare = {replace(kind, takes_null=False) for kind in kinds}
    if len(bare) > 1:
        return Kind(name="either", parts=kinds)
    return replace(kinds[0], takes_null=any(kind.takes_null for kind in kinds))
