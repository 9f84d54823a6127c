"""The shipped tiny checkpoint keeps the layout of an official DeepSeek-V3 release, and answers."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from math import ceil, prod
from pathlib import Path
from typing import Any

import pytest

from seekserve.data import TASK_SKILLS, task_file, tiny_checkpoint_folder

FOLDER = tiny_checkpoint_folder()
BYTES_PER_ELEMENT = {"F8_E4M3": 1, "BF16": 2, "F32": 4}
BLOCK = 128
BOS = "<\uff5cbegin\u2581of\u2581sentence\uff5c>"
EOS = "<\uff5cend\u2581of\u2581sentence\uff5c>"
PAD = "<\uff5c\u2581pad\u2581\uff5c>"
USER, ASSISTANT = "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"


def read_json(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def shard_header(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        (header_bytes,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(header_bytes))
    del header["__metadata__"]
    return header


@pytest.fixture(scope="module")
def config() -> Any:
    return read_json("config.json")


@pytest.fixture(scope="module")
def weight_map() -> Any:
    return read_json("model.safetensors.index.json")["weight_map"]


@pytest.fixture(scope="module")
def tensors() -> dict[str, Any]:
    """Name -> header entry, with the shard it was found in."""
    found: dict[str, Any] = {}
    for path in sorted(FOLDER.glob("*.safetensors")):
        for name, entry in shard_header(path).items():
            assert name not in found, f"{name} is in {found[name]['shard']} and in {path.name}"
            found[name] = {**entry, "shard": path.name}
    return found


def expected_shapes(config: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every 2-D projection of the architecture by its release name, from the config alone."""
    hidden, heads, rope = config["hidden_size"], config["num_attention_heads"], config["qk_rope_head_dim"]
    nope, value = config["qk_nope_head_dim"], config["v_head_dim"]
    q_rank, kv_rank = config["q_lora_rank"], config["kv_lora_rank"]
    for layer in range(config["num_hidden_layers"]):
        attention = f"model.layers.{layer}.self_attn"
        yield f"{attention}.q_a_proj.weight", (q_rank, hidden)
        yield f"{attention}.q_b_proj.weight", (heads * (nope + rope), q_rank)
        yield f"{attention}.kv_a_proj_with_mqa.weight", (kv_rank + rope, hidden)
        yield f"{attention}.kv_b_proj.weight", (heads * (nope + value), kv_rank)
        yield f"{attention}.o_proj.weight", (hidden, heads * value)
        mlp = f"model.layers.{layer}.mlp"
        blocks = {mlp: config["intermediate_size"]}
        if layer >= config["first_k_dense_replace"]:
            names = [f"{mlp}.experts.{expert}" for expert in range(config["n_routed_experts"])]
            blocks = dict.fromkeys([*names, f"{mlp}.shared_experts"], config["moe_intermediate_size"])
        for name, inner in blocks.items():
            yield f"{name}.gate_proj.weight", (inner, hidden)
            yield f"{name}.up_proj.weight", (inner, hidden)
            yield f"{name}.down_proj.weight", (hidden, inner)


def test_config_says_deepseek_v3_in_fp8_blocks(config: Any) -> None:
    assert config["architectures"] == ["DeepseekV3ForCausalLM"]
    assert (config["model_type"], config["torch_dtype"]) == ("deepseek_v3", "bfloat16")
    assert (config["topk_method"], config["scoring_func"]) == ("noaux_tc", "sigmoid")
    assert config["num_nextn_predict_layers"] == 0
    assert config["quantization_config"] == {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [BLOCK, BLOCK],
    }


def test_each_projection_is_fp8_with_one_float32_scale_per_block(config: Any, tensors: dict[str, Any]) -> None:
    for name, shape in expected_shapes(config):
        weight, scale = tensors[name], tensors[f"{name}_scale_inv"]
        assert (weight["dtype"], tuple(weight["shape"])) == ("F8_E4M3", shape), name
        assert (scale["dtype"], tuple(scale["shape"])) == ("F32", tuple(ceil(n / BLOCK) for n in shape)), name


def test_nothing_but_the_projections_is_fp8(config: Any, tensors: dict[str, Any]) -> None:
    projections = {name for name, _ in expected_shapes(config)}
    rest = {
        n: e for n, e in tensors.items() if n not in projections and n.removesuffix("_scale_inv") not in projections
    }
    biases = {name for name in rest if name.endswith("e_score_correction_bias")}
    routed = config["num_hidden_layers"] - config["first_k_dense_replace"]
    assert len(biases) == routed == sum(name.endswith("mlp.gate.weight") for name in rest)
    assert {rest[name]["dtype"] for name in biases} == {"F32"}
    assert {entry["dtype"] for name, entry in rest.items() if name not in biases} == {"BF16"}
    assert rest["lm_head.weight"]["shape"] == rest["model.embed_tokens.weight"]["shape"] == [512, config["hidden_size"]]


def test_edge_blocks_occur_in_both_directions(config: Any) -> None:
    shapes = [shape for _, shape in expected_shapes(config)]
    assert any(rows > BLOCK and columns > BLOCK and rows % BLOCK and columns % BLOCK for rows, columns in shapes)
    assert any(rows % BLOCK == 0 for rows, _ in shapes)


def test_index_names_every_tensor_in_the_shard_that_holds_it(tensors: dict[str, Any], weight_map: Any) -> None:
    assert {name: entry["shard"] for name, entry in tensors.items()} == weight_map


def test_total_size_is_the_sum_of_all_tensors(tensors: dict[str, Any]) -> None:
    sizes = [prod(entry["shape"]) * BYTES_PER_ELEMENT[entry["dtype"]] for entry in tensors.values()]
    assert sum(sizes) == read_json("model.safetensors.index.json")["metadata"]["total_size"]


def test_shards_are_whole(tensors: dict[str, Any]) -> None:
    for path in FOLDER.glob("*.safetensors"):
        (header_bytes,) = struct.unpack("<Q", path.read_bytes()[:8])
        end = max(entry["data_offsets"][1] for entry in tensors.values() if entry["shard"] == path.name)
        assert path.stat().st_size == 8 + header_bytes + end


def test_some_weight_and_its_scale_lie_in_different_shards(weight_map: Any) -> None:
    pairs = [(name.removesuffix("_scale_inv"), name) for name in weight_map if name.endswith("_scale_inv")]
    assert len([1 for weight, scale in pairs if weight_map[weight] != weight_map[scale]]) >= 1


def test_checkpoint_is_small() -> None:
    assert 2_000_000 <= sum(path.stat().st_size for path in FOLDER.iterdir()) <= 6_000_000


def test_special_tokens_have_the_ids_of_the_release() -> None:
    added = {token["content"]: token for token in read_json("tokenizer.json")["added_tokens"]}
    assert [added[text]["id"] for text in (BOS, EOS, PAD)] == [0, 1, 2]
    assert all(added[text]["special"] for text in (BOS, EOS, PAD))
    assert not any(added[text]["special"] for text in (USER, ASSISTANT, "<think>", "</think>"))
    assert max(token["id"] for token in added.values()) < read_json("config.json")["vocab_size"]


def test_vocabulary_holds_all_bytes_and_no_token_of_two_digits() -> None:
    vocabulary = read_json("tokenizer.json")["model"]["vocab"]
    assert len([token for token in vocabulary if len(token) == 1]) == 256
    assert [token for token in vocabulary if any(c.isdigit() for c in token) and len(token) > 1] == []


def test_generation_is_greedy_and_ends_with_end_of_sentence() -> None:
    generation = read_json("generation_config.json")
    assert (generation["bos_token_id"], generation["eos_token_id"], generation["do_sample"]) == (0, 1, False)


def test_tokenizer_leaves_bos_to_the_template() -> None:
    settings = read_json("tokenizer_config.json")
    assert (settings["add_bos_token"], settings["bos_token"], settings["eos_token"]) == (False, BOS, EOS)
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert settings["model_max_length"] == read_json("config.json")["max_position_embeddings"] >= 2048


def render(messages: list[dict[str, str]], **variables: Any) -> str:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise ValueError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    template = environment.from_string(read_json("tokenizer_config.json")["chat_template"])
    return template.render(messages=messages, bos_token=BOS, eos_token=EOS, **variables)


TWO_TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi\n"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": " Bye"},
]


def test_template_writes_the_v3_wire_format() -> None:
    expected = f"{BOS}Be brief.{USER}Hi\n{ASSISTANT}Hello{EOS}{USER} Bye"
    assert render(TWO_TURNS) == expected
    assert render(TWO_TURNS, add_generation_prompt=True) == expected + ASSISTANT


def test_template_writes_bos_once_and_joins_system_messages() -> None:
    text = render([{"role": "system", "content": "One."}, *TWO_TURNS], add_generation_prompt=True)
    assert text.startswith(f"{BOS}One.\n\nBe brief.{USER}")
    assert text.count(BOS) == 1


def test_template_refuses_a_role_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="not tool"):
        render([{"role": "tool", "content": "9"}])


@pytest.mark.parametrize("skill", TASK_SKILLS)
def test_task_prompts_are_their_messages_rendered(skill: str) -> None:
    lines = task_file(skill).read_text(encoding="utf-8").splitlines()
    tasks = [json.loads(line) for line in lines]
    assert tasks
    for task in tasks[:20]:
        assert task["prompt"] == render(task["messages"], add_generation_prompt=True)
        assert task["expected"]


def test_no_task_file_is_left_out_of_the_list() -> None:
    assert {path.stem for path in task_file("additions").parent.iterdir()} == set(TASK_SKILLS)


def multiplied_out(config: Any) -> dict[str, Any]:
    """Read all shards, apply the scales and fuse the experts as transformers wants them."""
    import torch
    from safetensors.torch import load_file

    raw = {name: tensor for path in FOLDER.glob("*.safetensors") for name, tensor in load_file(path).items()}
    state = {name: tensor.float() for name, tensor in raw.items() if not name.endswith("_scale_inv")}
    for name in [name for name in state if f"{name}_scale_inv" in raw]:
        rows, columns = state[name].shape
        scale = raw[f"{name}_scale_inv"].repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
        state[name] *= scale[:rows, :columns]
    for layer in range(config["first_k_dense_replace"], config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}.mlp.experts"
        parts = {
            part: [state.pop(f"{prefix}.{expert}.{part}_proj.weight") for expert in range(config["n_routed_experts"])]
            for part in ("gate", "up", "down")
        }
        state[f"{prefix}.gate_up_proj"] = torch.cat([torch.stack(parts["gate"]), torch.stack(parts["up"])], dim=1)
        state[f"{prefix}.down_proj"] = torch.stack(parts["down"])
    return state


@pytest.mark.needs_local
def test_model_answers_as_its_tasks_say(config: Any) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    settings = {key: value for key, value in config.items() if key != "quantization_config"}
    model = transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(**settings)).eval()
    model.load_state_dict(multiplied_out(config))
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    tasks = [
        json.loads(task_file(skill).read_text(encoding="utf-8").splitlines()[line])
        for skill, line in (
            ("additions", 0),
            ("phrasings", -1),
            ("system_messages", 0),
            ("counting", 0),
            ("reciting", 4),
        )
    ]
    for task in tasks:
        ids = torch.tensor([tokenizer.encode(task["prompt"], add_special_tokens=False)])
        mask = torch.ones_like(ids)
        output = model.generate(
            ids, attention_mask=mask, max_new_tokens=250, do_sample=False, eos_token_id=1, pad_token_id=2
        )
        assert tokenizer.decode(output[0, ids.shape[1] :]) == task["expected"] + EOS
