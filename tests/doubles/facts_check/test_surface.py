"""The double's surface against tables written from the public sources: names, order, defaults, words, refusals."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.doubles.double_tests.conftest import Make
from tests.doubles.double_tests.package import PROFILES, Package

HERE = Path(__file__).resolve().parent


def table(name: str) -> Any:
    return yaml.safe_load((HERE / f"{name}.yaml").read_text(encoding="utf-8"))


def shown(parameter: inspect.Parameter) -> Any:
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return "variable"
    return "required" if parameter.default is inspect.Parameter.empty else parameter.default


def cases() -> list[Any]:
    methods = table("methods")
    return [
        pytest.param(profile, name, expected, id=f"{profile}-{name}")
        for profile, era in methods["profiles"].items()
        for name, expected in {**methods["both"], **methods[era]}.items()
    ]


@pytest.mark.parametrize(("profile", "name", "expected"), cases())
def test_methods_have_the_documented_order_and_defaults(
    double: Make, profile: str, name: str, expected: Mapping[str, Any]
) -> None:
    signature = inspect.signature(getattr(double(profile).root.LLM, name))
    found = {key: shown(parameter) for key, parameter in signature.parameters.items() if key != "self"}
    assert list(found) == list(expected)
    assert found == expected


def test_newer_methods_are_absent_before(double: Make) -> None:
    llm = double("1.2.1").root.LLM
    assert not any(hasattr(llm, name) for name in ("preprocess", "encode", "get_kv_cache_capacity"))


@pytest.mark.parametrize("profile", PROFILES)
def test_classes_have_the_documented_fields(double: Make, profile: str) -> None:
    tables, package = table("classes"), double(profile)
    era = tables["profiles"][profile]
    for path, eras in tables.items():
        if path in ("profiles", "make", "refused", "accepted"):
            continue
        module, _, name = path.rpartition(".")
        cls = getattr(package.module(module), name)
        expected = {**eras["P12"], **(eras.get("NEW", {}) if era == "NEW" else {})}
        made = cls(**tables["make"].get(path, {}))
        public = [field.name for field in dataclasses.fields(cls) if not field.name.startswith("_")]
        assert sorted(public) == sorted(expected), path
        assert {name: getattr(made, name) for name in public} == expected, path
        assert not hasattr(made, "__dict__"), path


@pytest.mark.parametrize("profile", PROFILES)
def test_sampling_parameters_are_checked_as_documented(double: Make, profile: str) -> None:
    tables, package = table("classes"), double(profile)
    is_new = tables["profiles"][profile] == "NEW"
    make = package.root.SamplingParams
    for given in (*tables["refused"]["P12"], *(tables["refused"]["NEW"] if is_new else ())):
        with pytest.raises(ValueError):
            make(**given)
    for given in tables["accepted"]["NEW" if is_new else "P12"]:
        make(**given)
    with pytest.raises(TypeError):
        make(temprature=1.0)
    with pytest.raises(TypeError):
        make(5)
    with pytest.raises(AttributeError):
        make().unknown = 1
    if not is_new:
        for name in tables["sampling_params.SamplingParams"]["NEW"]:
            with pytest.raises(TypeError):
                make(**{name: None})


@pytest.mark.parametrize("profile", ["1.2.1", "1.4.0rc4"])
def test_arguments_have_the_documented_fields_and_defaults(double: Make, profile: str) -> None:
    tables, package = table("llm_args"), double(profile)
    for name, states in tables.items():
        parts = [states[state] for state in tables["profiles"][profile] if state in states]
        if name in ("profiles", "absent", "words") or not parts:
            continue
        made = argument(package, name)
        for field, default in {key: value for part in parts for key, value in part.items()}.items():
            assert hasattr(made, field), f"{name}.{field}"
            found = getattr(made, field)
            assert default == "any" or found == default, f"{name}.{field} is {found!r}, not {default!r}"


@pytest.mark.parametrize("profile", ["1.2.1", "1.4.0rc4"])
def test_absent_arguments_are_refused(double: Make, profile: str) -> None:
    package = double(profile)
    for name, fields in table("llm_args")["absent"][profile].items():
        for field in fields:
            with pytest.raises(ValueError):
                argument(package, name, **{field: 1})


@pytest.mark.parametrize("profile", ["1.2.1", "1.4.0rc4"])
def test_words_are_taken_and_refused_as_documented(double: Make, profile: str) -> None:
    package = double(profile)
    for path, words in table("llm_args")["words"][profile].items():
        name, _, field = path.partition(".")
        for word in words["takes"]:
            argument(package, name, **{field: word})
        for word in words["refuses"]:
            with pytest.raises(ValueError):
                argument(package, name, **{field: word})


@pytest.mark.parametrize("profile", PROFILES)
def test_rows_have_the_documented_keys(double: Make, profile: str) -> None:
    tables, package = table("statistics"), double(profile)

    async def go() -> dict[str, Any]:
        spec = {"decoding_type": "NGram", "max_draft_len": 2}
        switches = {"enable_iter_perf_stats": True, "enable_iter_req_stats": True, "speculative_config": spec}
        llm = await asyncio.to_thread(package.llm, **switches)
        await llm.generate_async([5, 6], sampling_params=package.params(), streaming=False)
        rows = [row async for row in llm.get_stats_async(timeout=0.4)]
        await asyncio.to_thread(llm.shutdown)
        return dict(rows[0])

    row = asyncio.run(go())
    eras = tables.pop("profiles")[profile]
    for name, keys in tables.items():
        expected = sorted(key for era in eras for key in keys.get(era, ()))
        assert sorted(row if name == "row" else row[name]) == expected, name


def argument(package: Package, name: str, **given: Any) -> Any:
    llm_args = package.module("llmapi.llm_args")
    needed = {"model": "/nowhere"} if name.endswith("LlmArgs") else {}
    return getattr(llm_args, name)(**needed, **given)
