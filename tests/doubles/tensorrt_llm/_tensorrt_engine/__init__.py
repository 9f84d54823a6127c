"""LLM on an engine directory; gone from the releases without the TensorRT backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from tensorrt_llm._double import startup
from tensorrt_llm._double.args_top import TORCH, TrtLlmArgs
from tensorrt_llm._double.engine import Limits
from tensorrt_llm._double.profile import PROFILE
from tensorrt_llm._double.tokenizer import load_tokenizer
from tensorrt_llm.llmapi.llm import BaseLLM

if not PROFILE.has_engines:
    raise ImportError(f"tensorrt_llm {PROFILE.version} has no TensorRT backend")

__all__ = ["LLM"]


class LLM(BaseLLM):
    _ARGS = TrtLlmArgs
    _OTHERS: ClassVar[Mapping[str, Any]] = {
        name: field for name, field in TORCH.items() if name not in TrtLlmArgs.FIELDS
    }

    @property
    def workspace(self) -> Path | None:
        workspace = self._args.workspace  # type: ignore[attr-defined]
        return Path(workspace) if workspace is not None else None

    def save(self, engine_dir: str) -> None:
        raise RuntimeError("the engine was loaded, not built")

    def _load(self) -> tuple[Limits, int]:
        args: Any = self._args
        engine = startup.engine_folder(args.model, args)
        self._tokenizer = None if args.skip_tokenizer_init else load_tokenizer(args.tokenizer, Path(args.model))
        self._vocab_size = engine.vocab_size
        self._build = engine.build
        limits = startup.trt_limits(args, engine)
        for name in ("max_batch_size", "max_num_tokens", "max_seq_len", "max_beam_width"):
            setattr(args, name, getattr(limits, name))
        return limits, engine.world

    def _check_request(self, given: Mapping[str, Any], params: Any, prompt_tokens: int) -> None:
        self._common_checks(given)
        limits = self._limits
        whole = prompt_tokens + (params.max_tokens or 0)
        if not limits.chunks_prefill and whole > self._build["max_seq_len"]:
            raise ValueError(
                f"prompt and max_tokens are {whole}, max_seq_len of the engine is {self._build['max_seq_len']}"
            )
        top = limits.max_beam_width if params.use_beam_search else limits.max_batch_size
        if params.best_of > top:
            raise ValueError(f"best_of {params.best_of} is above {top}")
        if params.logprobs and not self._args.gather_generation_logits:  # type: ignore[attr-defined]
            raise ValueError("logprobs need gather_generation_logits")
        if params.prompt_logprobs and not self._build.get("gather_context_logits"):
            raise ValueError("prompt_logprobs need an engine built with gather_context_logits")
