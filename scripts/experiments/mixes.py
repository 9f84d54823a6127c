"""E7 to E11, B13, V3 and V6: mixes of classes, lengths and tenants, chunk sizes, and the field guide's comparisons."""

from __future__ import annotations

from dataclasses import replace

from lab import Lab, Outcome, Target, figures, ratio, spread, table
from tuning import POINTS, best_at, tuned

from seekserve.simulate.arrivals import Load
from seekserve.simulate.slo import SloFile

__all__ = [
    "b13_evening",
    "e10_chunks",
    "e11_held_out",
    "e7_offline",
    "e8_long_prompts",
    "e9_tenants",
    "mtp_speculation",
    "v6_batches",
]


def e7_offline(lab: Lab) -> Outcome:
    """The interactive load stays the same; what is added is offline."""
    out = Outcome("E7. More and more offline work beside the same interactive load")
    rows, attainment = [], {}
    for share in (0.3, 0.5, 0.7):
        slo = _with_offline(lab.slo("conversation"), share)
        speed = 1.5 * 0.7 / (1.0 - share)
        for policy in ("paced", "fcfs", tuned(lab, "conversation")):
            mine = lab.run([lab.case("conversation", policy, speed=speed, slo=slo)])[0]
            attainment[share, policy] = figures(mine, "attainment")
            cells = [spread(figures(mine, "attainment"), ".3f"), spread(figures(mine, "offline_share"), ".3f")]
            cells += [
                spread(figures(mine, "offline_tokens_per_s"), ".0f"),
                spread(figures(mine, "offline_attainment"), ".3f"),
            ]
            rows.append((f"{100 * share:.0f} %", f"`{policy}`", *cells))
            if policy == "paced":
                least = min(figures(mine, "offline_share"))
                out.targets.append(
                    Target(
                        f"E7 {100 * share:.0f} % offline: its part of the engine",
                        ">= 5 %",
                        f"{100 * least:.1f} %",
                        least >= 0.05,
                    )
                )
    head = (
        "offline",
        "policy",
        "interactive attainment",
        "offline part of engine time",
        "offline tokens/s",
        "offline in 300 s",
    )
    out.parts.append(table(head, rows))
    for share in (0.5, 0.7):
        loss = sum(attainment[0.3, "paced"]) - sum(attainment[share, "paced"])
        loss /= len(attainment[share, "paced"])
        out.targets.append(
            Target(
                f"E7 {100 * share:.0f} % offline: interactive attainment lost",
                "< 2 points",
                f"{100 * loss:.1f}",
                loss < 0.02,
            )
        )
    return out


def _with_offline(slo: SloFile, share: float) -> SloFile:
    shares = {"interactive": 1.0 - share, "offline": share}
    return replace(slo, classes={name: replace(rules, share=shares[name]) for name, rules in slo.classes.items()})


def e8_long_prompts(lab: Lab) -> Outcome:
    """With V3, the same with 10 %."""
    out = Outcome("E8, V3. A few prompts of 32,768 tokens among short ones")
    rows = []
    for share, speed in ((0.0, 1.0), (0.01, 1.0), (0.01, 1.5), (0.1, 0.4), (0.1, 0.8)):
        best = tuned(lab, "conversation")
        for policy in ("paced", "fcfs", best):
            mine = lab.run([lab.case("conversation", policy, speed=speed, load=Load(long_share=share))])[0]
            names = ("short_ttft_p99_s", "short_tpot_p99_ms", "itl_p99_ms", "attainment")
            cells = [
                spread(figures(mine, name), form)
                for name, form in zip(names, (".2f", ".1f", ".0f", ".3f"), strict=True)
            ]
            rows.append((f"{100 * share:g} %, {speed:g}x", f"`{policy}`", *cells))
            if policy == "paced" and share == 0.01:
                gaps = figures(mine, "itl_p99_ms")
                out.targets.append(
                    Target(
                        f"E8 1 % at {speed:g}x: P99 gap between tokens",
                        "<= 2 x 50 ms",
                        f"{max(gaps):.0f} ms",
                        max(gaps) <= 100.0,
                    )
                )
    head = ("long prompts, load", "policy", "TTFT P99 s of short", "TPOT P99 ms of short", "P99 gap ms", "attainment")
    out.parts.append(table(head, rows))
    return out


def e9_tenants(lab: Lab) -> Outcome:
    out = Outcome("E9. Two tenants, one with ten times the requests of the other")
    rows = []
    for speed in (2.0, 3.0, 5.0):
        for policy in ("paced", "fcfs", tuned(lab, "conversation")):
            load = Load(tenants={"big": 10.0, "small": 1.0})
            mine = lab.run([lab.case("conversation", policy, speed=speed, load=load)])[0]
            by_tenant = [result.figures.attainment_by_tenant for result in mine]
            cells = [spread([each[name] for each in by_tenant], ".3f") for name in ("small", "big")]
            rows.append((f"{speed:g}x", f"`{policy}`", spread(figures(mine, "jain"), ".3f"), *cells))
            if policy == "paced":
                least = min(figures(mine, "jain"))
                out.targets.append(
                    Target(
                        f"E9 {speed:g}x: Jain's index with one tenant at 10x", "> 0.95", f"{least:.3f}", least > 0.95
                    )
                )
    out.parts.append("Jain's index is over engine time served against what max-min fairness entitles each tenant to.")
    out.parts.append(table(("load", "policy", "Jain", "attainment of the small one", "of the big one"), rows))
    return out


def e10_chunks(lab: Lab) -> Outcome:
    out = Outcome("E10. Tokens per prefill chunk")
    rows = []
    for chunk in (256, 512, 1024, 2048, 4096):
        slo = replace(lab.slo("conversation"), chunk_tokens=chunk)
        mine = lab.run([lab.case("conversation", "paced", speed=2.0, slo=slo)])[0]
        rows.append(
            (
                str(chunk),
                *(
                    spread(figures(mine, n), f)
                    for n, f in (("goodput_rps", ".2f"), ("attainment", ".3f"), ("itl_p99_ms", ".0f"))
                ),
            )
        )
    out.parts.append("`paced` on conversation at 2x.")
    out.parts.append(table(("chunk", "goodput/s", "attainment", "P99 gap ms"), rows))
    return out


def e11_held_out(lab: Lab) -> Outcome:
    out = Outcome("E11. A trace that no constant has seen: reasoning answers, composed of clients")
    rows = []
    for may_pause, kind in ((False, "reserves all"), (True, "may pause")):
        engine = lab.engine(may_pause=may_pause)
        for speed in POINTS["reasoning"]:
            best = best_at(lab, lab.case("reasoning", "paced", speed=speed, engine=engine))
            policies = list(dict.fromkeys(["paced", "fcfs", best, tuned(lab, "conversation"), "oracle"]))
            cases = [lab.case("reasoning", p, speed=speed, engine=engine) for p in policies]
            done = dict(zip(policies, lab.run(cases), strict=True))
            for policy, mine in done.items():
                note = " (best of the point)" if policy == best else ""
                rows.append(
                    (
                        kind,
                        f"{speed:g}x, {figures(mine, 'offered_rps')[0]:.1f}/s",
                        f"`{policy}`{note}",
                        spread(figures(mine, "goodput_rps")),
                        spread(figures(mine, "attainment"), ".3f"),
                        spread(figures(mine, "shed_ratio"), ".3f"),
                        spread(figures(mine, "expired_ratio"), ".3f"),
                        f"{sum(figures(mine, 'pauses')) / len(mine):,.0f}",
                    )
                )
            value, text = ratio(figures(done["paced"], "goodput_rps"), figures(done["oracle"], "goodput_rps"))
            what = f"E11 reasoning {speed:g}x, an engine that {kind}: goodput against the oracle"
            out.targets.append(Target(what, ">= 0.85x", text, value >= 0.85))
    out.parts.append(
        "An engine that *reserves all* (TensorRT-LLM's GUARANTEED_NO_EVICT, the default) never stops what runs, so "
        "room for all of 16,384 `max_tokens` is kept for each: for about 85 at once, which use a fifth of it; the "
        "oracle asks for what it will produce and runs about 210. One that *may pause* (MAX_UTILIZATION, "
        "`--capacity-policy`) stops requests when its cache is full and reads them again: `paced` starts what the "
        "lengths learned so far let it expect to fit, the others as many as can begin."
    )
    head = ("engine", "load", "policy", "goodput/s", "attainment", "refused", "expired", "pauses")
    out.parts.append(table(head, rows))
    return out


def mtp_speculation(lab: Lab) -> Outcome:
    """No target was set for it."""
    out = Outcome("Speculation: steps that bring more than one token for each request")
    rows = []
    for drafts in (1, 3):
        engine = lab.engine(draft_tokens=drafts, acceptance=0.8)
        for speed in (2.0, 3.0):
            for policy in ("paced", "fcfs", tuned(lab, "conversation")):
                mine = lab.run([lab.case("conversation", policy, speed=speed, engine=engine)])[0]
                cells = [spread(figures(mine, "goodput_rps")), spread(figures(mine, "attainment"), ".3f")]
                cells += [spread(figures(mine, "tpot_p50_ms"), ".1f"), spread(figures(mine, "tpot_p99_ms"), ".1f")]
                rows.append((f"{drafts}, {speed:g}x", f"`{policy}`", *cells))
    out.parts.append("Conversation; each draft token is accepted with a chance of 0.8 if those before it were.")
    head = ("draft tokens, load", "policy", "goodput/s", "attainment", "TPOT P50 ms", "TPOT P99 ms")
    out.parts.append(table(head, rows))
    return out


def b13_evening(lab: Lab) -> Outcome:
    out = Outcome("B13. The evening case: little load, short prompts and a few very long ones")
    rows = []
    for share in (0.0, 0.03):
        for policy in ("paced", "fcfs", "seed:open", "static:12:3"):
            load = Load(long_share=share, long_tokens=65_536)
            mine = lab.run([lab.case("conversation", policy, speed=0.4, load=load)])[0]
            rows.append(
                (
                    f"{100 * share:g} %",
                    f"`{policy}`",
                    spread(figures(mine, "short_ttft_p99_s")),
                    spread(figures(mine, "itl_p99_ms"), ".0f"),
                    spread(figures(mine, "attainment"), ".3f"),
                )
            )
    out.parts.append("Conversation at 0.4x, with that part of the prompts made 65,536 tokens long.")
    out.parts.append(table(("long prompts", "policy", "TTFT P99 s of short", "P99 gap ms", "attainment"), rows))
    return out


def v6_batches(lab: Lab) -> Outcome:
    out = Outcome("V6. The field guide's own comparison, with ours as the fourth")
    slo = lab.slo("conversation")
    rows_of = lab.trace("conversation", 2).rows(0)
    most = max(row.prompt_tokens + min(row.output_tokens, slo.max_tokens) for row in rows_of)
    used = [row.prompt_tokens + min(row.output_tokens, slo.max_tokens) for row in rows_of]
    paged = 1.0 - sum(used) / sum(64 * -(-each // 64) for each in used)
    lines = []
    for policy, what, waste in (
        ("static:8:600", "batch 8, room for the longest", 1.0 - sum(used) / len(used) / most),
        ("static:16:600", "batch 16, paged", paged),
        ("static:32:600", "batch 32, paged, in flight", paged),
        ("paced", "`paced`", paged),
    ):
        mine = lab.run([lab.case("conversation", policy, speed=2.0)])[0]
        cells = [spread(figures(mine, "goodput_rps")), spread(figures(mine, "output_tokens_per_s"), ".0f")]
        lines.append(
            (
                what,
                *cells,
                spread(figures(mine, "ttft_p99_s"), ".1f"),
                spread(figures(mine, "tpot_p99_ms"), ".1f"),
                f"{100 * waste:.0f} %",
            )
        )
    out.parts.append("Conversation at 2x. Waste is the part of reserved cache that a request never fills.")
    out.parts.append(table(("", "goodput/s", "output tokens/s", "TTFT P99 s", "TPOT P99 ms", "waste"), lines))
    return out
