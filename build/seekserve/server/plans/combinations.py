"""Which ways of running ranks go together with what else one may want, as a table with its reasons.

Sources: the documentation of TensorRT-LLM's leader and orchestrator modes; for the OpenAI frontend,
triton-inference-server/server PR 7715.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COMBINATIONS", "Combination", "refusal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    kind: str
    feature: str
    works: bool
    reason: str
    """Why, and what to do instead where it does not work."""


_LEADER_FIX = "put an OpenAI gateway that speaks gRPC in front of rank 0, or use --ranks orchestrator on one node"
COMBINATIONS: tuple[Combination, ...] = (
    Combination(
        kind="leader",
        feature="openai-frontend",
        works=False,
        reason="it runs the server inside its own process, which cannot be one rank of several: leader mode is not "
        f"supported there; {_LEADER_FIX}",
    ),
    Combination(
        kind="orchestrator",
        feature="openai-frontend",
        works=True,
        reason="needs TRTLLM_ORCHESTRATOR=1 in the frontend's environment, which this plan sets",
    ),
    Combination(
        kind="llmapi", feature="openai-frontend", works=True, reason="one process serves; workers are separate"
    ),
    Combination(kind="single", feature="openai-frontend", works=True, reason="one process serves"),
    Combination(
        kind="leader",
        feature="several-models",
        works=False,
        reason="leader mode has one MPI world, and every rank of it belongs to the one engine; several engines on one "
        "node need --ranks orchestrator, on several nodes a launch each",
    ),
    Combination(
        kind="leader",
        feature="several-instances",
        works=False,
        reason="leader mode runs one instance; for several on chosen GPUs, use --ranks orchestrator",
    ),
    Combination(
        kind="llmapi",
        feature="several-models",
        works=False,
        reason="trtllm-llmapi-launch carries the workers of one engine; launch each model by itself",
    ),
    Combination(
        kind="llmapi",
        feature="several-instances",
        works=False,
        reason="trtllm-llmapi-launch carries the workers of one engine; launch each instance by itself",
    ),
    Combination(
        kind="orchestrator",
        feature="several-nodes",
        works=False,
        reason="workers are spawned by MPI_Comm_spawn on this node; use --ranks mpi with --hosts",
    ),
    Combination(
        kind="single",
        feature="several-nodes",
        works=False,
        reason="workers are spawned on this node; use --ranks mpi with --hosts or --launcher srun",
    ),
)


def refusal(kind: str, feature: str) -> str | None:
    """Why the two do not go together, with the fix; None where they do."""
    for row in COMBINATIONS:
        if (row.kind, row.feature) == (kind, feature):
            return None if row.works else row.reason
    return None
