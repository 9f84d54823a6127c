"""What a call of generate_async returns: bound to one loop, mutated in place, one response for each step."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tensorrt_llm._double.guard import Guarded, violation
from tensorrt_llm._double.queues import ResultQueue, running_loop

__all__ = ["CompletionOutput", "GenerationResult", "Logprob", "Response"]

logger = logging.getLogger("tensorrt_llm")


@dataclass(slots=True)
class Logprob:
    logprob: float
    rank: int | None = None


@dataclass(slots=True)
class CompletionOutput(Guarded):
    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[Any] = field(default_factory=list)
    prompt_logprobs: list[Any] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    generation_logits: Any = None
    additional_context_outputs: Any = None
    additional_generation_outputs: Any = None
    disaggregated_params: Any = None
    request_perf_metrics: Any = None
    _postprocess_result: Any = None
    _last_text_len: int = field(default=0, init=False, repr=False)
    _last_token_ids_len: int = field(default=0, init=False, repr=False)
    _last_logprobs_len: int = field(default=0, init=False, repr=False)

    @property
    def length(self) -> int:
        return len(self.token_ids)

    @property
    def text_diff(self) -> str:
        return self.text[self._last_text_len :]

    @property
    def token_ids_diff(self) -> list[int]:
        return self.token_ids[self._last_token_ids_len :]

    @property
    def logprobs_diff(self) -> list[Any]:
        return self.logprobs[self._last_logprobs_len :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """From the engine. `tokens` are new ones by sequence, or all of them where `is_whole`."""

    tokens: Mapping[int, list[int]] = field(default_factory=dict)
    is_whole: bool = False
    logprobs: Mapping[int, list[Any]] = field(default_factory=dict)
    prompt_logprobs: list[Any] | None = None
    cumulative: Mapping[int, float] = field(default_factory=dict)
    finish: Mapping[int, str] = field(default_factory=dict)
    """END_ID, STOP_WORDS, LENGTH or CANCELLED, by sequence."""
    is_final: bool = False
    iteration: int = 0
    cached_tokens: int = 0
    metrics: Any = None
    error: BaseException | None = None


class GenerationResult(Guarded):
    _made_by_package = False

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise RuntimeError(f"{type(self).__name__} is made by LLM, not by its users")

    @classmethod
    def _make(cls, **state: Any) -> Any:
        self = object.__new__(cls)
        self._start(**state)
        return self

    def _start(
        self,
        *,
        request_id: int,
        prompt: str | None,
        prompt_ids: list[int],
        params: Any,
        streaming: bool,
        executor: Any,
        tokenizer: Any,
        thread: Any,
    ) -> None:
        self._id, self._prompt, self._prompt_ids = request_id, prompt, prompt_ids
        self._params, self._streaming, self._tokenizer = params, streaming, tokenizer
        self._executor = weakref.ref(executor)
        self._thread = thread
        self._queue = ResultQueue(running_loop())
        self._outputs = [CompletionOutput(index) for index in range(params.best_of)]
        self._done = self._aborted = self._failed = False
        self._reader: Any = None
        self._stats: Mapping[str, Any] = {}
        self.disaggregated_params: Any = None
        self.cached_tokens = 0
        self.decoding_iter = 0
        self.avg_decoded_tokens_per_iter: float | None = None
        self.metrics_dict: dict[str, Any] = {}

    # what a user may read

    @property
    def request_id(self) -> int:
        return self._id

    @property
    def prompt(self) -> str | None:
        return self._prompt

    @property
    def prompt_token_ids(self) -> list[int]:
        return self._prompt_ids

    @property
    def sampling_params(self) -> Any:
        return self._params

    @property
    def context_logits(self) -> None:
        return None

    @property
    def finished(self) -> bool:
        self._not_failed("finished")
        return self._done

    @property
    def outputs(self) -> list[CompletionOutput]:
        self._not_failed("outputs")
        params = self._params
        if params.use_beam_search or params.n == params.best_of:
            return list(self._outputs[: params.n])
        best = sorted(self._outputs, key=_score, reverse=True)
        for index, output in enumerate(best):
            output.index = index
        return best[: params.n]

    def abort(self) -> None:
        self._thread.enter("abort")
        if self._done:
            logger.warning("request %d has finished already; abort has no effect", self._id)
            return
        executor: Any = self._executor()
        executor.abort(self._id)  # AttributeError once the LLM is gone
        self._aborted = True

    def aborted(self) -> bool:
        return self._aborted

    def clear_logprob_params(self) -> None:
        self._params.logprobs = self._params.prompt_logprobs = None

    def record_stats(self, output: CompletionOutput, stats: Mapping[str, Any] | None = None) -> None:
        """Kept for the surface: the double fills metrics_dict with the final response."""

    # waiting

    def result(self, timeout: float | None = None) -> Any:
        del timeout  # ignored by the releases that the profiles stand for
        self._thread.enter("result")
        while not self._done:
            self._not_failed("result")
            self._handle(self._queue.get_blocking())
        return self

    async def aresult(self) -> Any:
        while not self._done:
            await self._next()
        return self

    def __await__(self) -> Generator[Any, None, Any]:
        return self.aresult().__await__()

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        self._thread.enter("iteration")
        self._not_failed("iteration")
        if self._done:
            raise StopIteration
        self._handle(self._queue.get_blocking())
        return self

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        self._not_failed("iteration")
        if self._done:
            raise StopAsyncIteration
        await self._next()
        return self

    def __hash__(self) -> int:
        return hash(self._id)

    def __eq__(self, other: object) -> bool:
        return self is other

    # the package's side

    async def _next(self) -> None:
        self._thread.enter("waiting for a result")
        self._not_failed("waiting")
        if self._queue.loop is not None and self._queue.loop is not asyncio.get_running_loop():
            violation("second-loop", f"request {self._id} is read on another event loop than it was made on")
        task = asyncio.current_task()
        if self._reader is not None and self._reader is not task and not self._reader.done():
            violation("two-readers", f"two tasks wait for request {self._id}")
        self._reader = task
        try:
            response = await self._queue.get()
        finally:
            self._reader = None
        self._handle(response)

    def _put(self, response: Response) -> None:
        self._queue.put(response)

    def _not_failed(self, what: str) -> None:
        if self._failed:
            violation("after-exception", f"{what} of request {self._id} after it raised")

    def _handle(self, response: Response) -> None:
        if response.error is not None:
            self._failed = True
            raise response.error
        self._done = response.is_final
        self.decoding_iter = response.iteration
        self.cached_tokens = response.cached_tokens
        for index in sorted({*response.tokens, *response.finish}):
            self._extend(self._outputs[index], response, index)
        if response.metrics is not None:
            self._take_metrics(response.metrics)
        self._write_text()

    def _extend(self, output: CompletionOutput, response: Response, index: int) -> None:
        new = response.tokens.get(index, [])
        output._last_token_ids_len = len(output.token_ids)
        output._last_logprobs_len = len(output.logprobs)
        if response.is_whole:
            output.token_ids = list(new)
            output.logprobs = list(response.logprobs.get(index, []))
        else:
            output.token_ids.extend(new)
            output.logprobs.extend(response.logprobs.get(index, []))
        if response.prompt_logprobs is not None:
            output.prompt_logprobs = response.prompt_logprobs
        output.cumulative_logprob = response.cumulative.get(index, output.cumulative_logprob)
        reason = response.finish.get(index)
        if reason == "CANCELLED":
            output.finish_reason = "cancelled"
        elif reason is not None and self._done:
            self._close(reason, output)

    def _close(self, reason: str, output: CompletionOutput) -> None:
        output.finish_reason = {"END_ID": "stop", "STOP_WORDS": "stop", "LENGTH": "length", "TIMED_OUT": "timeout"}[
            reason
        ]
        if reason != "STOP_WORDS":
            return
        for cause, ids in self._params._stop_words():
            if output.token_ids[-len(ids) :] == ids:
                output.stop_reason = cause
                if not self._params.include_stop_str_in_output:
                    output.token_ids = output.token_ids[: -len(ids)]
                return

    def _take_metrics(self, metrics: Any) -> None:
        for output in self._outputs:
            output.request_perf_metrics = metrics.perf
        self.metrics_dict = dict(metrics.seconds)

    def _write_text(self) -> None:
        if self._tokenizer is None or not self._params.detokenize:
            return
        for output in self._outputs:
            output._last_text_len = len(output.text)
            if output.stop_reason is None or not isinstance(output.stop_reason, str):
                output.text = self._tokenizer.decode_stable(output.token_ids, is_final=self._done)
            self._cut_text(output)

    def _cut_text(self, output: CompletionOutput) -> None:
        stops = [self._params.stop] if isinstance(self._params.stop, str) else self._params.stop or []
        for stop in stops:
            at = output.text.find(stop)
            if at < 0:
                continue
            keep = at + len(stop) if self._params.include_stop_str_in_output else at
            output.text = output.text[:keep]
            output.finish_reason, output.stop_reason = "stop", stop
            if not self._done:
                self.abort()
                self._done = True
            return


def _score(output: CompletionOutput) -> float:
    return float("-inf") if output.cumulative_logprob is None else output.cumulative_logprob
