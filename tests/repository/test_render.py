"""Rendering: goldens for each topology and version, and any path survives the trip through the template."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_bundle import toy_bundle
from toy_trtllm import ENGINE_ARGS, PYTORCH_ARGS, toy_trtllm

from seekserve.errors import ConflictError, InputError, RenderError
from seekserve.repository.check import check_files, parse_config
from seekserve.repository.placement import Placement
from seekserve.repository.render import RenderOptions, render
from seekserve_backend.contract.bundle import Bundle
from seekserve_backend.contract.policy import ClassPolicy, Policy
from seekserve_backend.contract.tensors import INPUTS, OUTPUTS

# SEEKSERVE_UPDATE_GOLDENS=1 writes them anew; the difference is then reviewed as a diff.
UPDATE = os.environ.get("SEEKSERVE_UPDATE_GOLDENS") == "1"
GOLDEN = Path(__file__).parent / "golden"
PLAIN = RenderOptions(model_name="chat", bundle_dir=Path("/srv/bundles/chat"))
STOCK = dataclasses.replace(PLAIN, topology="stock-engine", llm_args=ENGINE_ARGS, has_paged_context=True)
LLMAPI = dataclasses.replace(PLAIN, topology="llmapi", llm_args=PYTORCH_ARGS)
CASES: dict[str, tuple[Bundle, RenderOptions]] = {
    "default": (toy_bundle(), PLAIN),
    "quoting": (
        toy_bundle(),
        RenderOptions(
            model_name="7B.v2-lite_x",
            bundle_dir=Path('/srv/a "b"/c,d:e=f/你好'),
            policy=Policy(classes={"interactive": ClassPolicy(priority=0, max_queue_requests=1, deadline_ms=5)}),
        ),
    ),
    "two-instances": (
        toy_trtllm(tp=2),
        dataclasses.replace(PLAIN, placement=Placement(instances=2, gpus=((0, 1), (2, 3)))),
    ),
    "no-streaming": (toy_bundle(), dataclasses.replace(PLAIN, is_streaming=False)),
    **{
        f"stock-engine-{version}": (
            toy_trtllm("trtllm-engine", version, tp=2),
            dataclasses.replace(STOCK, placement=Placement(gpus=((0, 1),)), cancellation_check_ms=50),
        )
        for version in ("1.2.1", "1.3.0rc20")
    },
    "stock-engine-no-streaming": (
        toy_trtllm("trtllm-engine"),
        dataclasses.replace(STOCK, is_streaming=False, stock_name="engine"),
    ),
    **{f"llmapi-{version}": (toy_trtllm(version=version), LLMAPI) for version in ("1.2.1", "1.3.0rc20", "1.4.0rc4")},
    "llmapi-no-streaming": (toy_trtllm(), dataclasses.replace(LLMAPI, is_streaming=False, cancellation_check_ms=50)),
}


def golden_files(case: str) -> Iterator[tuple[Path, str]]:
    for path, text in render(*CASES[case]).files.items():
        if text:
            yield GOLDEN / case / path, text


@pytest.mark.parametrize("case", CASES)
def test_what_is_rendered_equals_the_golden_files(case: str) -> None:
    for path, text in golden_files(case):
        if UPDATE:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")


def test_there_is_no_golden_file_that_nothing_renders() -> None:
    wanted = {path for case in CASES for path, _ in golden_files(case)}
    assert {path for path in GOLDEN.rglob("*") if path.is_file()} == wanted


@pytest.mark.parametrize("case", CASES)
def test_goldens_parse_back_and_mean_what_was_meant(case: str) -> None:
    bundle, options = CASES[case]
    rendering = render(bundle, options)
    check_files(rendering.files, rendering.models)
    if options.topology != "llmapi":
        policy = Policy.from_data(json.loads(rendering.files[f"{options.model_name}/policy.json"]), "policy.json")
        assert policy.to_json() == options.policy.to_json()


@pytest.mark.parametrize("case", CASES)
def test_no_text_of_another_template_tool_is_left(case: str) -> None:
    for text in render(*CASES[case]).files.values():
        assert "${" not in text
        assert "{{" not in text


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
    rendering = render(toy_bundle(), options)
    check_files(rendering.files, rendering.models)
    assert parse_config(rendering.files["m/config.pbtxt"]).parameters["bundle_dir"].string_value == folder


def test_a_path_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(RenderError, match="not valid Unicode"):
        render(toy_bundle(), RenderOptions(model_name="m", bundle_dir=Path(os.fsdecode(b"/a\xe9")), policy=Policy()))


def test_a_relative_path_is_refused() -> None:
    with pytest.raises(InputError, match="must be absolute"):
        render(toy_bundle(), RenderOptions(model_name="m", bundle_dir=Path("b"), policy=Policy()))


def test_every_tensor_of_the_contract_is_declared_in_its_order() -> None:
    config = parse_config(render(*CASES["default"]).files["chat/config.pbtxt"])
    assert [tensor.name for tensor in config.input] == [spec.name for spec in INPUTS]
    assert [tensor.name for tensor in config.output] == [spec.name for spec in OUTPUTS]


def test_a_bundle_name_cannot_become_configuration() -> None:
    with pytest.raises(RenderError, match="line 2: a comment must be one printable line"):
        render(toy_bundle(name='x\nbackend: "python"'), PLAIN)


def test_rendering_is_pure() -> None:
    for case in CASES.values():
        assert render(*case) == render(*case)


@pytest.mark.parametrize(
    ("bundle", "topology", "word"),
    [
        (toy_bundle(), "stock-engine", "was built for reference"),
        (toy_trtllm(), "stock-engine", "runs trtllm-engine bundles"),
        (toy_trtllm("trtllm-engine"), "llmapi", "was built for trtllm-engine"),
    ],
)
def test_a_topology_of_another_engine_kind_is_refused(bundle: Bundle, topology: str, word: str) -> None:
    with pytest.raises(ConflictError, match=word) as caught:
        render(bundle, dataclasses.replace(PLAIN, topology=topology))
    assert "--topology integrated" in str(caught.value)
