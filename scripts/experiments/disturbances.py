"""E4, E5, E6 and E13: an engine that is not what was planned, a surge, clients that come back, faults."""

from __future__ import annotations

from dataclasses import replace

from lab import Lab, Outcome, Target, figures, ratio, spread, table
from tuning import best_at, tuned

from seekserve.simulate.arrivals import Load
from seekserve.simulate.records import Clients

__all__ = ["e4_other_engine", "e5_surge", "e6_retries", "e13_faults"]


def e4_other_engine(lab: Lab) -> Outcome:
    out = Outcome("E4. An engine that is faster or slower than its model, from the start or from the middle on")
    frozen = tuned(lab, "conversation")
    rows = []
    for slowdown, part in ((1.25, 0.0), (0.8, 0.0), (1.25, 0.5), (2.0, 0.5)):
        engine = lab.engine(slowdown=slowdown, slow_from_part=part)
        base = lab.case("conversation", "paced", speed=2.0, engine=engine, sample_every_s=1.0)
        best = best_at(lab, replace(base, sample_every_s=None))
        policies = list(dict.fromkeys(["paced", "fcfs", frozen, best, "oracle"]))
        cases = [lab.case("conversation", p, speed=2.0, engine=engine, sample_every_s=1.0) for p in policies]
        no_model = replace(base, engine=replace(engine, controller=None), label="paced, given no model")
        done = dict(zip([*policies, no_model.label], lab.run([*cases, no_model]), strict=True))
        what = f"{slowdown:g} times the time" + (" from the middle on" if part else "")
        for policy, mine in done.items():
            note = (
                " (best of this engine)"
                if policy == best
                else " (tuned on the planned one)"
                if policy == frozen
                else ""
            )
            settle = spread(figures(mine, "settle_s"), ".1f") if policy == "paced" else "-"
            rows.append(
                (
                    what,
                    f"`{policy}`{note}",
                    spread(figures(mine, "goodput_rps")),
                    spread(figures(mine, "attainment"), ".3f"),
                    settle,
                )
            )
        settled = figures(done["paced"], "settle_s")
        out.targets.append(
            Target(
                f"E4 {what}: time until the bias is within 5 %",
                "< 10 s",
                spread(settled, ".1f") + " s",
                max(settled) < 10.0,
            )
        )
        value, text = ratio(figures(done["paced"], "goodput_rps"), figures(done[best], "goodput_rps"))
        out.targets.append(
            Target(f"E4 {what}: goodput against {best}, best of this engine", ">= 1x", text, value >= 1.0)
        )
    out.parts.append(table(("each step takes", "policy", "goodput/s", "attainment", "settles in s"), rows))
    return out


def e5_surge(lab: Lab) -> Outcome:
    out = Outcome("E5. A surge of three times the load for 60 s")
    policies = ["paced", "fcfs", tuned(lab, "conversation"), "seed:open", "oracle"]
    load = Load(process="surge", factor=3.0, period_s=60.0)
    done = lab.run([lab.case("conversation", p, load=load, sample_every_s=1.0) for p in policies])
    rows = [
        (
            f"`{policy}`",
            spread(figures(mine, "recovery_s"), ".0f"),
            spread(figures(mine, "attainment"), ".3f"),
            spread(figures(mine, "ttft_p99_s"), ".2f"),
            spread(figures(mine, "rung_changes_per_min"), ".2f"),
        )
        for policy, mine in zip(policies, done, strict=True)
    ]
    out.parts.append(table(("policy", "recovers after s", "attainment", "TTFT P99 s", "rung changes/min"), rows))
    found = figures(done[0], "recovery_s")
    out.targets.append(Target("E5: recovery from the surge", "< 10 s", spread(found, ".0f") + " s", max(found) < 10.0))
    return out


def e6_retries(lab: Lab) -> Outcome:
    out = Outcome("E6. Clients that come back up to three times")
    best = tuned(lab, "conversation")
    kinds = {
        "do not come back": Clients(),
        "come back as told": Clients(retries=3),
        "come back after 1 s": Clients(retries=3, honours_hint=False),
        "hang up after 10 s, come back as told": Clients(retries=3, patience_s=10.0),
        "hang up after 10 s, come back after 1 s": Clients(retries=3, honours_hint=False, patience_s=10.0),
    }
    policies = ("paced", "fcfs", best)
    for speed in (2.0, 3.0):
        keys = [(p, kind) for p in policies for kind in kinds]
        cases = [lab.case("conversation", p, speed=speed, clients=kinds[kind]) for p, kind in keys]
        done = dict(zip(keys, lab.run(cases), strict=True))
        rows = [
            (
                f"{speed:g}x",
                f"`{policy}`",
                kind,
                spread(figures(mine, "goodput_rps")),
                ratio(figures(mine, "goodput_rps"), figures(done[policy, "do not come back"], "goodput_rps"))[1],
                spread(figures(mine, "tries")),
            )
            for (policy, kind), mine in done.items()
        ]
        out.parts.append(table(("load", "policy", "clients", "goodput/s", "of no retries", "tries"), rows))
        value, text = ratio(
            figures(done["paced", "come back as told"], "goodput_rps"),
            figures(done["paced", "do not come back"], "goodput_rps"),
        )
        out.targets.append(
            Target(f"E6 {speed:g}x: goodput with retries by the hint", ">= 0.95x of none", text, value >= 0.95)
        )
    return out


def e13_faults(lab: Lab) -> Outcome:
    out = Outcome("E13. Faults: the breaker opens on them, and on nothing else")
    kinds = {
        "one failure": lab.engine(fail_at_s=(120.0,)),
        "four failures in a row, 0.5 s apart": lab.engine(fail_at_s=(120.0, 120.5, 121.0, 121.5)),
        "a stall of 20 s": lab.engine(stall_at_s=120.0, stall_s=20.0),
        "none": lab.engine(),
    }
    cases = [lab.case("conversation", "paced", engine=engine) for engine in kinds.values()]
    flood = lab.case("conversation", "paced", speed=6.0)
    names = [*kinds, "none, at 6x: most is refused"]
    done = dict(zip(names, lab.run([*cases, flood]), strict=True))
    rows = [
        (
            name,
            spread([float(n) for n in figures(mine, "breaker_openings")], ".1f"),
            spread(figures(mine, "failed_ratio"), ".4f"),
            spread(figures(mine, "shed_ratio"), ".4f"),
            spread(figures(mine, "attainment"), ".4f"),
        )
        for name, mine in done.items()
    ]
    out.parts.append(table(("fault", "breaker openings", "lost", "refused", "attainment"), rows))
    out.parts.append("Times to detect and to recover of a live server are in the drill table of the live experiment.")
    false = sum(figures(done["none"], "breaker_openings")) + sum(figures(done[names[-1]], "breaker_openings"))
    out.targets.append(Target("E13: openings without a fault", "0", str(false), false == 0))
    opened = min(figures(done[names[1]], "breaker_openings"))
    out.targets.append(Target("E13: opens after three failures in a row", ">= 1", str(opened), opened >= 1))
    return out
