"""The name tables against the model classes of transformers: same tensors, same shapes, without allocating any."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.checkpoint.toy import QWEN_CONFIG, V3_CONFIG

from seekserve.checkpoint.config import parse_config
from seekserve.checkpoint.findings import Collector
from seekserve.checkpoint.layout import expected_tensors, layout
from seekserve.checkpoint.parameters import count_parameters

pytestmark = pytest.mark.needs_local

V2: dict[str, Any] = {**V3_CONFIG, "model_type": "deepseek_v2", "scoring_func": "softmax", "topk_method": "greedy"}
V32: dict[str, Any] = {**V3_CONFIG, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 16}
LLAMA: dict[str, Any] = {**QWEN_CONFIG, "model_type": "llama"}
CASES = [
    ("DeepseekV2", "deepseek_v2", V2),
    ("DeepseekV2", "deepseek_v2", {**V2, "q_lora_rank": None}),
    ("DeepseekV3", "deepseek_v3", V3_CONFIG),
    ("DeepseekV3", "deepseek_v3", {**V3_CONFIG, "attention_bias": True}),
    ("DeepseekV32", "deepseek_v32", V32),
    ("Qwen2", "qwen2", QWEN_CONFIG),
    ("Llama", "llama", LLAMA),
    ("Llama", "llama", {**LLAMA, "attention_bias": True, "mlp_bias": True}),
]


def shapes_of_model(class_stem: str, settings: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    known = {
        k: v for k, v in settings.items() if k not in ("architectures", "model_type", "torch_dtype", "rope_scaling")
    }
    config = getattr(transformers, f"{class_stem}Config")(**known)
    with torch.device("meta"):
        model = getattr(transformers, f"{class_stem}ForCausalLM")(config)
    return split_experts({name: tuple(tensor.shape) for name, tensor in model.state_dict().items()})


def split_experts(fused: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """transformers fuses the experts of a layer (gate above up); releases hold one tensor per expert and projection."""
    out: dict[str, tuple[int, ...]] = {}
    for name, shape in fused.items():
        stem, _, kind = name.rpartition(".experts.")
        if kind == "gate_up_proj":
            for expert in range(shape[0]):
                for part in ("gate_proj", "up_proj"):
                    out[f"{stem}.experts.{expert}.{part}.weight"] = (shape[1] // 2, shape[2])
        elif kind == "down_proj":
            out.update({f"{stem}.experts.{expert}.down_proj.weight": shape[1:] for expert in range(shape[0])})
        else:
            out[name] = shape
    return out


@pytest.mark.parametrize(("class_stem", "architecture", "settings"), CASES)
def test_names_and_shapes_are_those_of_the_model_class(
    class_stem: str, architecture: str, settings: dict[str, Any]
) -> None:
    config = parse_config(settings, "config.json", Collector())
    assert config is not None
    blocks = layout(config, architecture)
    expected = {name: wanted.shape for name, wanted in expected_tensors(blocks).items()}
    assert expected == shapes_of_model(class_stem, settings)
    assert count_parameters(blocks).main == sum(math.prod(shape) for shape in expected.values())


def test_v4_has_as_many_elements_as_the_model_class() -> None:
    settings = {
        "vocab_size": 32,
        "hidden_size": 16,
        "moe_intermediate_size": 8,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "q_lora_rank": 8,
        "o_lora_rank": 4,
        "o_groups": 2,
        "qk_rope_head_dim": 4,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "index_n_heads": 2,
        "index_head_dim": 8,
        "index_topk": 4,
        "hc_mult": 2,
        "num_hash_layers": 1,
        "sliding_window": 8,
        "compress_ratios": [0, 4, 128, 4, 0],
        "num_nextn_predict_layers": 1,
    }
    config = parse_config(settings, "config.json", Collector())
    assert config is not None
    blocks = [block for block in layout(config, "deepseek_v4") if not block.is_mtp]
    ours = sum(math.prod(wanted.shape) for wanted in expected_tensors(blocks).values())
    assert ours == sum(math.prod(shape) for shape in shapes_of_model("DeepseekV4", settings).values())
