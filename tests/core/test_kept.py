"""Kept streams against a plain model: tokens are bound to their tenant, bounds and times always hold."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from seekserve_backend.contract.stream_options import ResumeOptions
from seekserve_backend.core.kept import KeptStreams

TENANTS = ("a", "b", "c")
NUMBERS = st.integers(0, 11)


class KeptMachine(RuleBasedStateMachine):
    @initialize(most=st.integers(0, 4), max_bytes=st.sampled_from([0, 25, 10_000]))
    def begin(self, most: int, max_bytes: int) -> None:
        options = ResumeOptions(resume_ttl_s=10.0, max_streams=most, max_bytes=max_bytes)
        self.table: KeptStreams[int] = KeptStreams(options)
        self.now = 0.0
        self.tenant_of: dict[str, str] = {}
        self.stream_of: dict[str, int] = {}
        self.until: dict[str, float] = {}
        self.made = 0

    @rule(tenant=st.sampled_from(TENANTS))
    def grant(self, tenant: str) -> None:
        token = f"t{self.made}"
        self.made += 1
        self.table.grant(token, tenant, self.made)
        self.tenant_of[token], self.stream_of[token] = tenant, self.made

    def gone(self, streams: tuple[int, ...]) -> None:
        for stream in streams:
            token = next(t for t, s in self.stream_of.items() if s == stream)
            assert token in self.until, "a connected stream was thrown out"
            rest = [self.tenant_of[t] for t in self.until]
            assert rest.count(self.tenant_of[token]) == max(rest.count(each) for each in TENANTS)
            self.remove(token)

    def remove(self, token: str) -> None:
        for table in (self.tenant_of, self.stream_of, self.until):
            table.pop(token, None)  # type: ignore[attr-defined]

    @rule(number=NUMBERS, size_bytes=st.integers(0, 20))
    def keep(self, number: int, size_bytes: int) -> None:
        token = f"t{number}"
        if token in self.stream_of:
            self.until.setdefault(token, self.now + 10.0)
        self.gone(self.table.keep(token, size_bytes, self.now))

    @rule(number=NUMBERS, size_bytes=st.integers(0, 20))
    def weigh(self, number: int, size_bytes: int) -> None:
        self.gone(self.table.weigh(f"t{number}", size_bytes))

    @rule(number=NUMBERS, tenant=st.sampled_from(TENANTS))
    def come_back(self, number: int, tenant: str) -> None:
        token = f"t{number}"
        is_late = self.until.get(token, self.now + 1.0) <= self.now
        mine = self.tenant_of.get(token) == tenant and not is_late
        found = self.table.find(token, tenant, self.now)
        assert found == (self.stream_of[token] if mine else None)
        if found is not None:
            self.made += 100
            self.table.resume(token, self.made)
            self.stream_of[token] = self.made
            self.until.pop(token, None)

    @rule(number=NUMBERS)
    def drop(self, number: int) -> None:
        self.table.drop(f"t{number}")
        self.remove(f"t{number}")

    @rule(seconds=st.floats(0, 8))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        late = {self.stream_of[token] for token, until in self.until.items() if until <= self.now}
        assert set(self.table.expire(self.now)) == late
        for token in [t for t, until in self.until.items() if until <= self.now]:
            self.remove(token)

    @invariant()
    def agrees(self) -> None:
        self.table.check_integrity()
        assert len(self.table) == len(self.until)
        assert {token for token, _ in self.table.kept()} == set(self.until)


TestKeptMachine = KeptMachine.TestCase
TestKeptMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_a_token_in_use_cannot_be_granted_again() -> None:
    table: KeptStreams[str] = KeptStreams(ResumeOptions())
    table.grant("t", "a", "one")
    with pytest.raises(ValueError, match="in use"):
        table.grant("t", "b", "two")


def test_one_tenant_cannot_push_out_the_streams_of_another() -> None:
    table: KeptStreams[str] = KeptStreams(ResumeOptions(max_streams=3))
    table.grant("quiet", "b", "quiet")
    assert table.keep("quiet", 1, 0.0) == ()
    gone: list[str] = []
    for n in range(6):
        table.grant(f"t{n}", "a", f"loud {n}")
        gone += table.keep(f"t{n}", 1, 1.0 + n)
    assert gone == ["loud 0", "loud 1", "loud 2", "loud 3"]
    assert table.find("quiet", "b", 8.0) == "quiet"


def test_narrower_bounds_hold_at_once() -> None:
    table: KeptStreams[str] = KeptStreams(ResumeOptions())
    for token in ("x", "y"):
        table.grant(token, "a", token)
        table.keep(token, 10, 0.0)
    assert table.replace(ResumeOptions(max_streams=1)) == ("x",)
    assert table.replace(ResumeOptions(max_bytes=5)) == ("y",)
