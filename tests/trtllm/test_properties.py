"""Whatever the facts allow validates and survives a file; whatever they do not name is flagged."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from seekserve.trtllm import known_versions, load_extra_args, resolve_version, validate_llm_args
from seekserve.trtllm.check import every_path
from seekserve.trtllm.kinds import Kind
from seekserve.trtllm.schema import Field
from seekserve.trtllm.versions import VersionFacts

VERSIONS = st.sampled_from([resolve_version(each) for each in known_versions()])
PLAIN = ("bool", "int", "float", "str", "path", "list")
WORDS = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=8)
UNIONS = ("speculative_config", "sparse_attention_config")


def values(field: Field, kind: Kind, target: VersionFacts) -> st.SearchStrategy[Any]:
    everywhere = [word for word in field.choices if all(word in field.words_in(at) for at in target.between)]
    if everywhere:
        one: st.SearchStrategy[Any] = st.sampled_from(everywhere)
        return st.lists(one, min_size=1, max_size=3) if kind.name == "list" else one
    if kind.name == "list":
        return st.lists(values(field, kind.parts[0], target), min_size=1, max_size=4)
    bounds = {key: bound for at in target.between for key, bound in field.bounds_in(at).items()}
    low, high = max(bounds.get("min", 0), bounds.get("above", 0)), bounds.get("max", 10_000)
    if kind.name == "int":
        return st.integers(int(low), int(high))
    if kind.name == "float":
        top = bounds.get("below", high)
        return st.floats(low, top, exclude_min="above" in bounds, exclude_max="below" in bounds, allow_nan=False)
    return st.booleans() if kind.name == "bool" else WORDS


def settable(target: VersionFacts) -> list[tuple[str, Field]]:
    """Of the PyTorch class, with one plain kind in all states that speak for the version."""

    def is_for_torch(field: Field) -> bool:
        return all(at.has(field.present) and field.owner_in(at) in (None, "torch") for at in target.between)

    sections = {path for path, field in every_path() if "." not in path and is_for_torch(field)} - set(UNIONS)
    return [
        (path, field)
        for path, field in every_path()
        if path.partition(".")[0] in sections
        and field.kind.name in PLAIN
        and not field.kinds
        and is_for_torch(field)
        and (field.kind.name != "list" or field.kind.parts[0].name in ("int", "float", "str"))
    ]


@st.composite
def arguments(draw: st.DrawFn) -> tuple[VersionFacts, dict[str, Any]]:
    target = draw(VERSIONS)
    out: dict[str, Any] = {}
    for path, field in draw(st.lists(st.sampled_from(settable(target)), max_size=12)):
        *sections, name = path.split(".")
        place = out
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = draw(values(field, field.kind, target))
    return target, out


@given(arguments())
@settings(max_examples=80, deadline=None)
def test_any_set_of_allowed_values_validates_but_for_rules_across_them(
    drawn: tuple[VersionFacts, dict[str, Any]],
) -> None:
    target, args = drawn
    wrong = [
        each.text for each in validate_llm_args(args, target) if each.is_error and each.rule.startswith("argument-")
    ]
    assert wrong == []


@given(arguments())
@settings(max_examples=30, deadline=None)
def test_any_set_of_allowed_values_survives_a_file(drawn: tuple[VersionFacts, dict[str, Any]]) -> None:
    target, args = drawn
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "args.yaml"
        file.write_text(yaml.safe_dump(args), encoding="utf-8")
        assert load_extra_args(file, target) == args


KNOWN = {field.name for _, field in every_path()}
SECTIONS = ("", "kv_cache_config", "scheduler_config", "moe_config", "cuda_graph_config")


@given(VERSIONS, st.sampled_from(SECTIONS), WORDS, st.one_of(st.none(), st.integers(), WORDS, st.just([]), st.just({})))
@settings(max_examples=80, deadline=None)
def test_an_unknown_key_is_always_flagged(target: VersionFacts, section: str, word: str, value: object) -> None:
    key = f"x_{word}"
    assert key not in KNOWN
    args: dict[str, Any] = {section: {key: value}} if section else {key: value}
    path = f"{section}.{key}" if section else key
    assert [each.rule for each in validate_llm_args(args, target) if each.path == path] == ["argument-unknown"]
