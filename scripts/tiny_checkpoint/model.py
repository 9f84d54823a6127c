"""The shape of the tiny DeepSeek-V3 and the state of a fresh one.

192 and 144 are no multiples of 128 and above it, so the FP8 format's edge blocks occur in both directions.
A latent row of the KV cache is 64 + 16 elements.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_checkpoint.layout import BLOCK, fuse_experts, read_release, write_json, write_weights
from tiny_checkpoint.tokenizer import BOS_ID, EOS_ID, MAX_CONTEXT_TOKENS, PAD_ID, VOCABULARY_ROWS, save_tokenizer

SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY_ROWS,
    "hidden_size": 192,
    "intermediate_size": 400,
    "moe_intermediate_size": 144,
    "num_hidden_layers": 4,
    "first_k_dense_replace": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 96,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 4,
    "topk_group": 2,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "max_position_embeddings": MAX_CONTEXT_TOKENS,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "initializer_range": 0.04,
    "use_cache": True,
}

RELEASE_KEYS: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    "ep_size": 1,
    "moe_layer_freq": 1,
    "num_nextn_predict_layers": 0,
    "rope_scaling": None,
    "rope_theta": 10000,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "quantization_config": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [BLOCK, BLOCK],
    },
}


def new_model() -> Any:
    """Return a fresh float32 `DeepseekV3ForCausalLM`."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    config = DeepseekV3Config(
        **SHAPE, pad_token_id=PAD_ID, num_mtp_layers=0, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}
    )
    return DeepseekV3ForCausalLM(config).float()


def write_checkpoint(state: dict[str, Any], tokenizer: Any, folder: Path) -> None:
    """Write the whole release into an existing empty folder."""
    write_weights(state, folder)
    save_tokenizer(tokenizer, folder)
    write_json(folder / "config.json", {**SHAPE, **RELEASE_KEYS})
    write_json(
        folder / "generation_config.json",
        {"_from_model_config": True, "bos_token_id": BOS_ID, "do_sample": False, "eos_token_id": EOS_ID},
    )


def load_model(folder: Path, dtype: Any) -> Any:
    """Return the checkpoint as a transformers model, its FP8 weights multiplied out and cast to `dtype`."""
    import json

    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    del settings["quantization_config"]
    model = DeepseekV3ForCausalLM(DeepseekV3Config(**settings))
    model.load_state_dict(fuse_experts(read_release(folder)))
    return cast(model, dtype)


def cast(model: Any, dtype: Any) -> Any:
    """Cast in place, except what transformers itself always keeps in float32: router and correction bias."""
    import torch

    model.to(dtype)
    for layer in model.model.layers:
        if hasattr(layer.mlp, "gate"):
            layer.mlp.gate.to(torch.float32)
    return model.eval()
