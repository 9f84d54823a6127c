"""A step-level engine in virtual time: in-flight batching, chunked prefill first come first read, a KV pool,
speculative tokens, noise, slow-downs and stalls.

A full pool is never reached where its callers reserve all that a request may come to (GUARANTEED_NO_EVICT); an engine
that may pause (MAX_UTILIZATION) then stops the request that began last and reads it again, answer and all, once there
is room. It is the plant of a simulation; the scheduler under test sees of it what it would see of a real engine.
Invariant: the KV tokens it holds are those of its requests, and never more than its pool.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from seekserve_backend.contract.step_model import StepModel

from .prefix_cache import PrefixCache

__all__ = ["Plant", "PlantOptions", "Step"]

_LEAST_NOISE = 0.2
_SLACK_TOKENS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantOptions:
    """How the engine differs from its step model."""

    chunk_tokens: int = 1024
    kv_tokens: int | None = None
    """Size of its pool; None: as much as it is asked for."""
    may_pause: bool = False
    slowdowns: tuple[tuple[float, float], ...] = ()
    """(from this second on, times slower than the model), ascending; 1 before the first."""
    noise: float = 0.0
    """Relative standard deviation of a step's time."""
    stalls: tuple[tuple[float, float], ...] = ()
    """(at this second, seconds): the step that begins there or next takes so much longer."""
    failures_s: tuple[float, ...] = ()
    """At each of these seconds the engine raises: all that it holds is lost."""
    draft_tokens: int = 0
    """Speculative tokens checked in each step by each decoding request."""
    acceptance: float = 0.0
    """Chance of each draft token, given that those before it were accepted."""
    has_prefix_cache: bool = True
    seed: int = 0

    @property
    def tokens_per_step(self) -> float:
        """Mean that a decoding request gets out of one step."""
        p, k = self.acceptance, self.draft_tokens
        return 1.0 + k if p >= 1.0 else (1.0 - p ** (k + 1)) / (1.0 - p)

    @property
    def step_spread(self) -> float:
        """Variance of the same."""
        p, k = self.acceptance, self.draft_tokens
        chances = [p**n * (1.0 - p) for n in range(k)] + [p**k]
        mean = self.tokens_per_step
        return sum(chance * (1 + n - mean) ** 2 for n, chance in enumerate(chances))


class Step:
    """What one step brought."""

    __slots__ = ("decode_tokens", "decoding", "ends", "firsts", "ms", "prefill_tokens", "resumed_s")

    def __init__(self, ms: float, decoding: int, decode_tokens: int, prefill_tokens: int) -> None:
        self.ms = ms
        self.decoding = decoding
        """Requests that had their first token before it."""
        self.decode_tokens = decode_tokens
        self.prefill_tokens = prefill_tokens
        """Of prompts, for the first time: engines tell of no others."""
        self.firsts: list[str] = []
        self.ends: list[tuple[str, int]] = []
        """(id, tokens produced)"""
        self.resumed_s: list[float] = []
        """When each request was paused that goes on with this step."""


class _Reading:
    __slots__ = (
        "blocks", "has_begun", "id", "made_tokens", "output_tokens", "paused_s", "prompt_tokens", "read_tokens",
    )  # fmt: skip

    def __init__(self, id: str, prompt_tokens: int, output_tokens: int, read: int, blocks: Sequence[int]) -> None:
        self.id = id
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.read_tokens = read
        self.has_begun = False
        self.blocks = blocks
        self.made_tokens = 0
        """Of its answer, before it was paused."""
        self.paused_s: float | None = None

    @property
    def whole_tokens(self) -> int:
        """To be read in all: a paused request's own answer as well."""
        return self.prompt_tokens + self.made_tokens


class _Decoding:
    __slots__ = ("base_tokens", "first_step", "last_step", "output_tokens", "per_step", "prompt_tokens")

    def __init__(self, reading: _Reading, first_step: int, steps: int) -> None:
        self.prompt_tokens = reading.prompt_tokens
        self.output_tokens = reading.output_tokens
        self.first_step, self.last_step = first_step, first_step + steps
        self.base_tokens = reading.made_tokens + 1
        """Made when that step was over."""
        self.per_step = (reading.output_tokens - self.base_tokens) / steps if steps else 0.0

    def made(self, step: int) -> float:
        return self.base_tokens + self.per_step * (step - self.first_step)


class Plant:
    def __init__(self, model: StepModel, options: PlantOptions | None = None) -> None:
        self.options = options or PlantOptions()
        self._model = model
        self._random = random.Random(self.options.seed)
        self._reading: deque[_Reading] = deque()
        self._decoding: dict[str, _Decoding] = {}
        self._finish: list[tuple[int, str]] = []
        """(last step, id), with ids that were cancelled or paused still in it"""
        self._steps = 0
        self._rate = 0.0
        """Tokens that all decoding requests get out of a step."""
        self._owed_tokens = 0.0
        self._kv_tokens = 0.0
        self._base_ms: list[float] = []
        self._stalls = list(self.options.stalls)
        self.cache = PrefixCache()
        self.hit_tokens = 0
        self.pauses = self.reread_tokens = 0
        """Where the pool was too small for what ran, and what that cost."""

    def __len__(self) -> int:
        return len(self._reading) + len(self._decoding)

    @property
    def kv_tokens(self) -> float:
        """Held by decoding requests."""
        return self._kv_tokens

    def ids(self) -> list[str]:
        return [each.id for each in self._reading] + [*self._decoding]

    def add(
        self, id: str, prompt_tokens: int, output_tokens: int, cached_tokens: int = 0, blocks: Sequence[int] = ()
    ) -> None:
        """`blocks` are looked up in the plant's own cache; without them `cached_tokens` is taken at its word."""
        if not self.options.has_prefix_cache:
            cached_tokens, blocks = 0, ()
        elif blocks:
            cached_tokens = self.cache.match_tokens(blocks)
        cached = min(cached_tokens, prompt_tokens - 1)
        self.hit_tokens += cached
        self._reading.append(_Reading(id, prompt_tokens, max(output_tokens, 1), cached, blocks))

    def expected_hit_tokens(self, cached_tokens: int, blocks: Sequence[int]) -> int:
        """What a scheduler that remembers the prompts it has seen would expect the cache to hold."""
        if not self.options.has_prefix_cache:
            return 0
        return self.cache.match_tokens(blocks) if blocks else cached_tokens

    def cancel(self, id: str) -> int:
        """Tokens it had produced."""
        decoding = self._decoding.get(id)
        if decoding is None:
            reading = next(each for each in self._reading if each.id == id)
            self._reading.remove(reading)
            return reading.made_tokens
        return self._leave(id, decoding)

    def clear(self) -> list[tuple[str, int]]:
        """The engine starts anew: (id, tokens produced) of everything that is lost."""
        lost = [(each.id, each.made_tokens) for each in self._reading]
        self._reading.clear()
        lost += [(id, self._leave(id, self._decoding[id])) for id in [*self._decoding]]
        self.cache = PrefixCache()
        return lost

    def step(self, now: float) -> Step:
        """One step that begins at `now`; it must hold something."""
        if self.options.may_pause and self.options.kv_tokens is not None:
            self._make_room(self.options.kv_tokens, now)
        self._steps += 1
        decoding = len(self._decoding)
        prefill, reread, attention, read = self._read()
        ms = self._ms(decoding * (1 + self.options.draft_tokens) + prefill, attention, now)
        self._owed_tokens += self._rate
        made = int(self._owed_tokens + _SLACK_TOKENS)
        self._owed_tokens -= made
        self._kv_tokens += self._rate
        step = Step(ms, decoding, made, prefill - reread)
        for reading in read:
            self._start_decoding(reading)
            if reading.paused_s is None:
                step.firsts.append(reading.id)
            else:
                step.resumed_s.append(reading.paused_s)
                step.decode_tokens += 1
        self._end_finished(step)
        pool = self.options.kv_tokens
        assert pool is None or self._kv_tokens <= pool + 1.0, f"{self._kv_tokens:.0f} KV tokens in a pool of {pool}"
        return step

    def _read(self) -> tuple[int, int, float, list[_Reading]]:
        """(tokens read in this step, of which of paused requests, pairs for attention, prompts that are through)."""
        left, prefill, reread, pairs, taken = self.options.chunk_tokens, 0, 0, 0.0, 0
        pool = self.options.kv_tokens if self.options.may_pause else None
        through: list[_Reading] = []
        while self._reading and left > 0:
            head = self._reading[0]
            if pool is not None and not self._has_room(pool, taken, head):
                break
            head.has_begun = True
            prefix = head.read_tokens
            c = min(left, head.whole_tokens - prefix)
            pairs += 2.0 * prefix * c + c * c
            prefill += c
            reread += 0 if head.paused_s is None else c
            left -= c
            head.read_tokens = prefix + c
            taken += head.whole_tokens + 1
            if head.read_tokens < head.whole_tokens:
                break
            through.append(self._reading.popleft())
        return prefill, reread, pairs, through

    def _has_room(self, pool_tokens: float, taken_tokens: int, head: _Reading) -> bool:
        """Whether a pausing engine begins to read it: as a whole, and what decodes goes on beside it."""
        if head.has_begun or not (self._decoding or taken_tokens):
            return True
        return self._kv_tokens + self._rate + taken_tokens + head.whole_tokens + 1 <= pool_tokens

    def _make_room(self, pool_tokens: int, now: float) -> None:
        """For the tokens of the next step. Who began last goes first, and before all one whose prompt is half read."""
        begun = self._reading[0] if self._reading and self._reading[0].has_begun else None
        free_tokens = pool_tokens - self._kv_tokens - self._rate - (begun.whole_tokens + 1 if begun else 0)
        if begun and free_tokens < 0.0 and self._decoding:
            free_tokens += begun.whole_tokens + 1
            self._note_pause(begun.read_tokens)
            begun.read_tokens, begun.has_begun = 0, False
        while free_tokens < 0.0 and len(self._decoding) > 1:
            id = next(reversed(self._decoding))
            state = self._decoding[id]
            paused = _Reading(id, state.prompt_tokens, state.output_tokens, 0, ())
            held_tokens, rate = self._kv_tokens, self._rate
            paused.made_tokens = self._leave(id, state)
            paused.paused_s = now
            self._reading.appendleft(paused)
            self._note_pause(paused.whole_tokens)
            free_tokens += held_tokens - self._kv_tokens + rate - self._rate

    def _note_pause(self, tokens: int) -> None:
        self.pauses += 1
        self.reread_tokens += tokens

    def _start_decoding(self, reading: _Reading) -> None:
        steps = self._steps_for(reading.output_tokens - reading.made_tokens - 1)
        state = self._decoding[reading.id] = _Decoding(reading, self._steps, steps)
        self._rate += state.per_step
        self._kv_tokens += reading.prompt_tokens + state.base_tokens
        heapq.heappush(self._finish, (self._steps + steps, reading.id))
        if reading.blocks:
            pool = self.options.kv_tokens
            room = math.inf if pool is None else pool - self._kv_tokens
            self.cache.use(reading.blocks, room_tokens=min(room, 1e15))

    def _steps_for(self, tokens: int) -> int:
        """Steps until so many tokens are made: the sum of many lots, drawn as one."""
        if not self.options.draft_tokens or tokens <= 0:
            return max(tokens, 0)
        mean = self.options.tokens_per_step
        steps = tokens / mean
        deviation = math.sqrt(steps * self.options.step_spread) / mean
        drawn = round(self._random.gauss(steps, deviation))
        return min(max(drawn, math.ceil(tokens / (1 + self.options.draft_tokens))), tokens)

    def _end_finished(self, step: Step) -> None:
        finish = self._finish
        while finish and finish[0][0] <= self._steps:
            _, id = heapq.heappop(finish)
            state = self._decoding.get(id)
            if state is not None and state.last_step <= self._steps:  # not from before it was paused
                step.ends.append((id, self._leave(id, state)))

    def _leave(self, id: str, state: _Decoding) -> int:
        del self._decoding[id]
        made = state.made(self._steps)
        self._kv_tokens -= state.prompt_tokens + made
        self._rate -= state.per_step
        if not self._decoding:
            self._kv_tokens = self._rate = self._owed_tokens = 0.0
        return round(made)

    def _ms(self, tokens: int, attention: float, now: float) -> float:
        base, model = self._base_ms, self._model
        while len(base) <= tokens:
            base.append(model.base_ms(max(len(base), 1)))
        ms = base[tokens] + model.kv_read_ms_per_token * self._kv_tokens + model.attention_ms_per_token2 * attention
        for from_s, factor in reversed(self.options.slowdowns):
            if now >= from_s:
                ms *= factor
                break
        if self.options.noise:
            ms *= max(_LEAST_NOISE, self._random.gauss(1.0, self.options.noise))
        while self._stalls and self._stalls[0][0] <= now:
            ms += 1000.0 * self._stalls.pop(0)[1]
        return ms
