"""TensorRT-LLM's LLM API as an `Engine`: one event loop thread that owns the LLM object, one mailbox back to `step`.

A request's blocks for prompt + max_tokens are reserved here, as GUARANTEED_NO_EVICT does in the engine, so that what is
added never waits for memory; under MAX_UTILIZATION those that it has filled so far count. Cancelled requests end for us
at once; the engine may need some steps more to let go, and queues what it cannot place.
"""

from __future__ import annotations

import copy
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...contract.bundle import Bundle
from ..port import (
    EndEvent,
    EndReason,
    EngineError,
    EngineInfo,
    EngineRequest,
    EngineStats,
    EngineStepReport,
    TokenEvent,
)
from .arguments import engine_info, read_setup
from .devices import check_leads
from .driver import Driver
from .flight import Flight
from .loop_thread import LoopThread, run_with_deadline
from .mailbox import Mailbox
from .package import Package, accepted, load_package
from .processes import Workers, use_right_python
from .report import Tally, build_report
from .sampling import guide_keywords, request_problems, retention_of, sampling_keywords, stop_ids_of
from .silence import SILENCE_S
from .statistics import Statistics

__all__ = ["TrtllmEngine"]

_log = logging.getLogger(__name__)
# Together below the time that tritonserver gives a model to unload.
_SHUTDOWN_S = 12.0
_GRACE_S = 3.0


class TrtllmEngine:
    """See `engines/port.py`. The constructor loads the weights, which takes minutes, or raises EngineError."""

    def __init__(
        self, bundle_dir: Path, bundle: Bundle, *, silence_s: float = SILENCE_S, shutdown_s: float = _SHUTDOWN_S
    ) -> None:
        setup = read_setup(bundle_dir, bundle)
        assert bundle.trtllm is not None, "read_setup has seen it"
        self._spec = bundle.trtllm
        python = use_right_python()
        check_leads(os.environ)
        self._package = load_package(bundle.engine, self._spec.version)
        self._setup = setup
        self._info = engine_info(bundle, setup)
        self._workers = Workers()
        self._llm = self._start(python)
        self._workers.note_ranks()
        self._statistics = Statistics(
            planned_blocks=bundle.kv.capacity_blocks,
            block_tokens=bundle.kv.block_tokens,
            pools=bundle.parallel.tp if bundle.parallel.attention_dp else 1,
        )
        self._mailbox = Mailbox()
        self._driver = Driver(
            self._llm,
            self._package,
            mailbox=self._mailbox,
            workers=self._workers,
            statistics=self._statistics if setup.has_statistics else None,
            silence_s=silence_s,
        )
        self._loop = LoopThread("seekserve-trtllm")
        self._flights: dict[str, Flight] = {}
        self._cancelled: list[str] = []
        self._reserved_blocks = 0
        self._tally = Tally()
        self._shutdown_s = shutdown_s
        self._is_closed = False
        self._loop.call(self._driver.start)

    @property
    def info(self) -> EngineInfo:
        return self._info

    def can_add(self, request: EngineRequest) -> bool:
        free = self._statistics.total_blocks - self._reserved_blocks
        return len(self._flights) < self._info.max_batch_size and self._blocks(request) <= free

    def add(self, request: EngineRequest) -> None:
        self._check_alive()
        problems = request_problems(request, self._info)
        if request.id in self._flights:
            problems.append("a request with this id is running")
        if problems:
            raise ValueError(f"request {request.id}: " + "; ".join(problems))
        if not self.can_add(request):
            raise ValueError(
                f"request {request.id} needs a batch slot and {self._blocks(request)} KV blocks; taken are "
                f"{len(self._flights)} of {self._info.max_batch_size} slots and {self._reserved_blocks} of "
                f"{self._statistics.total_blocks} blocks: ask can_add first"
            )
        flight = self._flight(request)
        self._tally.begin(is_first=not self._flights)
        self._flights[request.id] = flight
        self._reserved_blocks += flight.blocks
        self._loop.call(self._driver.submit, flight)

    def cancel(self, request_id: str) -> None:
        if request_id in self._flights and request_id not in self._cancelled:
            self._cancelled.append(request_id)

    def step(self, timeout_s: float) -> EngineStepReport:
        """One report of what came since the last, at once when there is something and after `timeout_s` when not."""
        self._check_alive()
        ends = []
        for request_id in self._cancelled:
            flight = self._release(request_id)
            if flight is not None:
                self._loop.call(self._driver.abort, flight)
                ends.append(EndEvent(id=request_id, reason=EndReason.CANCELLED))
        self._cancelled.clear()
        arrivals = self._mailbox.take(0.0 if ends else timeout_s)
        # What is late belongs to a request that was cancelled; its id may be another's by now.
        current = [a for a in arrivals if self._flights.get(a.flight.request.id) is a.flight]
        report = build_report(current, ends, self._tally)
        if self._info.may_pause:
            self._note_growth(report.tokens)
        for end in report.ends:
            self._release(end.id)
        return report

    def stats(self) -> EngineStats:
        total = self._statistics.total_blocks
        tally = self._tally
        running = len(self._flights)
        return EngineStats(
            running=running,
            kv_total_blocks=total,
            kv_free_blocks=max(0, total - self._reserved_blocks),
            steps=tally.steps,
            last_step_ms=tally.last_step_ms,
            last_batch_size=tally.last_batch_size,
            tokens_out=tally.tokens_out,
            prompt_tokens_in=tally.prompt_tokens_in,
            kv_reused_blocks=self._statistics.reused_blocks,
            queued=self._statistics.queued(self._loop.time(), is_idle=not running),
        )

    def close(self) -> None:
        """Idempotent. Takes its deadline at most, then kills what is left of the workers."""
        if self._is_closed:
            return
        self._is_closed = True
        self._flights.clear()
        self._reserved_blocks = 0
        try:
            self._loop.run(self._driver.stop(), _GRACE_S)
            # A broken engine is not asked to join its workers: up to 1.2 it would wait for them without end.
            deadline_s = self._shutdown_s if self._mailbox.fault is None else min(self._shutdown_s, _GRACE_S)
            run_with_deadline(self._llm.shutdown, deadline_s, name="seekserve-trtllm-shutdown")
        except Exception as error:
            _log.warning("TensorRT-LLM did not shut down by itself (%s: %s)", type(error).__name__, error)
        killed = self._workers.kill_left(grace_s=_GRACE_S)
        if killed:
            _log.warning("%d processes that TensorRT-LLM left behind were ended", killed)
        self._loop.close(_GRACE_S)

    def _start(self, python: str) -> Any:
        """In a thread of its own: the constructor blocks, and only a thread can be given up when it never returns."""
        arguments = copy.deepcopy(dict(self._setup.arguments))
        _log.info("starting TensorRT-LLM %s, workers run %s", self._package.version, python)
        started = time.monotonic()
        try:
            llm = run_with_deadline(
                lambda: _construct(self._package, arguments),
                self._spec.start_timeout_s,
                name="seekserve-trtllm-start",
            )
        except Exception as error:
            self._workers.kill_left(grace_s=_GRACE_S)
            raise EngineError(
                f"TensorRT-LLM {self._package.version} did not start with {self._setup.arguments['model']}: "
                f"{_chain(error)}"
            ) from error
        _log.info("TensorRT-LLM is up after %.0f s", time.monotonic() - started)
        return llm

    def _flight(self, request: EngineRequest) -> Flight:
        sampling = sampling_keywords(request, self._info, model_has_defaults=self._setup.model_has_defaults)
        if (guide := request.sampling.guide) is not None:
            sampling["guided_decoding"] = self._package.guided_decoding(**guide_keywords(guide))
        keywords: dict[str, Any] = {
            "sampling_params": self._package.sampling_params(**sampling),
            # Beams answer at their end, and an engine of trtllm-build crashes when a stream with log probabilities is
            # aborted (TensorRT-LLM #10810).
            "streaming": request.beam_width == 1
            and not (request.wants_logprobs and self._info.kind == "trtllm-engine"),
        }
        retention, config_class = self._spec.retention, self._package.retention_config
        if retention is not None and config_class is not None:
            keywords["kv_cache_retention_config"] = retention_of(retention, config_class, len(request.prompt_ids))
        return Flight(
            request,
            blocks=self._blocks(request),
            stop_ids=stop_ids_of(request, self._info),
            keywords=accepted(self._llm.generate_async, keywords),
            is_streamed=bool(keywords["streaming"]),
        )

    def _release(self, request_id: str) -> Flight | None:
        flight = self._flights.pop(request_id, None)
        if flight is not None:
            self._reserved_blocks -= flight.blocks
        return flight

    def _note_growth(self, events: Iterable[TokenEvent]) -> None:
        for event in events:
            flight = self._flights[event.id]
            flight.made_tokens += len(event.token_ids)
            had, flight.blocks = flight.blocks, self._blocks(flight.request, flight.made_tokens)
            self._reserved_blocks += flight.blocks - had

    def _blocks(self, request: EngineRequest, made_tokens: int = 0) -> int:
        """Beams share the prompt's blocks and have their own for what they produce."""
        block_tokens = self._info.block_tokens
        answer_tokens = min(made_tokens + 1, request.max_tokens) if self._info.may_pause else request.max_tokens
        one = -(-(len(request.prompt_ids) + answer_tokens) // block_tokens)
        return one + (request.beam_width - 1) * (1 + -(-answer_tokens // block_tokens))

    def _check_alive(self) -> None:
        if self._is_closed:
            raise EngineError("this engine is closed")
        if self._mailbox.fault is not None:
            self._flights.clear()
            self._reserved_blocks = 0
            raise self._mailbox.fault


def _construct(package: Package, arguments: dict[str, Any]) -> Any:
    if package.read_args is not None:
        arguments = package.read_args(arguments)
    return package.llm(**arguments)


def _chain(error: BaseException) -> str:
    """The error and its causes: the package's own text says only that a worker failed."""
    texts = []
    cause: BaseException | None = error
    while cause is not None:
        texts.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__
    return "; because of ".join(texts)
