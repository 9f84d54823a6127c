"""A bundle -> the arguments of tensorrt_llm.LLM, and what the port must know of the model: its end ids and vocabulary.

llm_args.yaml was validated for the exact version when the bundle was built; here only what belongs to this process is
added: the model's folder, no tokenizer (text is the backend's own work), statistics.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...contract.bundle import TRTLLM_ARGS_FILE, Bundle
from ..port import RUNTIME_CONTROLS, EngineError, EngineInfo

__all__ = ["LlmSetup", "engine_info", "read_setup"]

_TOKENIZER_WISHES = ("tokenizer", "custom_tokenizer", "skip_tokenizer_init", "guided_decoding_backend")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmSetup:
    arguments: Mapping[str, Any]
    """Keywords of the LLM class, `model` among them, values as YAML has them."""
    eos_ids: tuple[int, ...]
    vocab_size: int

    @property
    def model_has_defaults(self) -> bool:
        """Values that a request leaves open come from the model's generation_config.json."""
        return self.arguments.get("generation_config") == "auto"

    @property
    def has_statistics(self) -> bool:
        """The engine of a PyTorch bundle gives them when asked to, one of trtllm-build always."""
        return bool(self.arguments.get("enable_iter_perf_stats", True))


def read_setup(bundle_dir: Path, bundle: Bundle) -> LlmSetup:
    """Raises EngineError for a bundle that cannot be run, naming the file."""
    if bundle.trtllm is None:
        raise EngineError(f"{bundle_dir} is built for the engine {bundle.engine!r}, not for TensorRT-LLM")
    model_dir = bundle_dir / bundle.trtllm.model_dir
    arguments = _read_yaml(bundle_dir / TRTLLM_ARGS_FILE)
    arguments["model"] = str(model_dir)
    if not any(name in arguments for name in _TOKENIZER_WISHES):
        arguments["skip_tokenizer_init"] = True
    if bundle.engine == "trtllm-pytorch":
        arguments.setdefault("enable_iter_perf_stats", True)
    return LlmSetup(
        arguments=arguments, eos_ids=_eos_ids(bundle_dir, model_dir), vocab_size=_vocab_size(bundle_dir, model_dir)
    )


def engine_info(bundle: Bundle, setup: LlmSetup) -> EngineInfo:
    """`speculation` is never a control: no release lets one request draft fewer tokens than the engine was made for."""
    assert bundle.trtllm is not None, "read_setup has seen it"
    beams = bundle.trtllm.max_beam_width
    is_engine_directory = bundle.engine == "trtllm-engine"
    return EngineInfo(
        kind=bundle.engine,
        max_seq_len_tokens=bundle.limits.max_seq_len_tokens,
        max_batch_size=bundle.limits.max_batch_size * _pools(bundle),
        block_tokens=bundle.kv.block_tokens,
        kv_total_blocks=bundle.kv.capacity_blocks,
        may_pause=bundle.kv.may_pause,
        vocab_size=setup.vocab_size,
        eos_ids=setup.eos_ids,
        has_logprobs=not is_engine_directory or bool(setup.arguments.get("gather_generation_logits")),
        max_beam_width=beams,
        has_guides=bool(setup.arguments.get("guided_decoding_backend")),
        reuses_prefixes=_reuses_blocks(setup.arguments),
        runtime_controls=frozenset(RUNTIME_CONTROLS[:1]) if beams > 1 else frozenset(),
    )


def _reuses_blocks(arguments: Mapping[str, Any]) -> bool:
    """On by default in every release."""
    cache = arguments.get("kv_cache_config")
    return not isinstance(cache, dict) or cache.get("enable_block_reuse", True) is True


def _pools(bundle: Bundle) -> int:
    return bundle.parallel.tp if bundle.parallel.attention_dp else 1


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml  # TensorRT-LLM brings it

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise EngineError(f"{path} cannot be read ({error}); build the bundle again") from error
    if not isinstance(data, dict):
        raise EngineError(
            f"{path} holds {type(data).__name__} where arguments by name are needed; build the bundle again"
        )
    return {str(name): value for name, value in data.items()}


def _eos_ids(bundle_dir: Path, model_dir: Path) -> tuple[int, ...]:
    for path in (
        model_dir / "generation_config.json",
        model_dir / "config.json",
        bundle_dir / "tokenizer" / "generation_config.json",
    ):
        value = _read_json(path).get("eos_token_id")
        if value is not None:
            return tuple(int(item) for item in value) if isinstance(value, list) else (int(value),)
    return _eos_of_tokenizer(bundle_dir / "tokenizer")


def _eos_of_tokenizer(folder: Path) -> tuple[int, ...]:
    """An engine folder says nothing of end ids; the tokenizer names the token and lists it with its id."""
    named = _read_json(folder / "tokenizer_config.json").get("eos_token")
    text = named.get("content") if isinstance(named, dict) else named
    added = _read_json(folder / "tokenizer.json").get("added_tokens") or ()
    found = tuple(int(token["id"]) for token in added if token.get("content") == text)
    if not found:
        raise EngineError(f"{folder} does not say which token ends a text (eos_token {text!r}); build the bundle again")
    return found


def _vocab_size(bundle_dir: Path, model_dir: Path) -> int:
    config = _read_json(model_dir / "config.json")
    size = config.get("vocab_size", (config.get("pretrained_config") or {}).get("vocab_size"))
    if not isinstance(size, int) or size < 1:
        raise EngineError(f"{model_dir / 'config.json'} has no vocab_size; build the bundle {bundle_dir} again")
    return size


def _read_json(path: Path) -> dict[str, Any]:
    """Empty for a file that is not there."""
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise EngineError(f"{path} is not JSON ({error}); build the bundle again") from error
    return data if isinstance(data, dict) else {}
