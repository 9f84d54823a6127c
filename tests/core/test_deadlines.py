from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from seekserve_backend.core.deadlines import Deadlines


def test_a_deadline_is_due_at_its_very_moment() -> None:
    deadlines = Deadlines()
    deadlines.set("a", 2.0)
    assert deadlines.pop_due(1.999) == []
    assert deadlines.pop_due(2.0) == ["a"]
    assert deadlines.pop_due(9.0) == []


def test_equal_deadlines_come_out_in_the_order_they_were_set() -> None:
    deadlines = Deadlines()
    for id in ("z", "a", "m"):
        deadlines.set(id, 1.0)
    assert deadlines.pop_due(1.0) == ["z", "a", "m"]


def test_a_discarded_id_is_never_due_and_does_not_hide_the_next() -> None:
    deadlines = Deadlines()
    deadlines.set("a", 1.0)
    deadlines.set("b", 2.0)
    deadlines.discard("a")
    deadlines.discard("a")
    assert deadlines.next_s() == 2.0
    assert deadlines.pop_due(3.0) == ["b"]
    assert deadlines.next_s() is None


def test_discarded_ids_do_not_pile_up() -> None:
    deadlines = Deadlines()
    deadlines.set("keep", 1e9)
    for n in range(10_000):
        deadlines.set(str(n), 1e6 + n)
        deadlines.discard(str(n))
    assert len(deadlines._heap) < 200
    assert deadlines.pop_due(2e9) == ["keep"]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 9), st.sampled_from(["set", "discard", "pop"]))))
def test_it_behaves_like_a_sorted_dictionary(actions: list[tuple[str, int, str]]) -> None:
    deadlines, model, count = Deadlines(), dict[str, tuple[int, int]](), 0
    for id, value, action in actions:
        if action == "set" and id not in model:
            count += 1
            deadlines.set(id, value)
            model[id] = (value, count)
        elif action == "discard":
            deadlines.discard(id)
            model.pop(id, None)
        elif action == "pop":
            due = sorted((key for key in model if model[key][0] <= value), key=lambda key: model[key])
            assert deadlines.pop_due(value) == due
            for key in due:
                del model[key]
        assert deadlines.next_s() == min((when for when, _ in model.values()), default=None)
        assert len(deadlines) == len(model)
