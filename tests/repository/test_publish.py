"""The render job: flags over file over default, and nothing written unless everything is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_bundle import toy_bundle, write_bundle
from toy_trtllm import toy_trtllm, write_stock_model, write_trtllm

from seekserve.errors import BundleError, ConfigError, InputError, TargetExists
from seekserve.output import files_in
from seekserve.repository.check import parse_config
from seekserve.repository.publish import RenderReport, RenderRequest, publish
from seekserve.settings import PathSettings, ServerSettings, Settings
from seekserve_backend.contract.policy import Policy


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "a 'b' \"c\"" / "bundle")


def run(bundle: Path | None, out: Path | None, settings: Settings | None = None, **more: object) -> RenderReport:
    return publish(RenderRequest(bundle=bundle, out=out, **more), settings or Settings())  # type: ignore[arg-type]


def test_the_rendered_model_names_its_bundle_and_carries_its_policy(bundle: Path, tmp_path: Path) -> None:
    report = run(bundle, tmp_path / "repo")
    folder = tmp_path / "repo" / "chat"
    config = parse_config((folder / "config.pbtxt").read_text(encoding="utf-8"))
    assert config.parameters["bundle_dir"].string_value == str(bundle)
    assert (folder / config.parameters["policy_file"].string_value).read_text() == Policy().to_json()
    assert (folder / "1").is_dir()
    assert f"rendered model chat in {tmp_path / 'repo'}" in report.text()
    assert json.loads(report.json_text())["status"] == "rendered"


def test_rendering_again_changes_nothing(bundle: Path, tmp_path: Path) -> None:
    run(bundle, tmp_path / "repo")
    assert json.loads(run(bundle, tmp_path / "repo").json_text())["status"] == "unchanged"


def test_a_dry_run_prints_every_file_and_writes_none(bundle: Path, tmp_path: Path) -> None:
    report = run(bundle, tmp_path / "repo", dry_run=True)
    assert not (tmp_path / "repo").exists()
    for part in ("would create model chat", "--- chat/config.pbtxt", 'backend: "seekserve"', "--- chat/policy.json"):
        assert part in report.text()
    files = json.loads(report.json_text())["files"]
    run(bundle, tmp_path / "repo")
    assert {path: (tmp_path / "repo" / path).read_text() for path in files_in(tmp_path / "repo")} == files


def test_flags_win_over_the_file(bundle: Path, tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text("name: mine\n", encoding="utf-8")
    settings = Settings(
        path=tmp_path / "seekserve.yaml",
        policy={"name": "inline"},
        paths=PathSettings(bundle=bundle, repository=tmp_path / "repo"),
    )
    report = run(None, None, settings)
    assert (report.model_name, report.policy.name) == ("chat", "inline")
    report = run(None, None, settings, name="from-flag", policy=policy)
    assert (report.model_name, report.policy.name) == ("from-flag", "mine")
    assert sorted(path.name for path in (tmp_path / "repo").iterdir()) == ["chat", "from-flag"]


def test_a_policy_file_that_the_settings_name_is_read(bundle: Path, tmp_path: Path) -> None:
    settings = Settings(path=tmp_path / "seekserve.yaml", policy=tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match=r"policy in .*seekserve\.yaml: no such file"):
        run(bundle, tmp_path / "repo", settings)


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "x" * 65, "a\nb", "{{ 7*7 }}"])
def test_a_bad_name_writes_nothing(bundle: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is no model name"):
        run(bundle, tmp_path / "repo", name=name)
    assert not (tmp_path / "repo").exists()


def test_a_damaged_bundle_is_reported_with_every_fault(bundle: Path, tmp_path: Path) -> None:
    (bundle / "tokenizer" / "tokenizer.json").unlink()
    (bundle / "weights" / "config.json").write_text("longer than before", encoding="utf-8")
    with pytest.raises(BundleError, match="2 problems") as caught:
        run(bundle, tmp_path / "repo")
    assert "tokenizer/tokenizer.json is missing" in str(caught.value)
    assert "weights/config.json has 18 bytes where bundle.json says 3" in str(caught.value)
    assert not (tmp_path / "repo").exists()


def test_missing_places_are_asked_for(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="which bundle"):
        run(None, tmp_path)
    with pytest.raises(InputError, match="where to"):
        run(bundle, None)


def test_a_bundle_with_a_bad_name_needs_a_name(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "b", toy_bundle(name="no/name"))
    with pytest.raises(InputError, match="name in the bundle: 'no/name'"):
        run(folder, tmp_path / "repo")
    assert run(folder, tmp_path / "repo", name="good").model_name == "good"


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    return write_trtllm(tmp_path / "engine-bundle", toy_trtllm("trtllm-engine", tp=2))


@pytest.fixture
def pytorch(tmp_path: Path) -> Path:
    return write_trtllm(tmp_path / "pytorch-bundle")


def test_front_and_stock_model_are_written_together(engine: Path, tmp_path: Path) -> None:
    report = run(engine, tmp_path / "repo", topology="stock-engine", gpus=("0,1",))
    assert sorted(path.name for path in (tmp_path / "repo").iterdir()) == ["chat", "tensorrt_llm"]
    data = json.loads(report.json_text())
    assert [(model["name"], model["backend"]) for model in data["models"]] == [
        ("chat", "seekserve"), ("tensorrt_llm", "tensorrtllm"),
    ]  # fmt: skip
    assert "chat (seekserve) -> tensorrt_llm (tensorrtllm)" in report.text()
    again = run(engine, tmp_path / "repo", topology="stock-engine", gpus=("0,1",))
    assert {result.action for result in again.results} == {"keep"}


def test_when_one_of_two_models_cannot_be_written_neither_is(engine: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "repo" / "tensorrt_llm"
    (theirs / "1").mkdir(parents=True)
    (theirs / "config.pbtxt").write_text("theirs", encoding="utf-8")
    with pytest.raises(TargetExists, match="was not made by"):
        run(engine, tmp_path / "repo", topology="stock-engine")
    assert [path.name for path in (tmp_path / "repo").iterdir()] == ["tensorrt_llm"]


def test_what_the_engine_was_built_with_is_read_from_its_own_file(tmp_path: Path) -> None:
    bundle = write_trtllm(tmp_path / "b", toy_trtllm("trtllm-engine"), paged_context=False)
    with pytest.raises(ConfigError, match="use_paged_context_fmha"):
        run(bundle, tmp_path / "repo", topology="stock-engine")
    unknown = write_trtllm(tmp_path / "u", toy_trtllm("trtllm-engine"), paged_context=None)
    assert run(unknown, tmp_path / "repo", topology="stock-engine").warnings == ()


def test_the_stock_files_are_recorded_by_hash(pytorch: Path, tmp_path: Path) -> None:
    stock = write_stock_model(tmp_path / "image")
    report = run(pytorch, tmp_path / "repo", topology="llmapi", stock_model_dir=stock)
    data = json.loads(report.json_text())
    manifest = json.loads((tmp_path / "repo/chat/rendered.json").read_text())
    assert data["policy"] is None
    assert data["stock_files"]["model.py"] == manifest["files"]["1/model.py"]
    assert (tmp_path / "repo/chat/1/model.py").read_bytes() == (stock / "1/model.py").read_bytes()


def test_files_that_were_copied_in_afterwards_stay(pytorch: Path, tmp_path: Path) -> None:
    report = run(pytorch, tmp_path / "repo", topology="llmapi")
    target = tmp_path / "repo/chat/1"
    source = "/app/all_models/llmapi/tensorrt_llm/1"
    assert f"cp {source}/model.py {source}/helpers.py {target}/" in report.text()
    stock = write_stock_model(tmp_path / "image")
    for name in ("model.py", "helpers.py"):
        (target / name).write_bytes((stock / "1" / name).read_bytes())
    report = run(pytorch, tmp_path / "repo", topology="llmapi")
    assert report.warnings == ()
    assert json.loads((target.parent / "rendered.json").read_text())["files"].keys() >= {"1/model.py", "1/helpers.py"}
    assert run(pytorch, tmp_path / "repo", topology="llmapi").result.action == "keep"


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"stock_name": "x"}, "--stock-name has no effect with --topology integrated"),
        ({"stock_parameters": ("a=b",)}, "--stock-parameter has no effect"),
        ({"cancellation_check_ms": 5}, "--cancellation-check-ms has no effect"),
        ({"stock_model_dir": Path("x")}, "--stock-model-dir has no effect"),
        ({"topology": "llmapi", "policy": Path("p.yaml")}, "--policy has no effect with --topology llmapi"),
        ({"base_image": "x"}, "--base-image has no effect without --dockerfile"),
        ({"topology": "ensemble"}, "--topology ensemble: unknown"),
    ],
)
def test_a_flag_without_effect_is_refused(pytorch: Path, tmp_path: Path, flags: dict[str, object], word: str) -> None:
    with pytest.raises(InputError, match=word):
        run(pytorch, tmp_path / "repo", **flags)
    assert not (tmp_path / "repo").exists()


def test_a_dockerfile_comes_with_the_lines_that_use_it(pytorch: Path, tmp_path: Path) -> None:
    settings = Settings(server=ServerSettings(http_port=9000, grpc_port=0))
    report = run(pytorch, tmp_path / "repo", settings, dockerfile="")
    path = tmp_path / "repo.docker" / "Dockerfile"
    assert "FROM nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3" in path.read_text()
    docker = json.loads(report.json_text())["docker"]
    assert docker["file"] == str(path)
    assert docker["commands"][1][:2] == ["docker", "build"]
    assert "127.0.0.1:9000:9000" in docker["commands"][2]
    assert "127.0.0.1:8001:8001" in docker["commands"][2]
    assert "then: docker run --rm" in report.text()
    assert run(pytorch, tmp_path / "repo", settings, dockerfile="").docker is not None


def test_a_dry_run_with_a_dockerfile_prints_it_and_writes_nothing(pytorch: Path, tmp_path: Path) -> None:
    report = run(pytorch, tmp_path / "repo", dockerfile="", dry_run=True)
    assert "FROM nvcr.io" in report.text()
    assert "FROM nvcr.io" in json.loads(report.json_text())["docker"]["text"]
    assert not (tmp_path / "repo").exists()
    assert not (tmp_path / "repo.docker").exists()


@pytest.mark.parametrize("version", ["1.3.0rc20", "1.4.0rc4"])
def test_an_unknown_image_stops_before_anything_is_written(tmp_path: Path, version: str) -> None:
    folder = write_trtllm(tmp_path / "b", toy_trtllm(version=version))
    with pytest.raises(InputError, match="--base-image"):
        run(folder, tmp_path / "repo", dockerfile="")
    assert not (tmp_path / "repo").exists()
    run(folder, tmp_path / "repo", dockerfile="", base_image="mine:1")


def test_every_topology_passes_the_repository_check(engine: Path, pytorch: Path, tmp_path: Path) -> None:
    from seekserve.repository.checking import check_repository

    stock = write_stock_model(tmp_path / "image")
    cases: dict[str, tuple[Path, dict[str, object]]] = {
        "integrated": (pytorch, {}),
        "llmapi": (pytorch, {"topology": "llmapi", "stock_model_dir": stock}),
        "stock-engine": (engine, {"topology": "stock-engine"}),
    }
    for name, (bundle, flags) in cases.items():
        run(bundle, tmp_path / name, **flags)
        (bundle / "engine" / "rank0.engine").parent.mkdir(exist_ok=True)
        found = {each.rule for each in check_repository(tmp_path / name).errors}
        assert found <= {"engine"}, name  # the toy engine has no rank files
