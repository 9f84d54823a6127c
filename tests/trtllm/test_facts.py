"""The facts themselves: every entry says where it is from and how sure it is, and names nothing that does not exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from seekserve.errors import ConfigError
from seekserve.trtllm.check import every_path
from seekserve.trtllm.data import FACTS_FOLDER, facts, parse
from seekserve.trtllm.kinds import Kind
from seekserve.trtllm.schema import ORDER, field_from, llm_schema, snapshot
from seekserve.trtllm.values import check_value

FILES = sorted(path.stem for path in FACTS_FOLDER.glob("*.yaml"))
CONFIDENCES = {"high", "medium", "low", "unverified"}


def entries(document: Mapping[str, Any], where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every mapping that states a fact: it has a type, a source, or says what to use."""
    for key, value in document.items():
        if not isinstance(value, dict):
            continue
        if {"type", "source", "confidence", "use", "since", "text"} & value.keys():
            yield f"{where}.{key}", value
        yield from entries(value, f"{where}.{key}")


ENTRIES = [entry for name in FILES for entry in entries(facts(name), name)]


def kinds_in(kind: Kind) -> Iterator[Kind]:
    yield kind
    for part in kind.parts:
        yield from kinds_in(part)


def test_there_are_as_many_facts_as_we_believe() -> None:
    assert len(ENTRIES) > 500


def test_every_entry_has_its_source_and_confidence() -> None:
    assert [where for where, entry in ENTRIES if not entry.get("source")] == []
    assert [where for where, entry in ENTRIES if entry.get("confidence") not in CONFIDENCES] == []


def test_arguments_name_snapshots_that_exist() -> None:
    for config in llm_schema().configs.values():
        for field in config.values():
            letters = field.present + field.deprecated_in + field.open_in + "".join(field.choices.values())
            letters += "".join({*field.kinds, *field.defaults, *field.ignored, *field.only} - {"*"})
            assert set(letters) <= set(ORDER), field.name


def test_nested_settings_exist() -> None:
    schema = llm_schema()
    for config in schema.configs.values():
        for field in config.values():
            for kind in kinds_in(field.kind):
                if kind.name == "config":
                    assert kind.target in schema.configs
                if kind.name == "union":
                    assert kind.target in schema.unions
    for union in schema.unions.values():
        assert {union.base, *(member.config for member in union.members.values())} <= schema.configs.keys()


def test_a_new_name_is_an_argument_of_the_newest_version() -> None:
    known = {path for path, field in every_path() if set(field.present) & set("ABD")}
    renamed = [field.renamed_to for _, field in every_path() if field.renamed_to]
    assert [name for name in renamed if name not in known] == []
    assert [name for name in llm_schema().mistaken.values() if " " not in name and name not in known] == []


def test_every_default_is_a_value_that_we_would_accept() -> None:
    wrong = []
    for path, field in every_path():
        for letter in field.present:
            at = snapshot(letter)
            default = field.default_in(at)
            if default is not None and field.kind.name not in ("any", "object"):
                wrong += [(path, letter, found.message) for found in check_value(field, default, path, at)]
    # NGram's own default in the 1.2 candidates, which it then refuses
    assert [each for each in wrong if each[:2] != ("speculative_config.max_matching_ngram_size", "N")] == []


@pytest.mark.parametrize("document", ["tools", "pbtxt"])
def test_every_default_of_a_table_is_acceptable(document: str) -> None:
    for name, table in facts(document)["tables"].items():
        for key, raw in table.items():
            field = field_from(key, raw, ORDER)
            if field.default not in (None, ""):
                assert list(check_value(field, field.default, key, snapshot("A"))) == [], f"{name}.{key}"


def test_a_repeated_key_is_refused_with_both_lines() -> None:
    with pytest.raises(ConfigError, match=r"here, line 3: key 'a' is given again \(first on line 1\)"):
        parse("a: 1\nb: 2\na: 3\n", where="here")
