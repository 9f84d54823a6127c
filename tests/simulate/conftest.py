"""A small engine, a small promise and short traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from seekserve.simulate.arrivals import Load
from seekserve.simulate.policies import candidate_for
from seekserve.simulate.slo import ClassSlo, SloFile
from seekserve.simulate.sweep import Case, Engine
from seekserve.simulate.traces import Recorded, TraceRow
from seekserve_backend.contract.bundle import KvCache
from seekserve_backend.contract.step_model import StepModel

MODEL = StepModel(
    base_points=((1, 10.0), (1001, 110.0)), kv_read_ms_per_token=0.001, attention_ms_per_token2=1e-6, source="a test"
)
"""10 ms for one token and 0.1 ms for each more."""


@pytest.fixture
def model() -> StepModel:
    return MODEL


@pytest.fixture
def slo() -> SloFile:
    return SloFile(
        name="test",
        classes={
            "interactive": ClassSlo(share=0.7, ttft_ms=500.0, ttft_ms_per_token=1.0, tpot_ms=60.0),
            "offline": ClassSlo(share=0.3, e2e_ms=60_000.0),
        },
        chunk_tokens=256,
        max_tokens=50,
    )


@pytest.fixture
def engine(model: StepModel) -> Engine:
    kv = KvCache(dtype="bf16", block_tokens=16, capacity_blocks=2000, bytes_per_token=1)
    return Engine(plant=model, controller=model, kv=kv, max_batch_size=64, max_seq_len_tokens=8000)


def rows_at(rate: float, count: int, *, prompt: int = 200, output: int = 20) -> list[TraceRow]:
    """Evenly spaced, of lengths that vary."""
    return [TraceRow(n / rate, prompt + 40 * (n % 7), output + n % 5) for n in range(count)]


@pytest.fixture
def make_case(slo: SloFile, engine: Engine) -> Callable[..., Case]:
    """`make_case("paced", rows=[...], speed=2.0, **Case fields)`."""

    def make(policy: str = "paced", *, rows: Sequence[TraceRow] | None = None, speed: float = 1.0, **more: Any) -> Case:
        load = more.pop("load", Load(speed=speed))
        values = {"slo": slo, "engine": engine, "candidate": candidate_for(policy, more.get("slo", slo)), **more}
        return Case(trace=Recorded("made", rows or rows_at(5.0, 150)), load=load, **values)

    return make
