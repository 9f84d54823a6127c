"""Which backend a request goes to: the least loaded by its own numbers, or the one that knows the prefix."""

from __future__ import annotations

import collections

from hypothesis import given
from hypothesis import strategies as st

from seekserve.gateway.load import Load, read_load
from seekserve.gateway.ring import Ring, prefix_key
from seekserve.gateway.scrape import loads_of

NAMES = ["a:1", "b:1", "c:1", "d:1"]


def test_load_is_read_from_the_backends_own_metrics() -> None:
    text = (
        '# TYPE seekserve_queue_requests gauge\nseekserve_queue_requests{model="m",class="interactive"} 3\n'
        'seekserve_queue_requests{model="m",class="offline"} 4\nseekserve_intake_requests{model="m"} 1\n'
        'seekserve_running_requests{model="m"} 16\nseekserve_max_running{model="m"} 32\n'
        'seekserve_pressure{model="m",instance="0"} 0.5\nseekserve_pressure{model="m",instance="1"} 0.7\n'
        'nv_inference_count{model="m"} 99\nseekserve_running_requests{model="other"} 1\n'
    )
    loads = loads_of(text)
    assert loads["m"] == Load(waiting=8, running=16, slots=32, pressure=0.7)
    assert loads["other"] == Load(running=1)


def test_the_newer_names_mean_the_same() -> None:
    text = 'seekserve_max_running_requests{model="m"} 32\nseekserve_pressure_ratio{model="m"} 0.5\n'
    assert loads_of(text)["m"] == Load(slots=32, pressure=0.5)


def test_the_score_rises_with_everything_that_makes_a_request_wait() -> None:
    base = Load(waiting=2, running=8, slots=32, pressure=0.5)
    worse = [
        Load(waiting=9, running=8, slots=32, pressure=0.5),
        Load(waiting=2, running=20, slots=32, pressure=0.5),
        Load(waiting=2, running=8, slots=16, pressure=0.5),
        Load(waiting=2, running=8, slots=32, pressure=0.9),
    ]
    assert all(each.score(0) > base.score(0) for each in worse)
    assert base.score(5) > base.score(0)
    assert read_load({}).score(0) == 0


def test_prompts_that_begin_alike_share_a_key_and_others_do_not() -> None:
    system = {"role": "system", "content": "You are careful. " * 40}
    ask = [prefix_key({"messages": [system, {"role": "user", "content": text}]}) for text in ("a", "b")]
    assert ask[0] == ask[1]
    assert prefix_key({"prompt": "a"}) != prefix_key({"prompt": "b"})
    assert prefix_key({"input_ids": tuple(range(300))}) == prefix_key({"input_ids": tuple(range(200))})


def test_a_key_stays_where_it_is_when_another_backend_goes() -> None:
    ring = Ring(NAMES)
    idle = dict.fromkeys(NAMES, 0)
    homes = {n: ring.pick(str(n).encode(), idle) for n in range(400)}
    assert set(homes.values()) == set(NAMES)
    without = {name: 0 for name in NAMES if name != "c:1"}
    for n, home in homes.items():
        moved = ring.pick(str(n).encode(), without)
        assert moved != "c:1"
        assert moved == home or home == "c:1"


@given(st.lists(st.integers(0, 5), min_size=1, max_size=120))
def test_no_backend_gets_more_than_its_share_however_hot_a_key_is(keys: list[int]) -> None:
    ring = Ring(NAMES, balance=1.25)
    in_flight = collections.Counter(dict.fromkeys(NAMES, 0))
    for key in keys:
        in_flight[ring.pick(str(key).encode(), in_flight)] += 1
        mean = sum(in_flight.values()) / len(NAMES)
        assert max(in_flight.values()) <= 1.25 * mean + 1
