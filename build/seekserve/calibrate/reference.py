"""Steps of an engine in this process, through every batch size and several lengths: what a step model is fitted to.

For each batch size and length, requests are added one by one, so that their prompts are read beside decoding ones, and
then decode together. Answers never end by themselves (`min_tokens`), and a batch ends by cancelling it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .samples import StepSample

if TYPE_CHECKING:
    from seekserve_backend.engines.port import Engine

__all__ = ["measure_steps"]

_DECODE_STEPS = 6
_LENGTH_PARTS = (0.02, 0.2, 0.5, 0.9)
"""Of the longest prompt that a whole batch has room for."""

Progress = Callable[[int, int], None]
"""Batches measured, and all of them."""


@dataclass(slots=True)
class _Tracked:
    prompt_tokens: int
    read_tokens: int = 0
    made_tokens: int = 0

    @property
    def resident_tokens(self) -> int:
        return self.read_tokens + self.made_tokens


@dataclass(slots=True)
class _Batch:
    """One batch in the engine; knows what each step holds because one prompt at a time is read."""

    engine: Engine
    running: dict[str, _Tracked] = field(default_factory=dict)

    def step(self) -> StepSample | None:
        before = {name: (each.read_tokens, each.made_tokens) for name, each in self.running.items()}
        resident = sum(each.resident_tokens for each in self.running.values())
        report = self.engine.step(0.0)
        reading = [each for each in self.running.values() if each.read_tokens < each.prompt_tokens]
        chunks: tuple[tuple[int, int], ...] = ()
        if reading and report.prefill_tokens:
            chunks = ((reading[0].read_tokens, report.prefill_tokens),)
            reading[0].read_tokens += report.prefill_tokens
        decoded = 0
        for event in report.tokens:
            tracked = self.running[event.id]
            decoded += before[event.id][0] == tracked.prompt_tokens
            tracked.made_tokens += len(event.token_ids)
        for end in report.ends:
            self.running.pop(end.id, None)
        if report.batch_size == 0:
            return None
        return StepSample(decode_tokens=decoded, kv_tokens=resident, chunks=chunks, step_ms=report.step_ms)

    def is_reading(self) -> bool:
        return any(each.read_tokens < each.prompt_tokens for each in self.running.values())


def measure_steps(engine: Engine, *, seed: int = 0, repeats: int = 1, progress: Progress) -> list[StepSample]:
    """The first pass over all batches warms the machine up and is not counted."""
    samples: list[StepSample] = []
    cases = list(_cases(engine))
    chance = random.Random(seed)
    total = len(cases) * (repeats + 1)
    for round_number in range(repeats + 1):
        for n, (batch, prompt_tokens) in enumerate(cases):
            found = _measure_batch(engine, batch, prompt_tokens, f"{round_number}-{n}", chance)
            samples += found if round_number else ()
            progress(round_number * len(cases) + n + 1, total)
    return samples


def _cases(engine: Engine) -> Iterator[tuple[int, int]]:
    info = engine.info
    sizes = [1]
    while sizes[-1] < info.max_batch_size:
        sizes.append(min(2 * sizes[-1], info.max_batch_size))
    for batch in sizes:
        blocks = info.kv_total_blocks // batch
        room = min(info.max_seq_len_tokens, blocks * info.block_tokens) - _answer_tokens(batch)
        lengths = sorted({max(1, int(part * room)) for part in _LENGTH_PARTS} if room > 0 else set())
        for length in lengths:
            yield batch, length


def _answer_tokens(batch: int) -> int:
    """The first request decodes while all the others are read."""
    return _DECODE_STEPS + 8 * batch


def _measure_batch(
    engine: Engine, batch: int, prompt_tokens: int, name: str, chance: random.Random
) -> list[StepSample]:
    from seekserve_backend.engines.port import EngineRequest, Sampling

    samples: list[StepSample | None] = []
    state = _Batch(engine)
    answer = _answer_tokens(batch)
    for number in range(batch):
        ids = tuple(chance.randrange(engine.info.vocab_size) for _ in range(prompt_tokens))
        request = EngineRequest(
            id=f"calibrate-{name}-{number}", prompt_ids=ids, max_tokens=answer, sampling=Sampling(min_tokens=answer)
        )
        if not engine.can_add(request):
            break
        engine.add(request)
        state.running[request.id] = _Tracked(prompt_tokens)
        while state.is_reading():
            samples.append(state.step())
    samples += [state.step() for _ in range(_DECODE_STEPS)]
    for request_id in list(state.running):
        engine.cancel(request_id)
    engine.step(0.0)
    return [each for each in samples if each is not None]
