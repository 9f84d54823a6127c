"""The stock LLM-API model: both files say the same, the tokenizer stays on, model.py comes from the image."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from toy_trtllm import PYTORCH_ARGS, toy_trtllm, write_stock_model

from seekserve.errors import ConfigError, ConflictError, InputError
from seekserve.repository.check import parse_config
from seekserve.repository.placement import Placement
from seekserve.repository.render import Rendering, RenderOptions, render
from seekserve.repository.stock_files import read_stock_files

OPTIONS = RenderOptions(model_name="chat", bundle_dir=Path("/srv/b"), topology="llmapi", llm_args=PYTORCH_ARGS)
TWO = Placement(instances=2, gpus=((0,), (1,)))


def rendered(version: str = "1.2.1", **options: Any) -> Rendering:
    return render(toy_trtllm(version=version), dataclasses.replace(OPTIONS, **options))


def model_yaml(rendering: Rendering) -> dict[str, Any]:
    data = yaml.safe_load(rendering.files["chat/1/model.yaml"])
    assert isinstance(data, dict)
    return data


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("version", ["1.2.1", "1.3.0rc20", "1.4.0rc4"])
def test_both_files_say_the_same_about_streaming_and_batching(version: str, streaming: bool) -> None:
    rendering = rendered(version, is_streaming=streaming)
    config = parse_config(rendering.files["chat/config.pbtxt"])
    triton = model_yaml(rendering)["triton_config"]
    assert triton == {"max_batch_size": 0, "decoupled": streaming}
    assert config.model_transaction_policy.decoupled is streaming
    assert "max_batch_size: 0\n" in rendering.files["chat/config.pbtxt"]
    assert config.max_batch_size == 0


def test_the_arguments_are_the_bundles_with_paths_of_the_bundle_given_once() -> None:
    data = model_yaml(rendered())
    assert data.pop("model") == "/srv/b/weights"
    assert data.pop("tokenizer") == "/srv/b/tokenizer"
    del data["triton_config"]
    assert data == {key: value for key, value in PYTORCH_ARGS.items() if key != "skip_tokenizer_init"}


def test_the_stock_model_tokenises_whatever_our_backend_does() -> None:
    assert "skip_tokenizer_init" not in model_yaml(rendered(llm_args={"skip_tokenizer_init": True}))


def test_a_cancellation_period_stands_there_when_it_was_given() -> None:
    assert model_yaml(rendered(cancellation_check_ms=20))["triton_config"]["cancellation_check_period_ms"] == 20


def test_arguments_that_the_version_refuses_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_batchsize"):
        rendered(llm_args={"max_batchsize": 3})


def test_the_images_python_files_are_taken_and_nothing_else(tmp_path: Path) -> None:
    stock = read_stock_files(write_stock_model(tmp_path / "m"))
    rendering = rendered(stock_files=stock)
    assert set(rendering.files) == {
        f"chat/{name}" for name in ("config.pbtxt", "1/model.py", "1/helpers.py", "1/model.yaml")
    }
    assert model_yaml(rendering)["model"] == "/srv/b/weights"
    assert rendering.warnings == ()
    assert set(stock.hashes) == {"model.py", "helpers.py"}
    assert read_stock_files(tmp_path / "m" / "1").texts == stock.texts


def test_without_them_the_rendering_says_what_is_missing() -> None:
    assert any("model.py and helpers.py are not in it yet" in warning for warning in rendered().warnings)


def test_the_images_own_declaration_of_tensors_wins(tmp_path: Path) -> None:
    config = (
        'backend: "python" input { name: "text_input" data_type: TYPE_STRING dims: -1 } '
        'input { name: "lora_id" data_type: TYPE_UINT64 dims: 1 optional: true } '
        'output { name: "text_output" data_type: TYPE_STRING dims: -1 }'
    )
    stock = read_stock_files(write_stock_model(tmp_path / "m", config=config))
    found = parse_config(rendered(stock_files=stock).files["chat/config.pbtxt"])
    assert [tensor.name for tensor in found.input] == ["text_input", "lora_id"]


def test_several_instances_need_a_model_that_reads_their_gpus(tmp_path: Path) -> None:
    assert any("not checked" in warning for warning in rendered(placement=TWO).warnings)
    new = read_stock_files(write_stock_model(tmp_path / "new"))
    config = parse_config(rendered(placement=TWO, stock_files=new).files["chat/config.pbtxt"])
    assert config.instance_group[0].count == 2
    assert config.parameters["gpu_device_ids"].string_value == "0;1"
    old = read_stock_files(write_stock_model(tmp_path / "old", model="nothing of that kind"))
    with pytest.raises(ConflictError, match="does not read gpu_device_ids"):
        rendered(placement=TWO, stock_files=old)


@pytest.mark.parametrize(
    ("break_it", "word"),
    [
        (lambda folder: (folder / "1" / "helpers.py").unlink(), r"helpers\.py is missing"),
        (lambda folder: (folder / "1" / "model.py").write_text("x = 1"), "defines no TritonPythonModel"),
        (lambda folder: (folder / "1" / "model.py").write_bytes(b"\xff"), "is not UTF-8"),
        (lambda folder: (folder / "1" / "a-b.py").write_text(""), "is no name of a Python module"),
        (lambda folder: (folder / "1" / "big.py").write_text("#" * (1 << 20) + "#"), "more than the 1048576"),
        (lambda folder: (folder / "config.pbtxt").write_text("nonsense"), "not a Triton model configuration"),
    ],
)
def test_a_folder_that_is_no_stock_model_is_refused(tmp_path: Path, break_it: Any, word: str) -> None:
    folder = write_stock_model(tmp_path / "m")
    break_it(folder)
    with pytest.raises(InputError, match=word):
        read_stock_files(folder)


def test_a_folder_that_is_not_there_is_refused_with_the_place_in_the_image(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="/app/all_models/llmapi/tensorrt_llm"):
        read_stock_files(tmp_path / "none")
