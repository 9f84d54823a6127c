"""Which plan serves which repository; tables, no machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning import choice, leader, problems, spawning

from seekserve.server.plans.combinations import COMBINATIONS, refusal
from seekserve.server.plans.hosts import Host, place
from seekserve.server.plans.plan import KINDS

SHARED = Path("/shared")


@pytest.mark.parametrize(
    ("needs", "wishes", "kind", "launcher", "world"),
    [
        ([], {}, "single", None, 1),
        ([leader(tp=1)], {}, "single", None, 1),
        ([spawning(tp=1)], {}, "single", None, 1),
        ([spawning(tp=8)], {}, "single", None, 8),
        ([spawning(tp=4, instances=2)], {}, "single", None, 8),
        ([spawning(tp=2, model="a"), spawning(tp=4, model="b")], {}, "single", None, 6),
        ([spawning(tp=8)], {"ranks": "mpi"}, "llmapi", "mpirun", 8),
        ([spawning(tp=16)], {"hosts": "a:8,b:8", "shared_dir": SHARED}, "llmapi", "mpirun", 16),
        ([spawning(tp=8, pp=2)], {"launcher": "srun", "shared_dir": SHARED}, "llmapi", "srun", 16),
        ([leader(tp=2)], {}, "leader", "mpirun", 2),
        ([leader(tp=4, pp=2)], {}, "leader", "mpirun", 8),
        ([leader(tp=2)], {"launcher": "srun"}, "leader", "srun", 2),
        ([leader(tp=8, pp=2)], {"hosts": "a:8,b:8", "shared_dir": SHARED}, "leader", "mpirun", 16),
        ([leader(tp=4, instances=2)], {}, "orchestrator", None, 8),
        ([leader(tp=2, model="x"), leader(tp=4, model="y")], {}, "orchestrator", None, 6),
        ([leader(tp=2)], {"ranks": "orchestrator"}, "orchestrator", None, 2),
    ],
)
def test_the_plan_follows_from_who_starts_the_ranks_and_on_how_many_nodes(
    needs: list[Any], wishes: dict[str, Any], kind: str, launcher: str | None, world: int
) -> None:
    found = choice(*needs, **wishes)
    assert (found.kind, found.launcher, found.world_size) == (kind, launcher, world)
    assert found.kind in KINDS
    assert found.why


@pytest.mark.parametrize(
    ("needs", "wishes", "sentence"),
    [
        ([leader()], {"ranks": "single"}, "a lone tritonserver would wait for the others for ever"),
        ([], {"ranks": "mpi"}, "every model of the repository runs in one rank"),
        ([spawning()], {"ranks": "orchestrator"}, "no model here is a C++ engine of several ranks"),
        ([leader(), spawning()], {}, "start their ranks in different ways"),
        ([leader(instances=2)], {"ranks": "mpi"}, "leader mode runs one instance"),
        ([leader(), leader(model="b")], {"ranks": "mpi"}, "leader mode has one MPI world"),
        ([spawning(tp=16)], {}, "tp 16 x pp 1 = 16 ranks of 'v3' on 8 GPUs a node need 2 nodes"),
        ([leader(tp=8, pp=2)], {}, "need 2 nodes; name them with --hosts node1:8,node2:8"),
        ([spawning(tp=8)], {"ranks": "single", "hosts": "a:4,b:4"}, "workers are spawned on this node"),
        ([leader(tp=4, pp=2)], {"ranks": "orchestrator", "hosts": "a:4,b:4"}, "spawned by MPI_Comm_spawn on this node"),
        ([spawning(tp=16, model="a"), spawning(tp=2, model="b")], {"hosts": "a:8,b:8"}, "carries the workers of one"),
        ([leader()], {"hosts": "a:1"}, "hosts a:1 have 1 slots, 2 ranks need 2"),
        ([leader()], {"hosts": "a:2,b:2"}, "host b gets none of the 2 ranks"),
        ([leader()], {"hosts": "a:2", "launcher": "srun"}, "Slurm chooses the nodes"),
        ([], {"launcher": "srun"}, "srun has nothing to start"),
        ([], {"hosts": "a:1"}, "host a:1: the plan is one process on this machine"),
        ([spawning(tp=8)], {"hosts": "a:8"}, "leave the host out, or use --ranks mpi"),
        ([], {"mpi_interface": "lo"}, "one rank, which talks to no other"),
    ],
)
def test_what_cannot_be_planned_is_one_sentence_with_the_way_out(
    needs: list[Any], wishes: dict[str, Any], sentence: str
) -> None:
    found = problems(*needs, **{"shared_dir": SHARED, **wishes})
    assert any(sentence in problem for problem in found), found


@pytest.mark.parametrize("kind", ["leader", "llmapi", "orchestrator", "single"])
@pytest.mark.parametrize("feature", sorted({row.feature for row in COMBINATIONS}))
def test_the_table_has_at_most_one_answer_and_every_refusal_says_what_to_do(kind: str, feature: str) -> None:
    rows = [row for row in COMBINATIONS if (row.kind, row.feature) == (kind, feature)]
    assert len(rows) <= 1
    reason = refusal(kind, feature)
    assert (reason is None) == (not rows or rows[0].works)
    assert reason is None or "use" in reason or "launch" in reason


@given(tp=st.integers(1, 16), pp=st.integers(1, 4), asked=st.integers(1, 64))
def test_a_number_of_ranks_is_accepted_only_when_it_is_the_product(tp: int, pp: int, asked: int) -> None:
    found = [text for text in problems(spawning(tp=tp, pp=pp), world_size=asked) if "--world-size" in text]
    assert (found == []) == (asked == tp * pp)
    assert all(f"tp {tp} x pp {pp} = {tp * pp}" in text and f"you asked for {asked}" in text for text in found)


@given(slots=st.lists(st.integers(1, 8), min_size=1, max_size=6), data=st.data())
def test_ranks_fill_the_hosts_in_order_and_no_slot_twice(slots: list[int], data: st.DataObject) -> None:
    hosts = tuple(Host(name=f"h{n}", slots=count) for n, count in enumerate(slots))
    ranks = data.draw(st.integers(1, sum(slots)))
    placed = place(hosts, ranks)
    assert len(placed) == ranks
    assert list(placed) == sorted(placed)
    assert all(placed.count(host.name) <= host.slots for host in hosts)


def test_several_nodes_are_told_what_must_be_alike_and_where_a_group_crosses() -> None:
    why = " ".join(choice(leader(tp=8, pp=2), hosts="a:4,b:12", shared_dir=SHARED).why)
    assert "same paths on every node" in why
    assert "a tensor-parallel group of 8 crosses nodes" in why
