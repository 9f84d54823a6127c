"""Whether a policy asks more of the engine than it can do while it runs; such a policy is refused when it is loaded."""

from __future__ import annotations

from collections.abc import Collection

from ..contract.policy import Policy

__all__ = ["unsupported"]


def unsupported(policy: Policy, controls: Collection[str], variants: Collection[str]) -> list[str]:
    """One sentence for each rung that this engine cannot follow. `controls`: of the port's RUNTIME_CONTROLS."""
    problems = []
    for number, rung in enumerate(policy.rungs if policy.kind == "paced" else (), start=1):
        needed = {"beam_width": rung.max_beam_width is not None, "speculation": rung.no_speculation}
        problems += [
            f"rung {number} (at {rung.at:g}) lowers {name.replace('_', ' ')}, which this engine cannot change while "
            "it runs"
            for name, is_needed in needed.items()
            if is_needed and name not in controls
        ]
        if rung.route_to is not None and rung.route_to not in variants:
            loaded = ", ".join(sorted(variants)) or "none"
            problems.append(f"rung {number} routes to {rung.route_to!r}; variants that are loaded: {loaded}")
    return problems
