"""Faults that people met in the field: each is made on a toy checkpoint, the right behaviour is the assertion."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.checkpoint.toy import FP8_CONFIG, Tensor, Toy, qwen_toy, v3_toy, write_index, write_json, write_safetensors

from seekserve.checkpoint import Finding, ModelFacts, Severity, read_checkpoint, tensor_locations, verify
from seekserve.errors import CheckpointError

Inspect = Callable[..., ModelFacts]
INDEX = "model.safetensors.index.json"
GATE = "model.layers.1.mlp.experts.2.gate_proj.weight"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def only(facts: ModelFacts, code: str) -> Finding:
    [finding] = [finding for finding in facts.findings if finding.code == code]
    return finding


def error_codes(facts: ModelFacts) -> set[str]:
    return {finding.code for finding in facts.errors}


def refused(facts: ModelFacts) -> str:
    with pytest.raises(CheckpointError) as caught:
        verify(facts)
    return str(caught.value)


@pytest.mark.parametrize(
    "toy",
    [
        v3_toy(),
        v3_toy(fp8=False),
        v3_toy(plain_query=True),
        v3_toy(mtp_layers=1),
        v3_toy(mtp_layers=2),
        v3_toy(hidden_size=272, kv_lora_rank=140),
        qwen_toy(),
    ],
    ids=["fp8", "bf16", "plain-query", "mtp-1", "mtp-2", "edge-blocks", "qwen"],
)
def test_a_whole_checkpoint_is_clean(inspect_toy: Inspect, toy: Toy) -> None:
    facts = inspect_toy(toy)
    assert [str(f) for f in facts.findings if f.severity is not Severity.NOTE] == []
    verify(facts)
    assert facts.tensors.keys() == toy.tensors.keys()


# Index and shards


def test_a_weight_and_its_scale_may_live_in_different_shards(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    scale = f"{GATE}_scale_inv"
    toy.tensors = {scale: toy.tensors.pop(scale), **toy.tensors}
    facts = inspect_toy(toy)
    assert (facts.tensors[scale].file, facts.tensors[GATE].file) == (FIRST, SECOND)
    assert facts.errors == ()


def test_a_tensor_that_the_index_lacks_is_an_error_with_a_hint(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    index = toy.weight_map()
    del index["model.layers.1.mlp.gate.weight"]
    facts = inspect_toy(toy, index=index)
    finding = only(facts, "index-incomplete")
    assert (finding.count, finding.examples) == (1, ("model.layers.1.mlp.gate.weight",))
    assert "rebuild the index" in finding.message
    assert error_codes(facts) == {"index-incomplete"}


def test_a_tensor_that_only_the_index_knows_is_an_error(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    facts = inspect_toy(toy, index={**toy.weight_map(), "model.layers.9.ghost.weight": SECOND})
    assert only(facts, "index-extra").file == SECOND


def test_a_tensor_in_another_shard_than_the_index_says_is_an_error(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    facts = inspect_toy(toy, index={**toy.weight_map(), "lm_head.weight": FIRST})
    assert f"lm_head.weight (index: {FIRST})" in only(facts, "index-wrong-file").message


def test_an_index_of_thirty_shards_over_two_files_is_stale(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    index = {name: f"model-{i % 30 + 1:05d}-of-00030.safetensors" for i, name in enumerate(toy.tensors)}
    facts = inspect_toy(toy, index=index)
    message = only(facts, "index-stale").message
    assert "30 shards" in message
    assert "holds 2" in message
    assert only(facts, "shard-missing").count == 30
    assert only(facts, "shard-unlisted").count == 2


def test_a_missing_shard_is_reported_with_its_tensor_count(tmp_path: Path) -> None:
    toy = v3_toy()
    folder = toy.write(tmp_path)
    (folder / SECOND).unlink()
    facts = read_checkpoint(folder)
    lost = sum(file == SECOND for file in toy.weight_map().values())
    assert f"{SECOND} ({lost} tensors)" in only(facts, "shard-missing").message
    assert only(facts, "tensor-missing").count > 0


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "shard-empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n", "shard-pointer"),
    ],
)
def test_an_empty_or_pointer_shard_is_named(tmp_path: Path, content: bytes, code: str) -> None:
    folder = v3_toy().write(tmp_path)
    (folder / FIRST).write_bytes(content)
    facts = read_checkpoint(folder)
    assert only(facts, code).file == FIRST
    assert "index-extra" not in error_codes(facts)


def test_a_shard_cut_off_by_one_byte_is_named(tmp_path: Path) -> None:
    folder = v3_toy().write(tmp_path)
    whole = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(whole[:-1])
    assert only(read_checkpoint(folder), "shard-short").file == SECOND


def test_a_tensor_in_two_shards_is_an_error(tmp_path: Path) -> None:
    toy = v3_toy()
    folder = toy.write(tmp_path)
    held = {name: t for name, t in toy.tensors.items() if toy.weight_map()[name] == SECOND}
    write_safetensors(folder / SECOND, {**held, "model.embed_tokens.weight": Tensor("BF16", (32, 16))})
    assert f"model.embed_tokens.weight (also in {FIRST})" in only(read_checkpoint(folder), "tensor-twice").message


@pytest.mark.parametrize(
    "name", ["../evil.safetensors", "/etc/evil.safetensors", "a/b.safetensors", "evil.bin", "..", ""]
)
def test_a_file_name_that_leaves_the_folder_is_refused(inspect_toy: Inspect, name: str) -> None:
    toy = v3_toy()
    facts = inspect_toy(toy, index={**toy.weight_map(), "lm_head.weight": name})
    assert only(facts, "index-name").count == 1
    assert "index-name" in refused(facts)


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', '{"weight_map":{"a":"b","a":"c"}}']
)
def test_an_unusable_index_is_an_error_and_the_shards_are_still_read(tmp_path: Path, content: str) -> None:
    toy = v3_toy()
    folder = toy.write(tmp_path)
    (folder / INDEX).write_text(content)
    facts = read_checkpoint(folder)
    assert "rebuild" in only(facts, "index-unreadable").message
    assert len(facts.tensors) == len(toy.tensors)


def test_several_shards_without_an_index_are_an_error(tmp_path: Path) -> None:
    folder = v3_toy().write(tmp_path)
    (folder / INDEX).unlink()
    assert error_codes(read_checkpoint(folder)) == {"index-missing"}


def test_a_single_file_needs_no_index(tmp_path: Path) -> None:
    toy = v3_toy()
    toy.shards = 1
    folder = toy.write(tmp_path)
    (folder / INDEX).unlink()
    (folder / "model-00001-of-00001.safetensors").rename(folder / "model.safetensors")
    facts = read_checkpoint(folder)
    assert facts.errors == ()
    assert facts.files == ("model.safetensors",)


def test_files_of_other_kinds_are_never_read(tmp_path: Path) -> None:
    folder = v3_toy().write(tmp_path)
    for shard in folder.glob("*.safetensors*"):
        shard.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    assert "pytorch_model.bin" in only(read_checkpoint(folder), "weights-missing").message


def test_a_wrong_total_size_is_only_a_note(tmp_path: Path) -> None:
    toy = v3_toy()
    folder = toy.write(tmp_path)
    write_index(folder, toy.weight_map(), 5)
    assert only(read_checkpoint(folder), "index-total").severity is Severity.NOTE


# Names and shapes


def test_names_without_the_prefix_are_read_as_if_they_had_it(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    facts = inspect_toy(toy, rename=lambda name: name.removeprefix("model."))
    assert facts.tensors.keys() == toy.tensors.keys()
    assert only(facts, "tensor-prefix").severity is Severity.NOTE
    assert facts.errors == ()


def test_a_mixture_of_prefixes_is_a_warning(inspect_toy: Inspect) -> None:
    facts = inspect_toy(v3_toy(), rename=lambda n: n.removeprefix("model.") if "layers.1." in n else n)
    assert only(facts, "tensor-prefix").severity is Severity.WARNING


def test_the_same_tensor_under_both_spellings_is_an_error(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    toy.tensors["norm.weight"] = Tensor("BF16", (16,))
    assert only(inspect_toy(toy), "tensor-twice").examples == ("norm.weight",)


def test_missing_tensors_are_counted_and_the_first_are_named(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    for name in [n for n in toy.tensors if ".experts.3." in n]:
        del toy.tensors[name]
    finding = only(inspect_toy(toy), "tensor-missing")
    assert finding.count == 3
    assert finding.examples[0] == "model.layers.1.mlp.experts.3.gate_proj.weight"


def test_an_unknown_name_is_a_warning(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    toy.tensors["model.layers.0.surprise.weight"] = Tensor("BF16", (4,))
    facts = inspect_toy(toy)
    assert only(facts, "tensor-unexpected").examples == ("model.layers.0.surprise.weight",)
    assert facts.errors == ()


def test_a_shape_that_the_config_does_not_give_is_an_error(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    toy.tensors["model.embed_tokens.weight"] = Tensor("BF16", (33, 16))
    assert "[33, 16] instead of [32, 16]" in only(inspect_toy(toy), "tensor-shape").message


@pytest.mark.parametrize(("in_config", "says"), [(None, "write its rank"), (8, "set q_lora_rank to null")])
def test_the_wrong_query_variant_is_explained(inspect_toy: Inspect, in_config: int | None, says: str) -> None:
    toy = v3_toy(plain_query=in_config is not None)
    toy.config["q_lora_rank"] = in_config
    assert says in only(inspect_toy(toy), "attention-query").message


@pytest.mark.parametrize(("plain", "says"), [(True, "plain (q_lora_rank null)"), (False, "low-rank (8)")])
def test_the_query_variant_that_was_chosen_is_said(inspect_toy: Inspect, plain: bool, says: str) -> None:
    assert says in only(inspect_toy(v3_toy(plain_query=plain)), "attention-variant").message


def test_tied_heads_need_no_head_and_tolerate_one(inspect_toy: Inspect) -> None:
    toy = qwen_toy()
    toy.config["tie_word_embeddings"] = True
    assert inspect_toy(toy).findings == ()
    del toy.tensors["lm_head.weight"]
    assert inspect_toy(toy).findings == ()


# MTP layers


def test_announced_mtp_layers_that_are_not_there_are_one_warning(inspect_toy: Inspect) -> None:
    toy = v3_toy(num_nextn_predict_layers=0)
    toy.config["num_nextn_predict_layers"] = 1
    facts = inspect_toy(toy)
    assert only(facts, "mtp-absent").severity is Severity.WARNING
    assert facts.errors == ()
    assert (facts.mtp_layers, facts.parameters.mtp) == (0, 0)


def test_fewer_mtp_layers_than_announced_are_an_error(inspect_toy: Inspect) -> None:
    toy = v3_toy(mtp_layers=1)
    toy.config["num_nextn_predict_layers"] = 2
    facts = inspect_toy(toy)
    assert "is 2, the shards hold 1" in only(facts, "mtp-absent").message
    assert facts.mtp_layers == 1


def test_mtp_layers_that_are_not_announced_are_a_warning(inspect_toy: Inspect) -> None:
    toy = v3_toy(mtp_layers=1)
    toy.config["num_nextn_predict_layers"] = 0
    facts = inspect_toy(toy)
    assert only(facts, "mtp-unannounced").severity is Severity.WARNING
    assert facts.errors == ()


def test_an_mtp_layer_may_share_embedding_and_head(inspect_toy: Inspect) -> None:
    toy = v3_toy(mtp_layers=1)
    del toy.tensors["model.layers.2.embed_tokens.weight"], toy.tensors["model.layers.2.shared_head.head.weight"]
    assert inspect_toy(toy).errors == ()


# Scales and precision


def test_a_missing_scale_is_refused_with_count_and_names(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    del toy.tensors[f"{GATE}_scale_inv"]
    facts = inspect_toy(toy)
    finding = only(facts, "scale-missing")
    assert (finding.count, finding.examples, finding.file) == (1, (GATE,), SECOND)
    assert GATE in refused(facts)


def test_a_scale_without_its_weight_is_an_error(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    del toy.tensors[GATE]
    facts = inspect_toy(toy)
    assert only(facts, "scale-orphan").examples == (f"{GATE}_scale_inv",)
    assert only(facts, "tensor-missing").examples == (GATE,)


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (8, 16), (1,) * 3])
def test_a_scale_of_the_wrong_shape_is_an_error(inspect_toy: Inspect, shape: tuple[int, ...]) -> None:
    toy = v3_toy()
    toy.tensors[f"{GATE}_scale_inv"] = Tensor("F32", shape)
    assert only(inspect_toy(toy), "scale-shape").examples[0].startswith(f"{GATE}_scale_inv [")


def test_edge_blocks_count_as_whole_ones(inspect_toy: Inspect) -> None:
    """576 = 4.5 blocks and 7168 = 56 in the release: [5, 56]; here 144 and 272."""
    toy = v3_toy(hidden_size=272, kv_lora_rank=140)
    name = "model.layers.0.self_attn.kv_a_proj_with_mqa.weight"
    assert toy.tensors[f"{name}_scale_inv"].shape == (2, 3)
    toy.tensors[f"{name}_scale_inv"] = Tensor("F32", (1, 2))
    assert only(inspect_toy(toy), "scale-shape").count == 1


def test_a_scale_of_an_integer_dtype_is_an_error(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    toy.tensors[f"{GATE}_scale_inv"] = Tensor("I32", (1, 1))
    assert "(I32)" in only(inspect_toy(toy), "scale-dtype").message


def test_two_kinds_of_scale_on_one_weight_are_refused(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    toy.tensors[GATE.replace("weight", "weight_scale")] = Tensor("F32", ())
    assert only(inspect_toy(toy), "scale-mixed").examples == (GATE,)


def test_experts_of_one_layer_in_two_precisions_are_refused(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    toy.tensors[GATE] = Tensor("BF16", toy.tensors[GATE].shape)
    del toy.tensors[f"{GATE}_scale_inv"]
    finding = only(inspect_toy(toy), "precision-mixed")
    assert f"{GATE} (bf16)" in finding.message
    assert "1 projections" in finding.message


def test_gate_and_up_in_two_precisions_are_refused(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    for layer in ("0.mlp",):
        name = f"model.layers.{layer}.gate_proj.weight"
        toy.tensors[name] = Tensor("BF16", toy.tensors[name].shape)
        del toy.tensors[f"{name}_scale_inv"]
    assert only(inspect_toy(toy), "precision-mixed").count == 2


def test_a_plain_mtp_projection_beside_fp8_is_how_the_release_is(inspect_toy: Inspect) -> None:
    facts = inspect_toy(v3_toy(mtp_layers=1))
    assert facts.tensors["model.layers.2.eh_proj.weight"].dtype == "BF16"
    assert (facts.precision, facts.errors) == ("fp8_block", ())


def test_a_scale_beside_a_plain_weight_is_an_error(inspect_toy: Inspect) -> None:
    toy = v3_toy(fp8=False)
    toy.tensors[f"{GATE}_scale_inv"] = Tensor("F32", (1, 1))
    assert only(inspect_toy(toy), "scale-on-plain").examples == (f"{GATE}_scale_inv",)


def test_bf16_weights_under_an_fp8_config_are_one_sentence(inspect_toy: Inspect) -> None:
    toy = v3_toy(fp8=False)
    toy.config["quantization_config"] = dict(FP8_CONFIG)
    facts = inspect_toy(toy)
    message = only(facts, "precision-not-found").message
    assert "fp8_block" in message
    assert "bf16" in message
    assert "remove quantization_config" in message
    assert error_codes(facts) == {"precision-not-found"}


def test_fp8_weights_without_the_config_block_are_one_sentence(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    del toy.config["quantization_config"]
    facts = inspect_toy(toy)
    assert "no quantization_config" in only(facts, "precision-undeclared").message
    assert (facts.precision, facts.precision_declared) == ("fp8_block", "bf16")


def test_block_scales_under_a_config_without_block_size_are_named(inspect_toy: Inspect) -> None:
    toy = v3_toy(hidden_size=272)
    del toy.config["quantization_config"]["weight_block_size"]
    assert "weight_block_size" in only(inspect_toy(toy), "precision-differs").message


def per_tensor(toy: Toy) -> Toy:
    """modelopt's FP8: one value per weight, another name."""
    out = {}
    for name, tensor in toy.tensors.items():
        if name.endswith("_scale_inv"):
            out[name.replace("weight_scale_inv", "weight_scale")] = Tensor("F32", ())
            out[name.replace("weight_scale_inv", "input_scale")] = Tensor("F32", ())
        else:
            out[name] = tensor
    toy.tensors = out
    return toy


def test_per_tensor_scales_are_recognised_by_shape(inspect_toy: Inspect) -> None:
    toy = per_tensor(v3_toy())
    toy.config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "static"}
    facts = inspect_toy(toy)
    assert (facts.precision, facts.precision_declared, facts.errors) == ("fp8_tensor", "fp8_tensor", ())


def test_per_tensor_scales_under_a_block_config_are_an_error(inspect_toy: Inspect) -> None:
    assert "fp8_tensor" in only(inspect_toy(per_tensor(v3_toy())), "precision-differs").message


def test_hf_quant_config_is_what_nvidia_exports_declare(tmp_path: Path) -> None:
    toy = per_tensor(v3_toy())
    del toy.config["quantization_config"]
    folder = toy.write(tmp_path)
    write_json(folder / "hf_quant_config.json", {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}})
    facts = read_checkpoint(folder)
    assert (facts.precision_declared, facts.errors) == ("fp8_tensor", ())


def test_nvfp4_is_recognised_and_named(tmp_path: Path) -> None:
    toy = v3_toy(fp8=False)
    for name in [n for n in toy.tensors if ".experts." in n]:
        rows, columns = toy.tensors[name].shape
        toy.tensors[name] = Tensor("U8", (rows, columns // 2))
        toy.tensors[f"{name}_scale"] = Tensor("F8_E4M3", (rows, -(-columns // 16)))
        toy.tensors[f"{name}_scale_2"] = Tensor("F32", ())
    folder = toy.write(tmp_path)
    write_json(folder / "hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4"}})
    facts = read_checkpoint(folder)
    assert (facts.precision, facts.precision_declared, facts.errors) == ("nvfp4", "nvfp4", ())


def test_a_quantisation_that_is_not_known_is_a_warning(inspect_toy: Inspect) -> None:
    toy = v3_toy(fp8=False)
    toy.config["quantization_config"] = {"quant_method": "awq", "bits": 4}
    assert only(inspect_toy(toy), "precision-unchecked").severity is Severity.WARNING


# RoPE, tokenizer


def test_a_long_context_without_rope_scaling_is_a_warning(inspect_toy: Inspect) -> None:
    assert "163,840" in only(inspect_toy(v3_toy(max_position_embeddings=163840)), "rope-missing").message


@pytest.mark.parametrize(("kind", "codes"), [("yarn", {"rope-reach"}), ("llama3", set())])
def test_a_limit_beyond_what_the_scaling_reaches_is_a_warning_where_the_factor_says_it(
    inspect_toy: Inspect, kind: str, codes: set[str]
) -> None:
    """Meta's own Llama 3.1: factor 8 of 8,192 tokens, and a limit of 131,072."""
    block = {"rope_type": kind, "factor": 8.0, "original_max_position_embeddings": 8192}
    toy = qwen_toy()
    toy.config |= {"max_position_embeddings": 131072, "rope_scaling": block}
    assert {finding.code for finding in inspect_toy(toy).findings if finding.code.startswith("rope")} == codes


def test_end_ids_from_all_places_are_kept_and_compared(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    toy.generation = {"eos_token_id": [1, 5]}
    facts = inspect_toy(toy)
    assert facts.tokenizer.eos_ids == (1, 5)
    assert "[1, 5]" in only(facts, "eos-differs").message
    assert facts.tokenizer.eos_by_file["tokenizer_config.json"] == (1,)


def test_an_end_id_beyond_the_vocabulary_is_an_error(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    toy.generation = {"eos_token_id": 32}
    assert "[32] where the vocabulary has 32" in only(inspect_toy(toy), "eos-range").message


def test_a_missing_tokenizer_is_a_warning(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    toy.tokenizer = None
    assert only(inspect_toy(toy), "tokenizer-missing").severity is Severity.WARNING


# All together


def test_all_faults_are_in_one_report(tmp_path: Path) -> None:
    toy = v3_toy(mtp_layers=1)
    toy.config.update(num_nextn_predict_layers=2, eos_token_id=99)
    del toy.tensors[f"{GATE}_scale_inv"]
    toy.tensors["lm_head.weight"] = Tensor("BF16", (31, 16))
    folder = toy.write(tmp_path, index={**toy.weight_map(), "ghost": SECOND})
    message = refused(read_checkpoint(folder))
    for code in ("mtp-absent", "eos-range", "scale-missing", "tensor-shape", "index-extra"):
        assert f"[{code}]" in message


def test_tensor_locations_refuse_a_broken_checkpoint_and_find_every_tensor_of_a_whole_one(tmp_path: Path) -> None:
    toy = v3_toy()
    folder = toy.write(tmp_path / "good")
    locations = tensor_locations(folder)
    entry = locations["model.norm.weight"]
    assert entry.end_bytes - entry.begin_bytes == 32
    assert (folder / entry.file).stat().st_size >= entry.end_bytes
    (folder / FIRST).unlink()
    with pytest.raises(CheckpointError, match="shard-missing"):
        tensor_locations(folder)


def test_errors_come_first_in_the_report(inspect_toy: Inspect) -> None:
    toy = v3_toy(max_position_embeddings=163840)
    del toy.tensors[f"{GATE}_scale_inv"]
    order = [finding.severity for finding in inspect_toy(toy).findings]
    assert order == sorted(order, key=list(Severity).index)


def test_the_reader_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    folder = v3_toy().write(tmp_path)
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.iterdir()}
    read_checkpoint(folder)
    assert {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.iterdir()} == before


def test_python_files_of_a_checkpoint_are_never_run(tmp_path: Path) -> None:
    folder = v3_toy(auto_map={"AutoConfig": "evil.Evil"}).write(tmp_path)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    read_checkpoint(folder)
    assert not (tmp_path / "ran").exists()


def test_findings_are_plain_data_for_json(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    del toy.tensors[GATE]
    for finding in inspect_toy(toy).findings:
        assert json.loads(json.dumps(finding.to_json())) == finding.to_json()


# Other quantisations, and configs that ask for too much


def test_8_bit_integers_are_recognised_as_such(inspect_toy: Inspect) -> None:
    toy = v3_toy(fp8=False)
    for name in [n for n in toy.tensors if "_proj.weight" in n and "layers" in n]:
        toy.tensors[name] = Tensor("I8", toy.tensors[name].shape)
        toy.tensors[f"{name}_scale"] = Tensor("F32", (toy.tensors[name].shape[0], 1))
    for name in [n for n in toy.tensors if n.endswith("kv_a_proj_with_mqa.weight")]:
        toy.tensors[name] = Tensor("I8", toy.tensors[name].shape)
        toy.tensors[f"{name}_scale"] = Tensor("F32", (toy.tensors[name].shape[0], 1))
    toy.config["quantization_config"] = {"quant_method": "compressed-tensors"}
    facts = inspect_toy(toy)
    assert (facts.precision, error_codes(facts)) == ("int8", set())


def test_4_bit_weights_with_plain_scales_are_w4afp8(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    for name in [n for n in toy.tensors if ".experts." in n and n.endswith(".weight")]:
        rows, columns = toy.tensors[name].shape
        toy.tensors[name] = Tensor("I8", (rows, columns // 2))
        toy.tensors[f"{name}_scale_inv"] = Tensor("BF16", (rows, 1))
    facts = inspect_toy(toy)
    assert facts.precision == "fp8_block+w4afp8"
    assert "w4afp8" in only(facts, "precision-differs").message


@pytest.mark.parametrize(("algorithm", "word"), [("W4A8_AWQ", "w4a8_awq"), ("W4A16_AWQ", "w4a16_awq")])
def test_awq_of_modelopt_is_recognised_by_its_paired_rows(tmp_path: Path, algorithm: str, word: str) -> None:
    toy = qwen_toy()
    for name in [n for n in toy.tensors if n.endswith("_proj.weight")]:
        rows, columns = toy.tensors[name].shape
        stem = name.removesuffix("weight")
        toy.tensors[name] = Tensor("U8", (rows // 2, columns))
        toy.tensors[f"{name}_scale"] = Tensor("F32", (rows, 1))
        if algorithm == "W4A8_AWQ":
            toy.tensors[f"{stem}input_scale"] = Tensor("F32", ())
        toy.tensors[f"{stem}pre_quant_scale"] = Tensor("BF16", (columns,))
    folder = toy.write(tmp_path)
    write_json(folder / "hf_quant_config.json", {"quantization": {"quant_algo": algorithm}})
    facts = read_checkpoint(folder)
    assert (facts.precision, facts.precision_declared, facts.errors) == (word, word, ())


def test_packed_weights_of_awq_are_one_sentence(inspect_toy: Inspect) -> None:
    toy = qwen_toy()
    for name in [n for n in toy.tensors if "_proj.weight" in n]:
        rows, columns = toy.tensors.pop(name).shape
        stem = name.removesuffix("weight")
        toy.tensors[f"{stem}qweight"] = Tensor("I32", (columns, rows // 8))
        toy.tensors[f"{stem}scales"] = Tensor("F16", (1, rows))
    toy.config["quantization_config"] = {"quant_method": "awq", "bits": 4}
    facts = inspect_toy(toy)
    assert only(facts, "weights-packed").count == 14
    assert error_codes(facts) == {"weights-packed"}


def test_a_parameter_called_scale_needs_no_weight(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    toy.tensors["vision.layer.scale"] = Tensor("F32", (4,))
    assert error_codes(inspect_toy(toy)) == set()


def test_an_unknown_family_still_has_its_precision_checked(inspect_toy: Inspect) -> None:
    toy = qwen_toy()
    toy.config.update(model_type="mystery", architectures=["Mystery"], quantization_config=dict(FP8_CONFIG))
    facts = inspect_toy(toy)
    assert (facts.precision, error_codes(facts)) == ("bf16", {"precision-not-found"})


def test_a_config_that_asks_for_millions_of_tensors_is_not_believed(inspect_toy: Inspect) -> None:
    toy = v3_toy()
    toy.config.update(num_hidden_layers=2000, n_routed_experts=8192)
    assert "tensors where at most" in only(inspect_toy(toy), "config-size").message


def test_an_optional_number_of_another_type_is_not_taken_for_its_default(inspect_toy: Inspect) -> None:
    facts = inspect_toy(v3_toy(first_k_dense_replace=1))
    assert facts.errors == ()
    toy = v3_toy()
    toy.config["first_k_dense_replace"] = "1"
    assert "first_k_dense_replace is '1'" in only(inspect_toy(toy), "config-field").message


def test_shards_without_a_config_are_still_examined(tmp_path: Path) -> None:
    folder = v3_toy().write(tmp_path)
    (folder / "config.json").unlink()
    facts = read_checkpoint(folder)
    assert error_codes(facts) == {"file-missing"}
    assert (facts.family, facts.precision) == ("unknown", "fp8_block")


def test_a_config_without_shards_says_that_the_weights_are_missing(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", v3_toy().config)
    facts = read_checkpoint(tmp_path)
    assert error_codes(facts) == {"weights-missing"}
    assert facts.parameters.main > 0
