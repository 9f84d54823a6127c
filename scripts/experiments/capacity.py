"""E1 to E3: how much each policy carries, and what is left of it past the knee."""

from __future__ import annotations

import math

from lab import Lab, Outcome, Target, figures, ratio, served_alone, spread, table
from tuning import POINTS, best_at, tuned

__all__ = ["e1_knees", "e2_overload", "below_the_knee"]

WORKLOADS = ("conversation", "code", "long_context")
RANGES = {"conversation": (0.3, 4.5), "code": (0.05, 3.0), "long_context": (0.03, 1.2)}
WANTED = {"conversation": 1.5, "code": 2.0}
OVERLOADED = {"code": 2.0, "long_context": 0.5}
"""Speeds at which the tuned caps are two to three times past what they carry, or more."""
GOODPUT_WANTED = {0.3: 1.4, 0.5: 1.8, 0.8: 3.0}
_ALL = "all that each alone would be served in time is"


def e1_knees(lab: Lab) -> Outcome:
    out = Outcome("E1. How much load keeps 90 % attainment")
    frozen = tuned(lab, "conversation")
    for name in WORKLOADS:
        best = tuned(lab, name)
        flattered = tuned(lab, name, half=2) if name in WANTED else best
        policies = ["paced", "fcfs", best, flattered, frozen, "seed", "seed:open", "oracle"]
        policies = list(dict.fromkeys(policies))
        low, high = RANGES[name]
        found = dict(zip(policies, lab.knees([lab.case(name, p) for p in policies], low=low, high=high), strict=True))
        labels = {policy: _label(policy, best, frozen) for policy in policies}
        if flattered != best:
            labels[flattered] = f"`{flattered}`, Triton tuned on the half that is reported"
        rows = [(labels[p], spread(found[p]), _times(found["paced"], found[p])) for p in policies]
        out.parts += [f"**{name}**", table(("policy", "requests/s at 90 %", "`paced` carries"), rows)]
        if name in WANTED:
            wanted = WANTED[name]
            for policy, how in ((best, "tuned on the first half"), (flattered, "tuned on the reported half")):
                value, text = ratio(found["paced"], found[policy])
                what = f"E1 {name}: load at 90 % against {policy}, {how}"
                out.targets.append(Target(what, f">= {wanted:g}x", text, value >= wanted))
        value, text = ratio(found["paced"], found["oracle"])
        out.targets.append(Target(f"E1 {name}: load at 90 % against the oracle", ">= 0.85x", text, value >= 0.85))
    return out


def _times(paced: list[float], other: list[float]) -> str:
    return ratio(paced, other)[1] if sum(other) else "-"


def _label(policy: str, best: str, frozen: str) -> str:
    notes = {"fcfs": "`fcfs`, also Triton as it comes", "oracle": "`oracle`, knows output lengths"}
    if policy == best:
        return f"`{policy}`, Triton tuned on the first half of this trace"
    if policy == frozen:
        return f"`{policy}`, Triton tuned on conversation"
    return notes.get(policy, f"`{policy}`")


def e2_overload(lab: Lab) -> Outcome:
    """With E3: the frozen cap is one of the lines."""
    out = Outcome("E2, E3. Goodput past the knee, and tuning that is left alone")
    frozen = tuned(lab, "conversation")
    for name in WORKLOADS:
        head = (
            "load",
            "policy",
            "goodput/s",
            "attainment",
            "shed or late",
            "wasted tokens",
            "longest wait s",
            "offline",
        )
        rows = []
        for speed in POINTS[name]:
            best = best_at(lab, lab.case(name, "paced", speed=speed))
            policies = list(
                dict.fromkeys(["paced", "fcfs", best, tuned(lab, name), frozen, "seed", "seed:open", "oracle"])
            )
            done = dict(zip(policies, lab.run([lab.case(name, p, speed=speed) for p in policies]), strict=True))
            for policy in policies:
                mine = done[policy]
                shed = [a + b for a, b in zip(figures(mine, "shed_ratio"), figures(mine, "expired_ratio"), strict=True)]
                rows.append(
                    (
                        f"{speed:g}x, {sum(figures(mine, 'offered_rps')) / len(mine):.2f}/s",
                        _label(policy, best, frozen).replace("on the first half of this trace", "at this very point"),
                        spread(figures(mine, "goodput_rps")),
                        spread(figures(mine, "attainment"), ".3f"),
                        f"{sum(shed) / len(shed):.3f}",
                        f"{sum(figures(mine, 'wasted_tokens')) / len(mine):,.0f}",
                        f"{max(figures(mine, 'longest_wait_s')):.0f}",
                        f"{sum(figures(mine, 'offline_attainment')) / len(mine):.2f}",
                    )
                )
            alone = served_alone(lab.case(name, "paced", speed=speed))
            out.targets += _overload_targets(name, speed, done, best, frozen, alone)
            out.parts.append(_given_up(name, speed, done))
        out.parts += [f"**{name}**", table(head, rows)]
    return out


def _overload_targets(name: str, speed: float, done: dict, best: str, frozen: str, alone: float) -> list[Target]:
    """`alone`: the part of what is offered that an engine with nothing else to do would serve in time."""
    goodput = {policy: figures(results, "goodput_rps") for policy, results in done.items()}
    value, text = ratio(goodput["paced"], goodput[best])
    wanted = GOODPUT_WANTED[speed] if name == "long_context" else 1.1
    offered = [alone * rps for rps in figures(done["paced"], "urgent_rps")]
    most, _ = ratio(offered, goodput[best])
    what = f"E2 {name} {speed:g}x: goodput against {best}, best of the point"
    out = [Target(what, f">= {wanted:g}x", f"{text}; {_ALL} {most:.2f}x", value >= wanted)]
    if name != "conversation" and speed >= OVERLOADED[name]:
        value, text = ratio(goodput["paced"], goodput[frozen])
        most, _ = ratio(offered, goodput[frozen])
        what = f"E3 {name} {speed:g}x: goodput against {frozen}, tuned on conversation"
        out.append(Target(what, ">= 4x", f"{text}; {_ALL} {most:.2f}x", value >= 4.0))
    value, text = ratio(goodput["paced"], goodput["oracle"])
    out.append(Target(f"E2 {name} {speed:g}x: goodput against the oracle", ">= 0.85x", text, value >= 0.85))
    return out


def _given_up(name: str, speed: float, done: dict) -> str:
    shed = [result.figures.shed_by_bucket for result in done["paced"]]
    text = ", ".join(
        f"{bucket} {100.0 * sum(s.get(bucket, 0.0) for s in shed) / len(shed):.0f} %" for bucket in shed[0]
    )
    return f"What `paced` gives up on {name} at {speed:g}x, by prompt length: {text}."


def below_the_knee(lab: Lab) -> Outcome:
    out = Outcome("Below the knee: nothing is lost against first come first served")
    speeds = {"conversation": (0.5, 0.75, 1.0), "code": (0.05, 0.1, 0.2), "long_context": (0.03, 0.06, 0.1)}
    rows = []
    for name, each in speeds.items():
        for speed in each:
            paced, fcfs = lab.run([lab.case(name, policy, speed=speed) for policy in ("paced", "fcfs")])
            worse = [b - a for a, b in zip(figures(paced, "attainment"), figures(fcfs, "attainment"), strict=True)]
            loss = sum(worse) / len(worse)
            rows.append(
                (
                    name,
                    f"{speed:g}x",
                    spread(figures(paced, "attainment"), ".4f"),
                    spread(figures(fcfs, "attainment"), ".4f"),
                )
            )
            noise = 2.0 * math.sqrt(0.01 / sum(len(r.case.trace.rows(0)) for r in paced))
            out.targets.append(
                Target(
                    f"{name} {speed:g}x: attainment no worse than FCFS",
                    f"loss <= {noise:.4f}",
                    f"{loss:+.4f}",
                    loss <= noise,
                )
            )
    out.parts.append(table(("trace", "load", "`paced`", "`fcfs`"), rows))
    return out
