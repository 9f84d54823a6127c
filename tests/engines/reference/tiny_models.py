"""Tiny random models, and what transformers' own `generate` says about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.engines.port import EndEvent, EndReason, EngineRequest

TIE = 1e-4
"""Where the two best logits are closer than this, either token is right."""

_SHAPE = {
    "vocab_size": 80,
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 4,
    "topk_group": 2,
    "first_k_dense_replace": 1,
    "max_position_embeddings": 256,
    "initializer_range": 0.15,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "v3": {**_SHAPE, "model_type": "deepseek_v3", "q_lora_rank": 24, "routed_scaling_factor": 2.5, "num_mtp_layers": 0},
    "v2": {**_SHAPE, "model_type": "deepseek_v2", "q_lora_rank": 24, "topk_method": "group_limited_greedy"},
    "v2_lite": {**_SHAPE, "model_type": "deepseek_v2", "q_lora_rank": None, "topk_method": "greedy"},
}


@cache
def make_model(name: str) -> Any:
    """float32, the same weights on every call and in every run."""
    import torch
    import transformers

    fields = {key: value for key, value in CONFIGS[name].items() if key != "model_type"}
    stem = "DeepseekV3" if name == "v3" else "DeepseekV2"
    config = getattr(transformers, f"{stem}Config")(**fields)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = getattr(transformers, f"{stem}ForCausalLM")(config)
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn_like(buffer) * 0.1)
    return model.eval().requires_grad_(False)


def rounding_cache(kv_dtype: str) -> Any:
    """transformers' DynamicCache, except that it keeps latents as a page of that dtype would."""
    import torch
    from transformers import DynamicCache

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp8_e4m3": torch.float8_e4m3fn}[kv_dtype]

    class RoundingCache(DynamicCache):
        def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> Any:
            def rounded(x: Any) -> Any:
                return (x.clamp(-448, 448) if kv_dtype == "fp8_e4m3" else x).to(dtype).to(x.dtype)

            return super().update(rounded(key_states), rounded(value_states), *args, **kwargs)

    return RoundingCache()


def generate(
    model: Any, prompt: Sequence[int], max_tokens: int, kv_dtype: str, **options: Any
) -> tuple[list[int], Any]:
    """Produced tokens (a stop id included) and the scores each was chosen from."""
    import torch

    ids = torch.tensor([list(prompt)])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_tokens,
        cache=rounding_cache(kv_dtype),
        return_dict_in_generate=True,
        output_scores=True,
        pad_token_id=0,
        **{"do_sample": False, **options},
    )
    return out.sequences[0, len(prompt) :].tolist(), out.scores


def assert_same_greedy(
    model: Any, request: EngineRequest, produced: Sequence[int], end: EndEvent, kv_dtype: str
) -> None:
    """`produced` and how it ended is what `generate` gives; at a tie the engine's choice is followed."""
    stop_ids = list(request.stop_ids or (1,))
    choices: list[int | None] = [*produced, None] if end.reason is EndReason.STOP else [*produced]
    done = 0
    while done < len(choices):
        known = [*request.prompt_ids, *produced[:done]]
        expected, scores = generate(model, known, request.max_tokens - done, kv_dtype, eos_token_id=stop_ids)
        for token, row in zip(expected, scores, strict=True):
            assert done < len(choices), f"{request} ended after {produced}, generate goes on with {token}"
            choice = choices[done]
            done += 1
            if choice == token or (choice is None and token in stop_ids):
                continue
            margin = float(row[0].max() - (row[0, stop_ids].max() if choice is None else row[0, choice]))
            assert margin < TIE, f"{request}: token {done - 1} is {choice}, generate says {token} by {margin}"
            break
    assert end.reason is EndReason.STOP or (end.reason, done) == (EndReason.LENGTH, request.max_tokens)


def run_all(engine: Any, arrivals: Iterable[tuple[int, EngineRequest]]) -> dict[str, tuple[list[int], EndEvent]]:
    """Adds each request at its step or as soon after as it fits; steps until all have ended."""
    waiting = sorted(arrivals, key=lambda item: item[0])
    tokens: dict[str, list[int]] = {request.id: [] for _, request in waiting}
    ends: dict[str, EndEvent] = {}
    step = 0
    while waiting or engine.stats().running:
        while waiting and waiting[0][0] <= step and engine.can_add(waiting[0][1]):
            engine.add(waiting.pop(0)[1])
        report = engine.step(0.0)
        engine.check_integrity()
        for event in report.tokens:
            assert event.id not in ends
            tokens[event.id].extend(event.token_ids)
        for end in report.ends:
            assert end.id not in ends
            ends[end.id] = end
        step += 1
        assert step < 10_000
    return {request_id: (tokens[request_id], ends[request_id]) for request_id in tokens}


def make_engine(
    model: Any,
    *,
    kv_dtype: str = "fp32",
    block_tokens: int = 4,
    blocks: int = 64,
    max_batch_size: int = 8,
    max_num_tokens: int = 64,
    prefill_chunk_tokens: int = 16,
    max_seq_len_tokens: int = 96,
    eos_ids: tuple[int, ...] = (1,),
) -> Any:
    from seekserve_backend.engines.reference.engine import ReferenceEngine

    return ReferenceEngine.of_model(
        model,
        eos_ids=eos_ids,
        limits=Limits(
            max_seq_len_tokens=max_seq_len_tokens,
            max_batch_size=max_batch_size,
            max_num_tokens=max_num_tokens,
            prefill_chunk_tokens=prefill_chunk_tokens,
        ),
        kv=KvCache(dtype=kv_dtype, block_tokens=block_tokens, capacity_blocks=blocks, bytes_per_token=1),
    )
