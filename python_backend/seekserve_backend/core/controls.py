"""Whether a policy asks more of the engine than it can do while it runs; such a policy is refused when it is loaded."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from ..contract.policy import Policy

__all__ = ["unsupported"]


def unsupported(policy: Policy, controls: Collection[str], variants: Collection[str]) -> list[str]:
    """One sentence for each rung that cannot be followed here. `controls`: of the port's RUNTIME_CONTROLS; `variants`:
    models that requests can be routed to."""
    problems = []
    for name, rung in policy.ladder():
        needed = {"beam_width": rung.max_beam_width is not None, "speculation": rung.no_speculation}
        problems += [
            f"{name} lowers {control.replace('_', ' ')}, which this engine cannot change while it runs"
            for control, is_needed in needed.items()
            if is_needed and control not in controls
        ]
        if rung.route_to is not None and rung.route_to not in variants:
            known = ", ".join(sorted(variants)) or "none"
            near = difflib.get_close_matches(rung.route_to, variants, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            problems.append(
                f"{name} routes to {rung.route_to!r}; models of this server that can take requests of this one: "
                f"{known}{hint}"
            )
    return problems
