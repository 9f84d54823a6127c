"""The repeat table against a plain model of it: the latest results stay, within every bound; works are found while they
last."""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from seekserve_backend.contract.stream_options import RepeatCacheOptions
from seekserve_backend.core.repeats import ENTRY_BYTES, Repeats

OPTIONS = (
    RepeatCacheOptions(enabled=True),
    RepeatCacheOptions(enabled=True, max_bytes=3 * ENTRY_BYTES, max_age_s=5.0),
    RepeatCacheOptions(enabled=True, keep_latest_share=0.25),
    RepeatCacheOptions(enabled=True, max_bytes=0),
)
KEYS = st.sampled_from("abcdef")


class RepeatMachine(RuleBasedStateMachine):
    """The model keeps every result ever made, in order, and says which of them may still be there."""

    @initialize(options=st.sampled_from(OPTIONS))
    def begin(self, options: RepeatCacheOptions) -> None:
        self.table: Repeats[object, str] = Repeats(options)
        self.now = 0.0
        self.works: dict[str, object] = {}
        self.kept: list[tuple[str, str, int, float]] = []
        self.made = self.hits = 0

    @rule(seconds=st.floats(0, 4))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(key=KEYS)
    def lead(self, key: str) -> None:
        work = object()
        self.table.lead(key, work)
        self.works.setdefault(key, work)

    @rule(key=KEYS, is_its_own=st.booleans())
    def leave(self, key: str, is_its_own: bool) -> None:
        self.table.leave(key, self.works.get(key, object()) if is_its_own else object())
        if is_its_own:
            self.works.pop(key, None)

    @rule(key=KEYS, size_bytes=st.integers(0, 2 * ENTRY_BYTES))
    def keep(self, key: str, size_bytes: int) -> None:
        self.made += 1
        self.table.keep(key, f"{key}{self.made}", size_bytes, self.now)
        if key not in {k for k, *_ in self.kept}:
            self.kept.append((key, f"{key}{self.made}", size_bytes + ENTRY_BYTES, self.now))
        self.forget_what_is_over()

    @rule(key=KEYS)
    def ask(self, key: str) -> None:
        self.forget_what_is_over()
        expected = next((answer for k, answer, *_ in self.kept if k == key), None)
        assert self.table.answer(key, self.now) == expected
        self.hits += expected is not None

    @rule(options=st.sampled_from(OPTIONS))
    def other_rules(self, options: RepeatCacheOptions) -> None:
        self.table.replace(options)
        self.kept, self.works = [], {}

    def forget_what_is_over(self) -> None:
        options = self.table.options
        most = math.ceil(options.keep_latest_share * self.made)
        while self.kept and (
            self.now - self.kept[0][3] > options.max_age_s
            or sum(size for _, _, size, _ in self.kept) > options.max_bytes
            or len(self.kept) > most
        ):
            del self.kept[0]

    @invariant()
    def agrees(self) -> None:
        self.table.check_integrity()
        assert self.table.hits == self.hits
        for key in "abcdef":
            assert self.table.work(key) is self.works.get(key)


TestRepeatMachine = RepeatMachine.TestCase
TestRepeatMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize(("made", "kept"), [(1, 1), (20, 1), (21, 2), (100, 5)])
def test_the_latest_five_percent_is_five_of_a_hundred(made: int, kept: int) -> None:
    table: Repeats[object, int] = Repeats(RepeatCacheOptions(enabled=True, keep_latest_share=0.05))
    for n in range(made):
        table.keep(n, n, 1, 0.0)
    assert [table.answer(n, 0.0) for n in range(made - kept, made)] == list(range(made - kept, made))
    assert table.results == kept


def test_a_result_larger_than_everything_is_not_kept() -> None:
    table: Repeats[object, str] = Repeats(RepeatCacheOptions(enabled=True, max_bytes=2000))
    table.keep("a", "small", 1, 0.0)
    table.keep("b", "huge", 3000, 0.0)
    assert table.answer("b", 0.0) is None
    assert table.bytes == 0, "the oldest go first, and here all had to"
