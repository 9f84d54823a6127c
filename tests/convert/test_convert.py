"""What a conversion makes of a checkpoint, and what it refuses before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoint.toy import FP8_CONFIG, Tensor, qwen_toy, v3_toy, write_json
from tests.convert.conftest import SHAPES, fill, run, tensor_bytes, toy

torch = pytest.importorskip("torch")

from seekserve.checkpoint import read_checkpoint  # noqa: E402
from seekserve.convert.formula import blocks_in, quantise_exactly  # noqa: E402
from seekserve.convert.journal import JOURNAL_FILE  # noqa: E402
from seekserve.errors import CheckpointError, DoesNotFit  # noqa: E402

pytestmark = pytest.mark.needs_local
Stored = tuple[str, tuple[int, ...], bytes]


def as_tensor(stored: Stored) -> Any:
    kinds = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F8_E4M3": torch.uint8}
    return torch.frombuffer(bytearray(stored[2]), dtype=kinds[stored[0]]).view(stored[1])


def names_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_to_fp8_writes_codes_and_scales_by_the_formula(plain: Path, tmp_path: Path) -> None:
    run(plain, tmp_path / "out", "fp8-block")
    before, after = tensor_bytes(plain), tensor_bytes(tmp_path / "out")
    for name, stored in before.items():
        if f"{name}_scale_inv" not in after:
            assert after[name] == stored
            continue
        codes, scales = quantise_exactly(as_tensor(stored))
        assert after[name] == ("F8_E4M3", stored[1], codes.numpy().tobytes())
        assert after[f"{name}_scale_inv"] == ("F32", tuple(scales.shape), scales.numpy().tobytes())
    assert {name.removesuffix("_scale_inv") for name in after} == set(before)


KEPT_IN_RELEASE = (
    "embed_tokens.weight",
    "lm_head.weight",
    "shared_head.head.weight",
    "eh_proj.weight",
    "norm.weight",
    "mlp.gate.weight",
    "e_score_correction_bias",
)


def test_exactly_the_tensors_of_the_release_are_quantised(plain: Path, tmp_path: Path) -> None:
    run(plain, tmp_path / "out", "fp8-block")
    after = tensor_bytes(tmp_path / "out")
    for name, (dtype, shape, _) in after.items():
        is_kept = name.endswith(KEPT_IN_RELEASE)
        assert (dtype == "F8_E4M3") == (not is_kept and not name.endswith("_scale_inv")), name
        if dtype == "F8_E4M3":
            assert after[f"{name}_scale_inv"][:2] == ("F32", (blocks_in(shape[0]), blocks_in(shape[1])))
    layers = [f"model.layers.{layer}.self_attn.kv_b_proj.weight" for layer in range(3)]
    assert all(after[name][0] == "F8_E4M3" for name in layers)


def test_the_official_layout_comes_out_for_the_official_config(tmp_path: Path) -> None:
    """The names and dtypes that the toy of the release has, MTP layer included."""
    source = fill(toy(fp8=False, mtp_layers=1).write(tmp_path / "plain"))
    run(source, tmp_path / "out", "fp8-block")
    made = {name: stored[:2] for name, stored in tensor_bytes(tmp_path / "out").items()}
    assert made == {name: (t.dtype, t.shape) for name, t in toy(mtp_layers=1).tensors.items()}


def test_config_and_index_are_rewritten_together_and_the_rest_is_copied(plain: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(plain, out, "fp8-block")
    config = json.loads((out / "config.json").read_text())
    assert config == {**json.loads((plain / "config.json").read_text()), "quantization_config": FP8_CONFIG}
    index = json.loads((out / "model.safetensors.index.json").read_text())
    stored = tensor_bytes(out)
    assert index["weight_map"].keys() == stored.keys()
    assert index["metadata"]["total_size"] == sum(len(content) for _, _, content in stored.values())
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (out / name).read_bytes() == (plain / name).read_bytes()
    assert not read_checkpoint(out).errors
    assert not list(tmp_path.glob("*.partial"))


def test_the_safetensors_library_reads_the_output(plain: Path, tmp_path: Path) -> None:
    load_file = pytest.importorskip("safetensors.torch").load_file
    run(plain, tmp_path / "out", "fp8-block")
    for path in (tmp_path / "out").glob("*.safetensors"):
        for name, tensor in load_file(path).items():
            content = tensor_bytes(tmp_path / "out")[name][2]
            assert tensor.contiguous().view(torch.uint8).numpy().tobytes() == content


def test_every_tensor_is_aligned_for_loaders_that_map_the_file(plain: Path, tmp_path: Path) -> None:
    run(plain, tmp_path / "out", "fp8-block")
    widths = {"F32": 4, "BF16": 2, "F8_E4M3": 1}
    for entry in read_checkpoint(tmp_path / "out").tensors.values():
        assert entry.begin_bytes % widths[entry.dtype] == 0


@pytest.mark.parametrize("plain_query", [True, False])
def test_v2_and_v2_lite_are_converted_by_the_same_rule(tmp_path: Path, plain_query: bool) -> None:
    model = toy(
        fp8=False,
        plain_query=plain_query,
        architectures=["DeepseekV2ForCausalLM"],
        model_type="deepseek_v2",
        topk_method="greedy",
    )
    model.tensors = {name: t for name, t in model.tensors.items() if "e_score" not in name}
    report = run(fill(model.write(tmp_path / "v2")), tmp_path / "out", "fp8-block", verify=True)
    assert report.plan.facts.family == ("deepseek_v2_lite" if plain_query else "deepseek_v2")
    assert read_checkpoint(tmp_path / "out").precision == "fp8_block"


@pytest.mark.parametrize("dtype", ["F16", "F32"])
def test_other_plain_dtypes_become_fp8_and_the_rest_bf16_but_for_the_router_bias(tmp_path: Path, dtype: str) -> None:
    model = toy(fp8=False, torch_dtype={"F16": "float16", "F32": "float32"}[dtype])
    for name, tensor in model.tensors.items():
        tensor.dtype = "F32" if name.endswith("e_score_correction_bias") else dtype
    source = fill(model.write(tmp_path / "plain"))
    run(source, tmp_path / "out", "fp8-block", verify=True)
    after = tensor_bytes(tmp_path / "out")
    assert {stored[0] for name, stored in after.items() if name.endswith("norm.weight")} == {"BF16"}
    assert after["model.layers.1.mlp.gate.e_score_correction_bias"][0] == "F32"
    assert json.loads((tmp_path / "out" / "config.json").read_text())["torch_dtype"] == "bfloat16"
    weight = as_tensor(tensor_bytes(source)["model.layers.0.mlp.up_proj.weight"])
    assert after["model.layers.0.mlp.up_proj.weight"][2] == quantise_exactly(weight)[0].numpy().tobytes()


def dequantised(codes: Stored, scales: Stored) -> bytes:
    """Element by element from the meaning of the format."""
    rows, columns = codes[1]
    factors = as_tensor(scales).repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
    wide = as_tensor(codes).view(torch.float8_e4m3fn).float() * factors
    return bytes(wide.to(torch.bfloat16).view(torch.uint8).numpy().tobytes())


def test_to_bf16_finds_scales_in_other_shards(tmp_path: Path) -> None:
    """Every scale in the last shard, every weight before it: pairs never share a file."""
    model = toy()
    scales = {name: t for name, t in model.tensors.items() if name.endswith("_scale_inv")}
    model.tensors = {**{n: t for n, t in model.tensors.items() if n not in scales}, **scales}
    model.shards = 12
    source = fill(model.write(tmp_path / "fp8"))
    run(source, tmp_path / "out", "bf16", verify=True)
    before, after = tensor_bytes(source), tensor_bytes(tmp_path / "out")
    assert len(after) == len(before) - len(scales)
    for name, stored in after.items():
        scale = before.get(f"{name}_scale_inv")
        assert stored[2] == (dequantised(before[name], scale) if scale else before[name][2])
    files = set(json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())["weight_map"].values())
    assert files == {path.name for path in (tmp_path / "out").glob("*.safetensors")}
    assert len(files) < 12  # those that held only scales are gone, and the others are counted anew
    assert all(name.endswith(f"-of-{len(files):05d}.safetensors") for name in files)


def test_to_bf16_removes_every_sign_of_quantisation(fp8: Path, tmp_path: Path) -> None:
    run(fp8, tmp_path / "out", "bf16")
    facts = read_checkpoint(tmp_path / "out")
    assert (facts.precision, facts.precision_declared) == ("bf16", "bf16")
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())
    assert not facts.errors


@pytest.mark.parametrize("kind", ["tensor", "channel"])
def test_scales_per_tensor_and_per_channel_are_recognised_by_their_shape(tmp_path: Path, kind: str) -> None:
    model = toy(fp8=False)
    algorithm = {"tensor": "FP8", "channel": "FP8_PER_CHANNEL_PER_TOKEN"}[kind]
    model.config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": algorithm}
    with_scales: dict[str, Tensor] = {}
    for name, tensor in model.tensors.items():
        is_projection = name.endswith("_proj.weight") or "_proj_with_mqa" in name
        with_scales[name] = Tensor("F8_E4M3", tensor.shape) if is_projection else tensor
        if is_projection:
            with_scales[f"{name}_scale"] = Tensor("F32", () if kind == "tensor" else (tensor.shape[0], 1))
            with_scales[name.replace(".weight", ".input_scale")] = Tensor("F32", ())
    model.tensors = with_scales
    source = fill(model.write(tmp_path / "fp8"))
    run(source, tmp_path / "out", "bf16", verify=True)
    before, after = tensor_bytes(source), tensor_bytes(tmp_path / "out")
    assert not [name for name in after if "scale" in name]
    name = "model.layers.1.mlp.experts.3.up_proj.weight"
    wide = as_tensor(before[name]).view(torch.float8_e4m3fn).float() * as_tensor(before[f"{name}_scale"])
    assert after[name][2] == wide.to(torch.bfloat16).view(torch.uint8).numpy().tobytes()


def test_names_without_the_model_prefix_stay_as_they_are(tmp_path: Path) -> None:
    model = toy(fp8=False)
    source = fill(model.write(tmp_path / "plain", rename=lambda name: name.removeprefix("model.")))
    run(source, tmp_path / "out", "fp8-block")
    assert "layers.0.mlp.up_proj.weight_scale_inv" in tensor_bytes(tmp_path / "out")
    assert not [name for name in tensor_bytes(tmp_path / "out") if name.startswith("model.")]


def test_a_single_file_stays_a_single_file(tmp_path: Path) -> None:
    model = toy(fp8=False)
    model.shards = 1
    source = model.write(tmp_path / "plain")
    (source / "model-00001-of-00001.safetensors").rename(source / "model.safetensors")
    (source / "model.safetensors.index.json").unlink()
    fill(source)
    run(source, tmp_path / "out", "fp8-block", verify=True)
    assert [p.name for p in (tmp_path / "out").glob("model*")] == ["model.safetensors"]


def test_missing_scales_are_all_named_and_nothing_is_written(tmp_path: Path) -> None:
    model = toy()
    gone = [f"model.layers.1.mlp.experts.{expert}.up_proj.weight" for expert in range(4)]
    for name in gone:
        del model.tensors[f"{name}_scale_inv"]
    source = fill(model.write(tmp_path / "fp8"))
    with pytest.raises(CheckpointError) as caught:
        run(source, tmp_path / "out", "bf16")
    assert "4 FP8 weights have no scale" in str(caught.value)
    assert all(name in str(caught.value) for name in gone)
    assert names_below(tmp_path) == ["fp8"]


def test_plain_weights_under_a_config_that_declares_fp8_are_refused(plain: Path, tmp_path: Path) -> None:
    config = json.loads((plain / "config.json").read_text())
    write_json(plain / "config.json", {**config, "quantization_config": FP8_CONFIG})
    with pytest.raises(CheckpointError, match="fp8_block"):
        run(plain, tmp_path / "out", "fp8-block")
    assert names_below(tmp_path) == ["plain"]


@pytest.mark.parametrize(("target", "hint"), [("fp8-block", "nothing to do"), ("bf16", "there is nothing to dequ")])
def test_what_is_already_so_is_refused(fp8: Path, plain: Path, tmp_path: Path, target: str, hint: str) -> None:
    with pytest.raises(CheckpointError, match=hint):
        run(fp8 if target == "fp8-block" else plain, tmp_path / "out", target)


def test_a_family_without_an_fp8_layout_is_refused_with_those_that_have_one(tmp_path: Path) -> None:
    source = fill(qwen_toy().write(tmp_path / "qwen"))
    with pytest.raises(CheckpointError, match="deepseek_v2, deepseek_v3"):
        run(source, tmp_path / "out", "fp8-block")


BAD = {"nan": b"\xc0\x7f", "inf": b"\x80\x7f", "-inf": b"\x80\xff"}


@pytest.mark.parametrize("bad", BAD)
def test_bad_values_are_named_tensor_by_tensor_and_nothing_is_left(
    make_plain: Callable[..., Path], tmp_path: Path, bad: str
) -> None:
    """One in the first shard and one in the last, one quantised and one copied: the report has them all."""
    named = ["model.layers.0.self_attn.q_a_proj.weight", "lm_head.weight"]
    source = make_plain(dict.fromkeys(named, BAD[bad]))
    with pytest.raises(CheckpointError, match="not finite") as caught:
        run(source, tmp_path / "out", "fp8-block")
    assert all(name in str(caught.value) for name in named)
    assert "the first at row 0, column 0" in str(caught.value)
    assert names_below(tmp_path) == ["plain"]


def test_nan_codes_and_bad_scales_are_named_when_dequantising(tmp_path: Path) -> None:
    source = toy().write(tmp_path / "fp8")
    codes, scale = "model.layers.0.mlp.up_proj.weight", "model.layers.1.self_attn.o_proj.weight_scale_inv"
    fill(source, {codes: b"\x7f", scale: b"\x00\x00\xc0\x7f"})
    with pytest.raises(CheckpointError) as caught:
        run(source, tmp_path / "out", "bf16")
    assert codes in str(caught.value)
    assert scale.removesuffix("_scale_inv") in str(caught.value)
    assert names_below(tmp_path) == ["fp8"]


def test_too_little_disk_or_memory_is_said_with_both_numbers(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(DoesNotFit, match=r"needs 5\d\d.* of memory, 1.0 MiB are available"):
        run(plain, tmp_path / "out", "fp8-block", memory_free_bytes=2**20)
    assert names_below(tmp_path) == ["plain"]


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(plain: Path, tmp_path: Path) -> None:
    report = run(plain, tmp_path / "out", "fp8-block", dry_run=True)
    told = json.loads(report.json_text())
    assert told["is_written"] is False
    assert told["output_bytes"] < told["source_bytes"]
    assert names_below(tmp_path) == ["plain"]
    run(plain, tmp_path / "out", "fp8-block")
    made = sum(path.stat().st_size for path in (tmp_path / "out").glob("*.safetensors"))
    assert told["output_bytes"] == made


def test_a_checkpoint_of_links_as_in_the_hub_cache_is_read(plain: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    for path in plain.iterdir():
        (linked / path.name).symlink_to(path)
    run(linked, tmp_path / "a", "fp8-block")
    run(plain, tmp_path / "b", "fp8-block")
    assert tensor_bytes(tmp_path / "a") == tensor_bytes(tmp_path / "b")
    assert not [path for path in (tmp_path / "a").iterdir() if path.is_symlink()]


def test_the_output_does_not_depend_on_the_number_of_workers(plain: Path, tmp_path: Path) -> None:
    run(plain, tmp_path / "a", "fp8-block")
    from seekserve.convert import ConvertRequest, convert

    request = ConvertRequest(checkpoint=str(plain), out=tmp_path / "b", target="fp8-block", workers=1)
    convert(request, memory_free_bytes=2**40)
    for path in (tmp_path / "a").iterdir():
        lines = [sorted(p.read_bytes().splitlines()) for p in (path, tmp_path / "b" / path.name)]
        assert lines[0] == lines[1]
    assert (tmp_path / "a" / JOURNAL_FILE).is_file()


def test_shapes_of_the_toys_have_edge_blocks() -> None:
    model = v3_toy(**SHAPES)
    assert any(rows % 128 and rows > 128 for rows, *_ in (t.shape for t in model.tensors.values()))
