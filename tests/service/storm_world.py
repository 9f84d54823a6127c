"""Everything at once, for `test_storm`: an engine whose text can be foretold, another model, policies of all kinds."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from typing import Any

from tests.service.fakes import RecordingSink, engine_info

from seekserve_backend.answers import Chunk, Inbound
from seekserve_backend.contract.policy import Policy
from seekserve_backend.contract.refusal import ErrorCode, ErrorLine
from seekserve_backend.engines.port import EndEvent, EndReason, EngineRequest, EngineStepReport, TokenEvent
from seekserve_backend.engines.synthetic import SyntheticEngine

OTHER = "int8"
CLASSES = ("chat", "batch", "offline")


def foretold(prompt: bytes, tokens: int) -> str:
    """What the engine answers. A token hangs on the prompt's first byte and on its own place, so an answer that is read
    again as a prompt goes on as it would have."""
    return "".join(_letter(prompt[0], len(prompt) + n) for n in range(tokens))


def _letter(first: int, place: int) -> str:
    return chr(ord("a") + (7 * first + 3 * place + place // 26) % 26)


class StormSink(RecordingSink):
    """Ignores pieces behind the last answer, as every sink does, but not a second last one."""

    def send(self, chunk: Chunk) -> None:
        if chunk.finish_reason is not None or not self.done.is_set():
            super().send(chunk)


class Faults:
    """One at a time, each carried out once; shared by all engines of a service."""

    def __init__(self) -> None:
        self.next: str | None = None

    def strike(self, *kinds: str) -> str | None:
        found = self.next
        if found not in kinds:
            return None
        self.next = None
        return found


class StormEngine(SyntheticEngine):
    def __init__(self, faults: Faults) -> None:
        super().__init__(engine_info(), token_id=0, chunk_tokens=32)
        self._prompts: dict[str, list[int]] = {}
        self._storm = faults

    def add(self, request: EngineRequest) -> None:
        if self._storm.strike("add"):
            raise MemoryError("this one does not fit (storm)")
        super().add(request)
        self._prompts[request.id] = list(request.prompt_ids)

    def step(self, timeout_s: float) -> EngineStepReport:
        if self._running:
            threading.Event().wait(0.0005)
            if self._storm.strike("raise"):
                raise RuntimeError("the engine broke (storm)")
        report = super().step(timeout_s)
        ends = list(report.ends)
        if report.tokens and self._storm.strike("end"):
            failed = report.tokens[-1].id
            self._remove(failed)
            ends = [end for end in ends if end.id != failed]
            ends.append(EndEvent(id=failed, reason=EndReason.FAILED, message="this one failed (storm)"))
        tokens = tuple(TokenEvent(id=event.id, token_ids=(self._say(event.id),)) for event in report.tokens)
        return EngineStepReport(
            step_ms=report.step_ms + 0.5,
            batch_size=report.batch_size,
            prefill_tokens=report.prefill_tokens,
            tokens=tokens,
            ends=tuple(ends),
        )

    def _say(self, id: str) -> int:
        said = self._prompts[id]
        said.append(ord(_letter(said[0], len(said))))
        return said[-1]


class OtherStream:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._is_cancelled = threading.Event()

    def __iter__(self) -> Iterator[Chunk | ErrorLine]:
        fate = self._random.choice(["good", "good", "good", "full", "invalid", "breaks", "fails", "ends", "silent"])
        if fate == "full":
            yield ErrorLine(code=ErrorCode.OVERLOADED, reason="full (storm)", retry_after_ms=0)
            return
        if fate == "invalid":
            yield ErrorLine(code=ErrorCode.INVALID, reason="no such class (storm)", field="request_class")
            return
        for _ in range(self._random.randrange(3)):
            self._is_cancelled.wait(0.001)
            yield Chunk(text="?", completion_tokens=1, served_by=OTHER)
        if fate == "silent":
            self._is_cancelled.wait(0.05)
        if self._is_cancelled.is_set() or fate in ("breaks", "silent"):
            raise ConnectionError("the call broke (storm)")
        if fate == "fails":
            yield ErrorLine(code=ErrorCode.FAILED, reason="the other engine failed (storm)")
        if fate == "good":
            yield Chunk(text="!", completion_tokens=2, finish_reason="stop", served_by=OTHER)

    def cancel(self) -> None:
        self._is_cancelled.set()


class OtherModel:
    """A VariantPort."""

    def __init__(self, seed: int) -> None:
        self._seeds = itertools.count(1000 * seed)

    def open(self, model: str, inbound: Inbound, *, max_tokens: int, deadline_ms: int | None) -> OtherStream:
        assert not inbound.resumable, "a stream is kept where it is made"
        return OtherStream(next(self._seeds))


def some_policy(rng: random.Random, kind: str) -> Policy:
    base: dict[str, Any] = {"max_queue_requests": rng.choice([3, 40]), "deadline_ms": rng.choice([25, 5000])}
    classes: dict[str, dict[str, Any]] = {
        "chat": {**base, "priority": 0, "sampling": {"top_k": {"max": 5, "default": 2}}},
        "batch": {**base, "priority": 1, "max_prompt_tokens": 6, "max_output_tokens": 12},
        "offline": {**base, "priority": 2, "is_offline": True},
    }
    if rng.random() < 0.5:
        classes["batch"] |= {"max_running": 1, "queue_timeout_ms": 15}
        classes["chat"] |= {"kv_reserved_share": 0.25}
    if rng.random() < 0.3:
        del classes["offline"]
    data: dict[str, Any] = {
        "kind": kind,
        "name": f"{kind}-{rng.randrange(10**9)}",
        "default_class": "chat",
        "classes": classes,
        "routes": [{"class": "batch", "endpoint": "/v1/batch/*"}],
        "client_class": rng.choice(["wins", "bounded"]),
        "bucket_edges_tokens": rng.choice([[4, 8], [16]]),
        "repeat_cache": {"enabled": rng.random() < 0.8, "max_bytes": rng.choice([0, 2000, 100_000])},
        "resume": {
            "work_while_away": rng.random() < 0.4,
            "resume_ttl_s": rng.choice([0.01, 30.0]),
            "max_streams": rng.choice([2, 256]),
        },
        "breaker": {"faults_in_a_row": rng.choice([1, 3]), "pause_s": 0.02, "most_pause_s": 0.03, "probes": 1},
    }
    if kind == "paced":
        data["paced"] = {"rung_up_s": 0.0, "rung_down_s": 0.0, "start_output_tokens": 4.0}
        data["rungs"] = [{"at": 0.0, "route_to": OTHER}] if rng.random() < 0.5 else []
    if kind in ("static", "fcfs"):
        data["max_running"] = rng.choice([1, 4])
    return Policy.from_data(data, "storm")
