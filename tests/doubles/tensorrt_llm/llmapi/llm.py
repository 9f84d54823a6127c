"""LLM on the PyTorch backend, and the common part of both classes. One thread and one event loop may use an object."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from tensorrt_llm._double import arg_rules, spec_rules, startup
from tensorrt_llm._double.args_top import TRT, TorchLlmArgs
from tensorrt_llm._double.behaviour import BEHAVIOUR
from tensorrt_llm._double.config import Config, field_names
from tensorrt_llm._double.engine import Engine, Limits
from tensorrt_llm._double.guard import Guarded, ThreadRule, violation
from tensorrt_llm._double.profile import DOUBTS, PROFILE
from tensorrt_llm._double.queues import running_loop
from tensorrt_llm._double.requests import (
    PreprocessedInputs,
    check_vocabulary,
    max_tokens_of,
    prompt_of,
    refusal_of,
    work_arguments,
)
from tensorrt_llm._double.retention import KvCacheRetentionConfig
from tensorrt_llm._double.signatures import documented
from tensorrt_llm._double.stats import IterationResult, StatsFeed
from tensorrt_llm._double.tokenizer import Incremental, load_tokenizer
from tensorrt_llm._double.work import Work
from tensorrt_llm._double.workers import Workers
from tensorrt_llm.executor.result import GenerationResult, Response
from tensorrt_llm.executor.utils import HAS_DEAD_ERROR, EngineDeadError, RequestError
from tensorrt_llm.sampling_params import SamplingParams

__all__ = ["LLM", "RequestOutput"]

logger = logging.getLogger("tensorrt_llm")
_ = arg_rules, spec_rules
_FIRST_ID = 2
_MAYBE_SUBMIT = {"RequestError": RequestError, "ValueError": ValueError, "RuntimeError": RuntimeError}


class RequestOutput(GenerationResult):
    """What generate_async returns."""


class BaseLLM(Guarded):
    _ARGS: ClassVar[type[Config]] = TorchLlmArgs
    _OTHERS: ClassVar[Mapping[str, Any]] = {}

    @documented
    def __init__(self, **given: Any) -> None:
        self._engine: Engine | None = None
        session = given.pop("_mpi_session", None)
        given.pop("executor_cls", None)
        self._check_names(given)
        try:
            self._args = self._ARGS(**given)
        except ValueError as error:
            logger.error("%s", error)
            raise
        limits, world = self._load()
        watch = startup.check_world(world, session)
        startup.wait_for_weights()
        count = int(BEHAVIOUR.get("workers"))
        self._workers = Workers(count) if count and watch is None else None
        if self._workers is not None:
            watch = self._workers.are_alive
        self._limits = limits
        self._thread = ThreadRule()
        self._loop: Any = None
        self._feed: StatsFeed | None = None
        self._next_id = _FIRST_ID
        self._llm_id = f"{socket.gethostname()}-{os.getpid()}-{int(time.time() * 1000)}"
        self._engine = Engine(limits)
        self._engine.start(watch)
        atexit.register(_at_exit, weakref.ref(self))

    # what a user may read

    @property
    def args(self) -> Config:
        return self._args

    @property
    def llm_id(self) -> str:
        return self._llm_id

    @property
    def tokenizer(self) -> Any:
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    # requests

    @documented
    def generate_async(self, **given: Any) -> RequestOutput:
        self._thread.enter("generate_async")
        engine = self._live_engine()
        params = self._params(given["sampling_params"])
        prompt = prompt_of(given["inputs"], params, self._tokenizer)
        check_vocabulary(prompt.ids, self._vocab_size)
        self._check_request(given, params, len(prompt.ids))
        self._order_of_a_test()
        max_tokens = max_tokens_of(params, len(prompt.ids), self._limits)
        disaggregated = given["disaggregated_params"]
        if disaggregated is not None and disaggregated.request_type == "context_only":
            max_tokens = min(1, max_tokens)
        result: RequestOutput = RequestOutput._make(
            request_id=self._next_id,
            prompt=prompt.text,
            prompt_ids=prompt.ids,
            params=params,
            streaming=given["streaming"],
            executor=engine,
            tokenizer=self._decoder(params),
            thread=self._thread,
        )
        self._next_id += 1
        self._start_stats(engine)
        refusal = refusal_of(params, len(prompt.ids), max_tokens, self._limits, self._args)
        if refusal is not None:
            result._put(Response(error=RequestError(refusal)))
            return result
        lora = given["lora_request"]
        engine.submit(
            Work.of(
                id=result._id,
                streaming=given["streaming"],
                salt=(given["cache_salt"], lora.adapter_id if lora is not None else None),
                retention=given["kv_cache_retention_config"],
                priority=given.get("priority", 0.5),
                send=result._put,
                **work_arguments(params, prompt, max_tokens),
            )
        )
        return result

    @documented
    def generate(self, **given: Any) -> Any:
        if running_loop() is not None:
            violation("blocking-in-loop", "generate blocks the event loop it was called on")
        inputs = given.pop("inputs")
        given.pop("use_tqdm")
        is_one = not isinstance(inputs, list) or isinstance(inputs[0], int)
        prompts = [inputs] if is_one else inputs
        if isinstance(given.get("priority"), list) and len(given["priority"]) != len(prompts):
            raise ValueError(f"{len(given['priority'])} priorities for {len(prompts)} prompts")
        results = [
            self.generate_async(
                prompt, **{k: v[place] if isinstance(v, list) else v for k, v in given.items()}, streaming=False
            )
            for place, prompt in enumerate(prompts)
        ]
        for result in results:
            result.result()
        return results[0] if is_one else results

    if PROFILE.api == "P13":

        @documented
        def preprocess(self, **given: Any) -> PreprocessedInputs:
            params = self._params(given["sampling_params"])
            return PreprocessedInputs(prompt_token_ids=prompt_of(given["inputs"], params, self._tokenizer).ids)

        def encode(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("encode needs encode_only")

        def get_kv_cache_capacity(self, *args: Any, **kwargs: Any) -> Any:
            violation("unestablished", "the signature and answer of get_kv_cache_capacity are not known")

        @property
        def disaggregated_params(self) -> dict[str, Any]:
            return {}

    # statistics

    @documented
    def get_stats(self, *, timeout: float) -> list[dict[str, Any]]:
        self._thread.enter("get_stats")
        return [] if self._feed is None else self._feed.drain(timeout)

    @documented
    def get_stats_async(self, *, timeout: float) -> IterationResult:
        self._thread.enter("get_stats_async")
        return IterationResult(None) if self._feed is None else self._feed.iterate(timeout)

    @documented
    def get_kv_cache_events(self, *, timeout: float) -> list[dict[str, Any]]:
        self._thread.enter("get_kv_cache_events")
        assert self._feed is not None, "get_kv_cache_events before the first submission"
        engine = self._live_engine()
        if self._args.kv_cache_config.event_buffer_max_size <= 0:  # type: ignore[attr-defined]
            return []
        events, engine.pool.events = engine.pool.events, []
        return [{"event_id": place, "data": event} for place, event in enumerate(events)]

    @documented
    def get_kv_cache_events_async(self, *, timeout: float) -> Any:
        violation("not-doubled", "the double has no asynchronous KV events")

    # end

    @documented
    def shutdown(self) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        if self._feed is not None:
            self._feed.close()
        engine.close_requests()
        engine.shutdown()
        if self._workers is not None:
            self._workers.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()

    def __del__(self) -> None:
        _at_exit(lambda: self)

    def __getstate__(self) -> Any:
        raise RuntimeError("an LLM cannot be pickled")

    def __reduce__(self) -> Any:
        raise RuntimeError("an LLM cannot be pickled")

    # the package's side

    def _check_names(self, given: Mapping[str, Any]) -> None:
        known = {name for at in PROFILE.arg_states for name in field_names(self._ARGS, at)}
        foreign = sorted(set(given) & (set(self._OTHERS) - known))
        if foreign and PROFILE.has_engines:
            raise ValueError(f"{', '.join(foreign)}: for the TensorRT backend only, see tensorrt_llm._tensorrt_engine")
        for key in given:
            if key not in known:
                raise ValueError(f"{type(self).__name__} got invalid argument: {key}")

    def _load(self) -> tuple[Limits, int]:
        raise NotImplementedError

    def _check_request(self, given: Mapping[str, Any], params: Any, prompt_tokens: int) -> None:
        raise NotImplementedError

    def _live_engine(self) -> Engine:
        engine = self._engine
        if engine is None:
            raise RuntimeError("LLM is shutting down")
        loop = running_loop()
        if loop is not None and self._loop is not None and loop is not self._loop:
            violation("second-loop", "an LLM was used from two event loops")
        self._loop = self._loop or loop
        if engine.is_dead and HAS_DEAD_ERROR:
            raise EngineDeadError("the engine of the double is dead")
        if engine.is_dead and BEHAVIOUR.get("dead_after_submit") == "raise":
            raise RuntimeError("a worker of the executor died")
        fatal = BEHAVIOUR.fresh("fatal_error")
        if fatal:
            self.shutdown()
            raise RuntimeError(str(fatal))
        return engine

    def _params(self, given: Any) -> Any:
        if given is None:
            given = SamplingParams()
        if not isinstance(given, SamplingParams):
            raise TypeError(f"sampling_params must be SamplingParams, not {type(given).__name__}")
        if given.end_id is None:
            if self._tokenizer is None:
                raise ValueError("end_id is needed where the LLM has no tokenizer")
            given._setup(self._tokenizer)
        given.return_perf_metrics = given.return_perf_metrics or self._args.return_perf_metrics  # type: ignore[attr-defined]
        return given

    def _decoder(self, params: Any) -> Any:
        return None if self._tokenizer is None else Incremental(self._tokenizer, params.skip_special_tokens)

    def _start_stats(self, engine: Engine) -> None:
        if self._feed is None:
            self._feed = StatsFeed(engine.take_rows)
        self._feed.rearm()

    def _common_checks(self, given: Mapping[str, Any]) -> None:
        priority = given.get("priority", 0.5)
        if not 0 <= priority <= 1:
            raise ValueError(f"priority {priority} is not from 0 to 1")
        retention = given["kv_cache_retention_config"]
        if retention is not None and not isinstance(retention, KvCacheRetentionConfig):
            raise TypeError(f"kv_cache_retention_config is a {type(retention).__name__}")

    @staticmethod
    def _order_of_a_test() -> None:
        order = BEHAVIOUR.take("submit_error")
        if order is not None:
            raise _MAYBE_SUBMIT[order.get("kind", "RequestError")](order["message"])


class LLM(BaseLLM):
    """On the PyTorch backend."""

    _ARGS = TorchLlmArgs
    _OTHERS = TRT

    def _load(self) -> tuple[Limits, int]:
        args: Any = self._args
        config = startup.model_folder(args.model)
        self._tokenizer = None if args.skip_tokenizer_init else load_tokenizer(args.tokenizer, Path(args.model))
        self._vocab_size = config.get("vocab_size")
        return startup.torch_limits(args, config), (
            args.tensor_parallel_size * args.pipeline_parallel_size * args.context_parallel_size
        )

    def _check_request(self, given: Mapping[str, Any], params: Any, prompt_tokens: int) -> None:
        self._common_checks(given)
        limit = self._limits.max_num_tokens
        if not self._limits.chunks_prefill and prompt_tokens > limit:
            kind = DOUBTS.long_prompt_error or PROFILE.long_prompt_error
            raise _MAYBE_SUBMIT[kind](f"the prompt has {prompt_tokens} tokens, max_num_tokens is {limit}")


def _at_exit(reference: Any) -> None:
    llm = reference()
    if llm is None:
        return
    engine = object.__getattribute__(llm, "__dict__").pop("_engine", None)
    llm.__dict__["_engine"] = None
    if engine is not None:
        engine.shutdown(None if BEHAVIOUR.get("exit_waits") else 0.5)
        workers = llm.__dict__.get("_workers")
        if workers is not None:
            workers.close()
