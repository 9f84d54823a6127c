"""SamplingParams and GuidedDecodingParams of the profile's era: slots and keywords only, checked when constructed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from tensorrt_llm._double.guard import Guarded, violation
from tensorrt_llm._double.profile import PROFILE

__all__ = ["AdditionalModelOutput", "GuidedDecodingParams", "LogitsProcessor", "SamplingParams"]

_IS_NEW = PROFILE.sampling == "NEW"


class LogitsProcessor:
    """Base of what may edit logits; the double never calls it."""


@dataclass(slots=True, kw_only=True)
class AdditionalModelOutput:
    name: str
    gather_context: bool


@dataclass(slots=True, kw_only=True)
class GuidedDecodingParams:
    json: Any = None
    regex: str | None = None
    grammar: str | None = None
    json_object: bool = False
    structural_tag: str | None = None

    def _validate(self) -> None:
        given = [each.name for each in fields(self) if getattr(self, each.name)]
        if len(given) > 1:
            raise ValueError(f"only one guide can be used, but {' and '.join(given)} are set")


@dataclass(slots=True, kw_only=True)
class _Fields(Guarded):
    end_id: int | None = None
    pad_id: int | None = None
    max_tokens: int = 32
    bad: str | list[str] | None = None
    bad_token_ids: list[int] | None = None
    _bad_word_ids: list[list[int]] | None = field(default=None, init=False, repr=False)
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    _stop_word_ids: list[list[int]] | None = field(default=None, init=False, repr=False)
    embedding_bias: Any = None
    logits_processor: Any = None
    apply_batched_logits_processor: bool = False
    n: int = 1
    best_of: int | None = None
    use_beam_search: bool = False
    top_k: int | None = None
    top_p: float | None = None
    top_p_min: float | None = None
    top_p_reset_ids: int | None = None
    top_p_decay: float | None = None
    seed: int | None = None
    temperature: float | None = None
    min_tokens: int | None = None
    beam_search_diversity_rate: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    length_penalty: float | None = None
    early_stopping: int | None = None
    no_repeat_ngram_size: int | None = None
    min_p: float | None = None
    beam_width_array: list[int] | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    return_context_logits: bool = False
    return_generation_logits: bool = False
    exclude_input_from_output: bool = True
    return_encoder_output: bool = False
    return_perf_metrics: bool = False
    additional_model_outputs: list[str] | None = None
    _context_logits_auto_enabled: bool = False
    _generation_logits_auto_enabled: bool = False
    _return_log_probs: bool = False
    lookahead_config: Any = None
    guided_decoding: GuidedDecodingParams | None = None
    ignore_eos: bool = False
    detokenize: bool = True
    add_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True

    def __post_init__(self) -> None:
        if self._context_logits_auto_enabled or self._generation_logits_auto_enabled or self._return_log_probs:
            violation("private-attribute", "a private field of SamplingParams was given")
        if self.pad_id is None:
            self.pad_id = self.end_id
        if self.best_of is None:
            self.best_of = self.n
        self._fold_logprobs()
        self._validate()

    def _fold_logprobs(self) -> None:
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, int(value))

    def _validate(self) -> None:
        _within(self.top_p, "top_p", 0, 1)
        _within(self.top_k, "top_k", 0, math.inf)
        _within(self.temperature, "temperature", 0, math.inf)
        assert self.best_of is not None
        if self.best_of < self.n:
            raise ValueError(f"best_of {self.best_of} is below n {self.n}")
        may_repeat = self.use_beam_search or bool(os.environ.get("TLLM_ALLOW_N_GREEDY_DECODING"))
        if self.best_of > 1 and self._is_greedy and not may_repeat:
            raise ValueError(f"best_of {self.best_of} with greedy decoding gives the same sequence several times")
        if self.truncate_prompt_tokens is not None and self.truncate_prompt_tokens < 1:
            raise ValueError(f"truncate_prompt_tokens {self.truncate_prompt_tokens} is below 1")
        if self.guided_decoding is not None:
            self.guided_decoding._validate()

    @property
    def _is_greedy(self) -> bool:
        if self.use_beam_search:
            return False
        if self.temperature is None and self.top_p is None and self.top_k is None:
            return True
        return self.top_k == 1 or self.top_p == 0 or self.temperature == 0

    def _setup(self, tokenizer: Any) -> None:
        """What a call does to the object when it comes without an end id."""
        if self.end_id is None:
            self.end_id = tokenizer.eos_token_id
            pad = tokenizer.pad_token_id
            self.pad_id = self.end_id if pad is None else pad
            encode = tokenizer.encode
            self._bad_word_ids = [encode(word, add_special_tokens=False) for word in _listed(self.bad)]
            self._stop_word_ids = [encode(word, add_special_tokens=False) for word in _listed(self.stop)]

    def _stop_words(self) -> Iterator[tuple[int | str, list[int]]]:
        """Reason and token sequence. Strings that were never encoded are the engine's error to report."""
        for token in self.stop_token_ids or ():
            yield token, [token]
        strings = _listed(self.stop)
        if strings and self._stop_word_ids is None:
            raise RuntimeError("stop strings were not tokenised: end_id was given, so the set-up was skipped")
        yield from zip(strings, self._stop_word_ids or (), strict=True)


def _listed(words: str | list[str] | None) -> list[str]:
    return [words] if isinstance(words, str) else list(words or ())


def _within(value: float | None, name: str, low: float, high: float) -> None:
    if value is not None and (value < low or value > high):
        raise ValueError(f"{name} must be from {low} to {high}, but is {value}")


if _IS_NEW:

    @dataclass(slots=True, kw_only=True)
    class SamplingParams(_Fields):
        logprobs_mode: str = "raw"
        prompt_ignore_length: int | None = None
        logprobs_simple_format: bool = False
        prompt_logprobs_simple_format: bool = False
        thinking_token_budget: int | None = None

        def _fold_logprobs(self) -> None:
            for name in ("logprobs", "prompt_logprobs"):
                value = getattr(self, name)
                if isinstance(value, bool):
                    setattr(self, name, 0 if value else None)

        def _validate(self) -> None:
            for name in ("top_p", "min_p", "temperature"):
                value = getattr(self, name)
                if value is not None and math.isnan(value):
                    raise ValueError(f"{name} is not a number")
            _within(self.min_p, "min_p", 0, 1)
            _within(self.top_p_reset_ids, "top_p_reset_ids", 0, math.inf)
            for name in ("top_p_min", "top_p_decay"):
                value = getattr(self, name)
                if value is not None and not 0 < value <= 1:
                    raise ValueError(f"{name} must be above 0 and at most 1, but is {value}")
            _within(self.logprobs, "logprobs", 0, 100)
            _within(self.prompt_logprobs, "prompt_logprobs", 0, 100)
            if self.logprobs_mode not in ("raw", "processed"):
                raise ValueError(f"logprobs_mode {self.logprobs_mode!r} is neither raw nor processed")
            self._fold_budget()
            _Fields._validate(self)

        def _fold_budget(self) -> None:
            budget = self.thinking_token_budget
            if budget is None:
                return
            if isinstance(budget, bool) or not isinstance(budget, int) or budget < -1:
                raise ValueError(f"thinking_token_budget must be a whole number from 0, or -1, but is {budget!r}")
            if budget == -1:
                self.thinking_token_budget = None

        @property
        def _is_greedy(self) -> bool:
            if self.min_p == 1.0:
                return True
            decays = self.top_p_decay is not None and self.top_p_decay < 1
            if (self.min_p is not None and 0 < self.min_p < 1) or decays:
                return False
            return bool(_Fields._is_greedy.fget(self))  # type: ignore[attr-defined]

else:

    @dataclass(slots=True, kw_only=True)
    class SamplingParams(_Fields):  # type: ignore[no-redef]
        pass
