"""Where a request may run under attention data parallelism."""

from __future__ import annotations

from dataclasses import dataclass

from tensorrt_llm._double.profile import DOUBTS, PROFILE

__all__ = ["SchedulingParams"]

_RELAX = True if DOUBTS.attention_dp_relax is None else DOUBTS.attention_dp_relax


@dataclass(slots=True, kw_only=True)
class _Common:
    attention_dp_rank: int | None = None
    attention_dp_relax: bool = _RELAX


if PROFILE.sampling == "NEW":

    @dataclass(slots=True, kw_only=True)
    class SchedulingParams(_Common):
        agent_hierarchy: list[tuple[str, int]] | None = None

else:

    @dataclass(slots=True, kw_only=True)
    class SchedulingParams(_Common):  # type: ignore[no-redef]
        pass
