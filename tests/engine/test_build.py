"""build-engine for the reference engine: a whole bundle or nothing; what is there is reused or left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toy import Toy, qwen_toy, v3_toy

from seekserve.engine.build import BuildReport, BuildRequest, build
from seekserve.errors import CheckpointError, ConfigError, DoesNotFit, InputError, TargetExists
from seekserve.output import files_in
from seekserve.plan.bundle import open_bundle
from seekserve.plan.inputs import Inputs, flag_inputs
from seekserve.settings import PathSettings, Settings

FILES = [
    "bundle.json",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
    "weights/config.json",
    "weights/generation_config.json",
    "weights/model-00001-of-00002.safetensors",
    "weights/model-00002-of-00002.safetensors",
    "weights/model.safetensors.index.json",
]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return readable(v3_toy()).write(tmp_path / "toy")


def readable(toy: Toy) -> Toy:
    """With a tokenizer that the backend could read."""
    assert toy.tokenizer is not None
    toy.tokenizer["decoder"] = {"type": "ByteLevel"}
    return toy


def run(checkpoint: Path | str | None, out: Path | None, **more: Any) -> BuildReport:
    settings = more.pop("settings", Settings())
    environ = more.pop("environ", {})
    inputs = more.pop("inputs", Inputs())
    request = BuildRequest(checkpoint=None if checkpoint is None else str(checkpoint), out=out, inputs=inputs, **more)
    return build(request, settings, environ, host_memory_bytes=None)


def flags(**values: object) -> Inputs:
    return flag_inputs(values)


def test_a_bundle_holds_weights_tokenizer_and_its_description(checkpoint: Path, tmp_path: Path) -> None:
    report = run(checkpoint, tmp_path / "out")
    assert report.outcome.status == "built"
    assert files_in(tmp_path / "out") == FILES
    bundle = open_bundle(tmp_path / "out", hashes=True)
    assert sorted(bundle.files) == FILES[1:]
    assert (bundle.name, bundle.family, bundle.engine, bundle.weights_dtype) == (
        "toy",
        "deepseek_v3",
        "reference",
        "fp8_block",
    )
    assert bundle.limits.max_seq_len_tokens == 256
    assert bundle.sources["limits.max_seq_len_tokens"] == "checkpoint max_position_embeddings"


def test_kv_bytes_are_those_of_the_latent_cache(checkpoint: Path, tmp_path: Path) -> None:
    for dtype, lane_bytes in (("fp8_e4m3", 1), ("bf16", 2), ("fp32", 4)):
        report = run(checkpoint, tmp_path / dtype, inputs=flags(kv_dtype=dtype))
        assert report.outcome.bundle.kv.bytes_per_token == 2 * (8 + 4) * lane_bytes


def test_only_known_files_are_taken(checkpoint: Path, tmp_path: Path) -> None:
    for name in ("modeling_deepseek.py", "pytorch_model.bin", "README.md", "other.safetensors.bak"):
        (checkpoint / name).write_text("x", encoding="utf-8")
    run(checkpoint, tmp_path / "out")
    assert files_in(tmp_path / "out") == FILES


def test_a_hub_cache_of_links_becomes_real_files(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "models--acme--Toy-Chat" / "snapshots" / "0a1b2c"
    blobs = snapshot.parent.parent / "blobs"
    blobs.mkdir(parents=True)
    readable(v3_toy()).write(snapshot)
    for path in list(snapshot.iterdir()):
        path.rename(blobs / f"blob-{path.name}")
        path.symlink_to(Path("../../blobs") / f"blob-{path.name}")
    report = run(snapshot, tmp_path / "out")
    assert report.outcome.bundle.name == "Toy-Chat"
    assert files_in(tmp_path / "out") == FILES
    assert not any((tmp_path / "out" / name).is_symlink() for name in FILES)


def test_linked_weights_stay_where_they_are(checkpoint: Path, tmp_path: Path) -> None:
    run(checkpoint, tmp_path / "out", link_weights=True)
    links = [name for name in FILES if (tmp_path / "out" / name).is_symlink()]
    assert links == [name for name in FILES if name.endswith(".safetensors")]
    assert (tmp_path / "out" / links[0]).readlink() == checkpoint / Path(links[0]).name
    open_bundle(tmp_path / "out", hashes=True)


def test_building_again_reuses_what_is_there(checkpoint: Path, tmp_path: Path) -> None:
    run(checkpoint, tmp_path / "out")
    before = (tmp_path / "out" / "bundle.json").stat()
    report = run(checkpoint, tmp_path / "out")
    assert report.outcome.status == "reused"
    assert "already built, reused" in report.text()
    after = (tmp_path / "out" / "bundle.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_value_given_as_its_default_is_the_same_bundle(checkpoint: Path, tmp_path: Path) -> None:
    run(checkpoint, tmp_path / "out")
    assert run(checkpoint, tmp_path / "out", inputs=flags(max_batch_size=16)).outcome.status == "reused"


def test_another_plan_is_refused_with_both_values_unless_forced(checkpoint: Path, tmp_path: Path) -> None:
    run(checkpoint, tmp_path / "out")
    with pytest.raises(TargetExists, match=r"limits\.max_batch_size is 16 there, 4 was asked for"):
        run(checkpoint, tmp_path / "out", inputs=flags(max_batch_size=4))
    assert open_bundle(tmp_path / "out").limits.max_batch_size == 16
    report = run(checkpoint, tmp_path / "out", inputs=flags(max_batch_size=4), force=True)
    assert report.outcome.status == "replaced"
    assert open_bundle(tmp_path / "out", hashes=True).limits.max_batch_size == 4


def test_other_weights_of_the_same_size_are_another_bundle(checkpoint: Path, tmp_path: Path) -> None:
    run(checkpoint, tmp_path / "out")
    shard = checkpoint / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\x01")
    with pytest.raises(TargetExists, match=r"weights/model-00002-of-00002\.safetensors differs"):
        run(checkpoint, tmp_path / "out")


def test_a_damaged_bundle_is_not_reused(checkpoint: Path, tmp_path: Path) -> None:
    run(checkpoint, tmp_path / "out")
    (tmp_path / "out" / "tokenizer" / "tokenizer.json").unlink()
    with pytest.raises(TargetExists, match=r"is damaged: tokenizer/tokenizer\.json is missing"):
        run(checkpoint, tmp_path / "out")
    assert run(checkpoint, tmp_path / "out", force=True).outcome.status == "replaced"


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", ["notes.txt", "bundle.json"])
def test_a_folder_that_is_no_bundle_is_left_alone(checkpoint: Path, tmp_path: Path, name: str, force: bool) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("{}", encoding="utf-8")
    with pytest.raises(TargetExists):
        run(checkpoint, tmp_path / "out", force=force)
    assert files_in(tmp_path / "out") == [name]


def test_a_bundle_with_somebodys_files_in_it_is_not_replaced(checkpoint: Path, tmp_path: Path) -> None:
    run(checkpoint, tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(TargetExists, match=r"notes\.txt"):
        run(checkpoint, tmp_path / "out", force=True)


def test_a_dry_run_says_what_it_would_write_and_writes_nothing(checkpoint: Path, tmp_path: Path) -> None:
    report = run(checkpoint, tmp_path / "out", dry_run=True, link_weights=True)
    assert not (tmp_path / "out").exists()
    text = report.text()
    assert "would build bundle toy" in text
    assert f"link to {checkpoint}/model-00001-of-00002.safetensors" in text
    assert "limits.max_batch_size" in text
    data = json.loads(report.json_text())
    assert data["status"] == "dry-run"
    assert sorted(data["files"]) == FILES[1:]


def test_everything_wrong_with_a_checkpoint_is_one_report_and_nothing_is_written(tmp_path: Path) -> None:
    toy = v3_toy()
    del toy.tensors["model.layers.0.self_attn.o_proj.weight_scale_inv"]
    del toy.tensors["model.norm.weight"]
    toy.tokenizer = None
    folder = toy.write(tmp_path / "toy")
    with pytest.raises(CheckpointError) as caught:
        run(folder, tmp_path / "out")
    for part in ("o_proj.weight", "model.norm.weight", "tokenizer.json"):
        assert part in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


def test_a_broken_tokenizer_and_a_broken_template_are_in_the_same_report(tmp_path: Path) -> None:
    toy = v3_toy()
    toy.tokenizer, toy.tokenizer_config = {}, {"chat_template": "{% for m in messages %}\n{{ m"}
    folder = toy.write(tmp_path / "toy")
    with pytest.raises(CheckpointError, match="2 problems") as caught:
        run(folder, tmp_path / "out")
    assert "tokenizer.json, line 1: has no `model`" in str(caught.value)
    assert "tokenizer_config.json, chat_template, line 2: " in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_truncated_shard_is_found_before_copying(checkpoint: Path, tmp_path: Path) -> None:
    shard = checkpoint / "model-00001-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="model-00001"):
        run(checkpoint, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("toy", [qwen_toy()], ids=["qwen2"])
def test_a_model_that_the_engine_cannot_run_is_refused_by_name(toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="runs the architectures deepseek_v2, deepseek_v3, this checkpoint is Qwen2"):
        run(readable(toy).write(tmp_path / "toy"), tmp_path / "out")


def test_an_engine_without_bundles_is_one_sentence(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"flag --engine: bundles are built for the engines .*, not for synthetic"):
        run(checkpoint, tmp_path / "out", inputs=flags(engine="synthetic"))


@pytest.mark.parametrize("kind", ["trtllm-engine", "trtllm-pytorch"])
def test_an_engine_on_gpus_wants_to_know_which(checkpoint: Path, tmp_path: Path, kind: str) -> None:
    with pytest.raises(InputError, match="which GPU"):
        run(checkpoint, tmp_path / "out", inputs=flags(engine=kind))


def test_a_variant_of_the_reference_bundle_has_its_own_name_and_folder(checkpoint: Path, tmp_path: Path) -> None:
    settings = Settings(checkpoint=str(checkpoint), paths=PathSettings(bundle=tmp_path / "chat"))
    report = run(None, None, settings=settings, variant="bf16", inputs=flags(kv_dtype="bf16"))
    assert (report.target.name, report.outcome.bundle.name) == ("chat-bf16", "toy-bf16")


def test_problems_of_environment_and_flags_come_together(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 problems") as caught:
        run(checkpoint, tmp_path / "out", inputs=flags(max_batch_size=0), environ={"SEEKSERVE_BLOCK_TOKENS": "many"})
    assert "environment SEEKSERVE_BLOCK_TOKENS" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_cache_too_small_for_one_sequence_does_not_fit(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(DoesNotFit, match="one sequence of 256 tokens takes 8 blocks"):
        run(checkpoint, tmp_path / "out", inputs=flags(kv_capacity_tokens=128))


def test_the_file_of_choices_is_enough(checkpoint: Path, tmp_path: Path) -> None:
    settings = Settings(checkpoint=str(checkpoint), paths=PathSettings(bundle=tmp_path / "out"))
    assert run(None, None, settings=settings).target == tmp_path / "out"
    with pytest.raises(InputError, match="which checkpoint"):
        run(None, tmp_path / "out")
    with pytest.raises(InputError, match="where to"):
        run(checkpoint, None)
