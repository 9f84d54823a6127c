"""The word of the launch, and what an instance says of it in its heartbeat."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.service.fakes import BYTES, KV, LIMITS, encode, synthetic

from seekserve_backend.exchange import Exchange, ExchangeState, Variant
from seekserve_backend.triton.swap_orders import SwapOrders


def variant(folder: Path) -> Variant:
    return Variant(
        bundle_dir=str(folder),
        limits=LIMITS,
        kv=KV,
        step_model=None,
        engine_factory=synthetic,
        encode=encode,
        vocabulary=BYTES,
    )


class Instance:
    def __init__(self, run_dir: Path, read: Callable[[Path], Variant] = variant) -> None:
        self.run_dir = run_dir
        self.begun: list[tuple[Exchange, float]] = []
        self.has_begun = threading.Event()
        self.retired = threading.Event()
        self.orders = SwapOrders(
            model="m", run_dir=run_dir, bundle_dir="/old", read_variant=read, begin=self.begin, retire=self.retired.set
        )

    def begin(self, wished: Variant, drain_timeout_s: float) -> Exchange:
        self.begun.append((Exchange(wished, deadline_s=0.0, taken=lambda _variant: None), drain_timeout_s))
        self.has_begun.set()
        return self.begun[-1][0]

    def told(self, id: str, bundle_dir: str) -> None:
        order = {"id": id, "bundle_dir": bundle_dir, "drain_timeout_s": 7.0, "load_timeout_s": 99.0}
        (self.run_dir / "swap-m.json").write_text(json.dumps(order))

    def look(self) -> tuple[object, Any]:
        said = self.orders.look()
        swap: Any = said["swap"]
        return said["bundle_dir"], swap and (swap["id"], swap["state"], swap["text"])

    def look_until(self, state: str) -> tuple[object, Any]:
        for _ in range(1000):
            found = self.look()
            if found[1] is not None and found[1][1] == state:
                return found
            threading.Event().wait(0.005)
        raise AssertionError(f"never {state}: {self.look()}")


def test_without_an_order_it_says_what_it_serves(tmp_path: Path) -> None:
    assert Instance(tmp_path).look() == ("/old", None)


def test_an_order_is_followed_to_its_end_once(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    instance.told("1", "/new")
    assert instance.look_until("draining") == ("/old", ("1", "draining", ""))
    exchange, drain_timeout_s = instance.begun[0]
    assert drain_timeout_s == 7.0
    exchange.state = ExchangeState.LOADING
    assert instance.look()[1] == ("1", "loading", "")
    exchange.state = ExchangeState.DONE
    assert instance.look() == ("/new", ("1", "done", ""))
    assert instance.look() == ("/new", ("1", "done", ""))
    assert len(instance.begun) == 1


def test_a_failure_is_told_with_its_reason_and_the_old_bundle(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    instance.told("1", "/new")
    instance.look_until("draining")
    instance.begun[0][0].fail("no memory")
    assert instance.look() == ("/old", ("1", "failed", "no memory"))


def test_what_is_served_already_is_done_at_once(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    instance.told("1-back", "/old")
    assert instance.look() == ("/old", ("1-back", "done", ""))
    assert instance.begun == []


def test_a_bundle_that_cannot_be_read_closes_no_door(tmp_path: Path) -> None:
    def unreadable(folder: Path) -> Variant:
        raise ValueError(f"{folder} holds no bundle.json")

    instance = Instance(tmp_path, unreadable)
    instance.told("1", "/new")
    bundle_dir, swap = instance.look_until("failed")
    assert bundle_dir == "/old"
    assert "/new holds no bundle.json" in swap[2]
    assert instance.begun == []


def test_a_second_order_waits_for_the_end_of_the_first(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    instance.told("1", "/new")
    instance.look_until("draining")
    instance.told("2", "/old")
    assert instance.look()[1][0] == "1"
    instance.begun[0][0].state = ExchangeState.DONE
    instance.has_begun.clear()
    instance.look()
    assert instance.has_begun.wait(10)
    assert instance.begun[1][0].variant.bundle_dir == "/old"


def test_rubbish_is_no_order(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    for text in ("", "[]", '{"id": "1"}', "{"):
        (tmp_path / "swap-m.json").write_text(text)
        assert instance.look() == ("/old", None)


def test_one_that_is_told_to_retire_does(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    (tmp_path / "retire-1").touch()
    instance.look()
    assert not instance.retired.is_set()
    (tmp_path / f"retire-{os.getpid()}").touch()
    instance.look()
    assert instance.retired.wait(10)


def test_without_a_supervisor_nothing_is_looked_for() -> None:
    orders = SwapOrders(
        model="m",
        run_dir=None,
        bundle_dir="/old",
        read_variant=variant,
        begin=lambda *_: None,
        retire=lambda: None,  # type: ignore[arg-type, return-value]
    )
    assert orders.look() == {"bundle_dir": "/old", "swap": None}
