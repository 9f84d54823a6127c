"""Rendering: goldens, and any path survives the trip through the template."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_bundle import toy_bundle

from seekserve.errors import InputError, RenderError
from seekserve.repository.check import check_files, parse_config
from seekserve.repository.render import RenderOptions, model_parameters, render
from seekserve_backend.contract.policy import ClassPolicy, Policy
from seekserve_backend.contract.tensors import INPUTS, OUTPUTS

# SEEKSERVE_UPDATE_GOLDENS=1 writes them anew; the difference is then reviewed as a diff.
UPDATE = os.environ.get("SEEKSERVE_UPDATE_GOLDENS") == "1"
GOLDEN = Path(__file__).parent / "golden"
CASES = {
    "default": RenderOptions(model_name="chat", bundle_dir=Path("/srv/bundles/chat"), policy=Policy()),
    "quoting": RenderOptions(
        model_name="7B.v2-lite_x",
        bundle_dir=Path('/srv/a "b"/c,d:e=f/你好'),
        policy=Policy(classes={"interactive": ClassPolicy(priority=0, max_queue_requests=1, deadline_ms=5)}),
    ),
}


def golden_files(case: str) -> Iterator[tuple[Path, str]]:
    for path, text in render(toy_bundle(), CASES[case]).items():
        if text:
            yield GOLDEN / case / path.partition("/")[2], text


@pytest.mark.parametrize("case", CASES)
def test_what_is_rendered_equals_the_golden_files(case: str) -> None:
    for path, text in golden_files(case):
        if UPDATE:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_goldens_parse_back_and_mean_what_was_meant(case: str) -> None:
    options = CASES[case]
    files = render(toy_bundle(), options)
    check_files(files, model_name=options.model_name, parameters=model_parameters(options))
    policy = Policy.from_data(json.loads(files[f"{options.model_name}/policy.json"]), "policy.json")
    assert policy.to_json() == options.policy.to_json()


@pytest.mark.parametrize(
    "folder",
    [
        "/a b",
        "/a'b",
        '/a"b',
        "/a,b",
        "/a:b",
        "/a=b",
        "/a\\b",
        "/a\nb",
        "/a\tb",
        "/${x}",
        "/{{ x }}",
        "/{% x %}",
        "/#x",
        "/ü",
    ],
)
def test_any_bundle_path_reads_back_unchanged(folder: str) -> None:
    options = RenderOptions(model_name="m", bundle_dir=Path(folder), policy=Policy())
    files = render(toy_bundle(), options)
    check_files(files, model_name="m", parameters=model_parameters(options))
    assert parse_config(files["m/config.pbtxt"]).parameters["bundle_dir"].string_value == folder


def test_a_path_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(RenderError, match="not valid Unicode"):
        render(toy_bundle(), RenderOptions(model_name="m", bundle_dir=Path(os.fsdecode(b"/a\xe9")), policy=Policy()))


def test_a_relative_path_is_refused() -> None:
    with pytest.raises(InputError, match="must be absolute"):
        render(toy_bundle(), RenderOptions(model_name="m", bundle_dir=Path("b"), policy=Policy()))


def test_every_tensor_of_the_contract_is_declared_in_its_order() -> None:
    config = parse_config(render(toy_bundle(), CASES["default"])["chat/config.pbtxt"])
    assert [tensor.name for tensor in config.input] == [spec.name for spec in INPUTS]
    assert [tensor.name for tensor in config.output] == [spec.name for spec in OUTPUTS]


def test_a_bundle_name_cannot_become_configuration() -> None:
    with pytest.raises(RenderError, match="line 2: a comment must be one printable line"):
        render(toy_bundle(name='x\nbackend: "python"'), CASES["default"])


def test_rendering_is_pure() -> None:
    assert render(toy_bundle(), CASES["default"]) == render(toy_bundle(), CASES["default"])
