"""Toy checkpoints of a few KB, written without the safetensors library; every test that needs a checkpoint starts here.

`v3_toy()` is a whole, clean checkpoint in memory; tests change `tensors`, `config` or the options of `write` to break
one thing. `write_sparse` makes full-size files whose data is a hole. Standard library only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BITS = {"F8_E4M3": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BF16": 16, "F16": 16, "F32": 32, "I32": 32, "I64": 64, "I16": 16}
BLOCK = 128
FP8_CONFIG = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]}

V3_CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "moe_intermediate_size": 8,
    "num_hidden_layers": 2,
    "first_k_dense_replace": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 4,
    "v_head_dim": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "num_nextn_predict_layers": 0,
    "max_position_embeddings": 256,
    "rope_scaling": None,
    "rope_theta": 10000,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 1,
}
QWEN_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "eos_token_id": 1,
}


@dataclass(slots=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * BITS[self.dtype] // 8


@dataclass(slots=True)
class Toy:
    """What will be written. `tensors` is in file order, cut into `shards` of about equal numbers of tensors."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    shards: int = 2
    generation: dict[str, Any] | None = field(default_factory=lambda: {"eos_token_id": 1})
    tokenizer_config: dict[str, Any] | None = field(
        default_factory=lambda: {"eos_token": "<eos>", "chat_template": "{{ messages }}"}
    )
    tokenizer: dict[str, Any] | None = field(
        default_factory=lambda: {"added_tokens": [{"id": 1, "content": "<eos>", "special": True}], "model": {}}
    )

    def weight_map(self) -> dict[str, str]:
        names = list(self.tensors)
        parts = [min(i * self.shards // max(len(names), 1), self.shards - 1) + 1 for i in range(len(names))]
        return {n: f"model-{p:05d}-of-{self.shards:05d}.safetensors" for n, p in zip(names, parts, strict=True)}

    def write(
        self,
        folder: Path,
        *,
        index: dict[str, str] | None = None,
        rename: Callable[[str], str] = lambda name: name,
    ) -> Path:
        """`index` replaces the true weight map; `rename` changes the stored names everywhere."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "config.json", self.config)
        for file, content in (
            ("generation_config.json", self.generation),
            ("tokenizer_config.json", self.tokenizer_config),
            ("tokenizer.json", self.tokenizer),
        ):
            if content is not None:
                write_json(folder / file, content)
        weight_map = self.weight_map()
        for shard in sorted(set(weight_map.values())):
            held = {rename(n): t for n, t in self.tensors.items() if weight_map[n] == shard}
            write_safetensors(folder / shard, held)
        named = {rename(n): shard for n, shard in weight_map.items()}
        total = sum(tensor.size_bytes for tensor in self.tensors.values())
        write_index(folder, named if index is None else index, total)
        return folder


def v3_toy(*, mtp_layers: int = 0, fp8: bool = True, plain_query: bool = False, **changes: Any) -> Toy:
    """A clean V3-shaped checkpoint: FP8 blocks with scales, or BF16. The names are written out here on purpose."""
    config = {**V3_CONFIG, "num_nextn_predict_layers": mtp_layers, **changes}
    if plain_query:
        config["q_lora_rank"] = None
    if fp8:
        config["quantization_config"] = dict(FP8_CONFIG)
    toy = Toy(config=config, tensors={})
    _fill_v3(toy, fp8)
    return toy


def _fill_v3(toy: Toy, fp8: bool) -> None:
    c, hidden, vocab = toy.config, toy.config["hidden_size"], toy.config["vocab_size"]

    def plain(name: str, *shape: int, dtype: str = "BF16") -> None:
        toy.tensors[name] = Tensor(dtype, shape)

    def matrix(name: str, rows: int, columns: int) -> None:
        add_matrix(toy, name, rows, columns, fp8=fp8)

    def mlp(at: str, width: int) -> None:
        matrix(f"{at}.gate_proj.weight", width, hidden)
        matrix(f"{at}.up_proj.weight", width, hidden)
        matrix(f"{at}.down_proj.weight", hidden, width)

    plain("model.embed_tokens.weight", vocab, hidden)
    heads, rope = c["num_attention_heads"], c["qk_rope_head_dim"]
    query, latent = c["qk_nope_head_dim"] + rope, c["kv_lora_rank"]
    for layer in range(c["num_hidden_layers"] + c["num_nextn_predict_layers"]):
        at = f"model.layers.{layer}"
        is_mtp = layer >= c["num_hidden_layers"]
        plain(f"{at}.input_layernorm.weight", hidden)
        plain(f"{at}.post_attention_layernorm.weight", hidden)
        if c["q_lora_rank"] is None:
            matrix(f"{at}.self_attn.q_proj.weight", heads * query, hidden)
        else:
            matrix(f"{at}.self_attn.q_a_proj.weight", c["q_lora_rank"], hidden)
            plain(f"{at}.self_attn.q_a_layernorm.weight", c["q_lora_rank"])
            matrix(f"{at}.self_attn.q_b_proj.weight", heads * query, c["q_lora_rank"])
        matrix(f"{at}.self_attn.kv_a_proj_with_mqa.weight", latent + rope, hidden)
        plain(f"{at}.self_attn.kv_a_layernorm.weight", latent)
        matrix(f"{at}.self_attn.kv_b_proj.weight", heads * (c["qk_nope_head_dim"] + c["v_head_dim"]), latent)
        matrix(f"{at}.self_attn.o_proj.weight", hidden, heads * c["v_head_dim"])
        if layer < c["first_k_dense_replace"]:
            mlp(f"{at}.mlp", c["intermediate_size"])
            continue
        plain(f"{at}.mlp.gate.weight", c["n_routed_experts"], hidden)
        plain(f"{at}.mlp.gate.e_score_correction_bias", c["n_routed_experts"], dtype="F32")
        mlp(f"{at}.mlp.shared_experts", c["moe_intermediate_size"] * c["n_shared_experts"])
        for expert in range(c["n_routed_experts"]):
            mlp(f"{at}.mlp.experts.{expert}", c["moe_intermediate_size"])
        if is_mtp:
            for name in ("enorm", "hnorm", "shared_head.norm"):
                plain(f"{at}.{name}.weight", hidden)
            plain(f"{at}.eh_proj.weight", hidden, 2 * hidden)
            plain(f"{at}.embed_tokens.weight", vocab, hidden)
            plain(f"{at}.shared_head.head.weight", vocab, hidden)
    plain("model.norm.weight", hidden)
    plain("lm_head.weight", vocab, hidden)


def add_matrix(toy: Toy, name: str, rows: int, columns: int, *, fp8: bool) -> None:
    toy.tensors[name] = Tensor("F8_E4M3" if fp8 else "BF16", (rows, columns))
    if fp8:
        toy.tensors[f"{name}_scale_inv"] = Tensor("F32", (-(-rows // BLOCK), -(-columns // BLOCK)))


def qwen_toy() -> Toy:
    """A clean Qwen2-shaped checkpoint in BF16, one file."""
    toy = Toy(config=dict(QWEN_CONFIG), tensors={}, shards=1)
    toy.tensors["model.embed_tokens.weight"] = Tensor("BF16", (32, 16))
    for layer in range(2):
        at = f"model.layers.{layer}"
        for name, shape in (
            ("input_layernorm.weight", (16,)),
            ("self_attn.q_proj.weight", (16, 16)),
            ("self_attn.q_proj.bias", (16,)),
            ("self_attn.k_proj.weight", (8, 16)),
            ("self_attn.k_proj.bias", (8,)),
            ("self_attn.v_proj.weight", (8, 16)),
            ("self_attn.v_proj.bias", (8,)),
            ("self_attn.o_proj.weight", (16, 16)),
            ("post_attention_layernorm.weight", (16,)),
            ("mlp.gate_proj.weight", (24, 16)),
            ("mlp.up_proj.weight", (24, 16)),
            ("mlp.down_proj.weight", (16, 24)),
        ):
            toy.tensors[f"{at}.{name}"] = Tensor("BF16", shape)
    toy.tensors["model.norm.weight"] = Tensor("BF16", (16,))
    toy.tensors["lm_head.weight"] = Tensor("BF16", (32, 16))
    return toy


def header_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, tensor in tensors.items():
        table[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [position, position + tensor.size_bytes],
        }
        position += tensor.size_bytes
    raw = json.dumps(table, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return len(raw).to_bytes(8, "little") + raw


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], *, data: bytes | None = None) -> None:
    """Zeros by default; `data` replaces the whole data section."""
    size = sum(tensor.size_bytes for tensor in tensors.values())
    path.write_bytes(header_bytes(tensors) + (bytes(size) if data is None else data))


def write_raw(path: Path, header: bytes, data: bytes = b"", *, length: int | None = None) -> Path:
    """Any header bytes, with a true or a false length in front."""
    path.write_bytes((len(header) if length is None else length).to_bytes(8, "little") + header + data)
    return path


def write_index(folder: Path, weight_map: Mapping[str, str], total_bytes: int) -> None:
    content = {"metadata": {"total_size": total_bytes}, "weight_map": dict(weight_map)}
    write_json(folder / "model.safetensors.index.json", content)


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def write_sparse(toy: Toy, folder: Path) -> Path:
    """As `Toy.write`, the data being a hole: a few MB on disk whatever the size. 6-digit totals, as in the release."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", toy.config)
    sizes = sum(tensor.size_bytes for tensor in toy.tensors.values())
    shards: list[dict[str, Tensor]] = [{}]
    filled = 0
    for name, tensor in toy.tensors.items():
        if filled > len(shards) * sizes / toy.shards and len(shards) < toy.shards:
            shards.append({})
        shards[-1][name] = tensor
        filled += tensor.size_bytes
    weight_map: dict[str, str] = {}
    for number, held in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):06d}.safetensors"
        header = header_bytes(held)
        with (folder / file).open("wb") as out:
            out.write(header)
            out.truncate(len(header) + sum(tensor.size_bytes for tensor in held.values()))
        weight_map.update(dict.fromkeys(held, file))
    write_index(folder, weight_map, sizes)
    return folder


def full_size_v3(config: dict[str, Any]) -> Toy:
    """The names, shapes and dtypes of the DeepSeek-V3 release, MTP layer included, for `write_sparse`."""
    toy = Toy(config=config, tensors={}, shards=163)
    _fill_v3(toy, fp8=True)
    return toy
