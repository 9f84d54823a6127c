"""Policies by name, made for the promises of an SLO file, and the oracle that no server can have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from seekserve.errors import InputError
from seekserve_backend.contract.policy import ClassPolicy, PacedOptions, Policy, SeedOptions

from .slo import SloFile

__all__ = ["Candidate", "candidate_for"]

_FOREVER_MS = 2**31 - 1
_PATIENT_MS = 1_000_000
_HINT = "paced, oracle, fcfs, seed, seed:open, static:80:1.5, guide or FILE.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A policy to be simulated."""

    policy: Policy
    knows_lengths: bool = False
    """Its requests ask for exactly what they will produce, and its step model is the plant's own: a ceiling."""

    @property
    def name(self) -> str:
        return self.policy.name


def candidate_for(spec: str, slo: SloFile, *, options: PacedOptions | None = None) -> Candidate:
    """`paced`, `oracle`, `fcfs`, `seed`, `seed:open`, `static:CAP:TIMEOUT_S`, `static:CAP`, or a policy file.

    `fcfs` is an engine left to itself, which is what Triton does by default: everything waits as long as it takes.
    """
    kind, *numbers = spec.split(":")
    paced = Policy(
        name=spec,
        kind="paced",
        default_class=_first_urgent(slo),
        classes=_classes(slo),
        default_max_tokens=slo.max_tokens,
        paced=options or PacedOptions(),
    )
    if spec == "paced":
        return Candidate(policy=paced)
    if spec == "oracle":
        # The estimate is capped by what a request asks for; a margin this wide always meets the cap.
        sure = replace(paced.paced, length_margin=1e9)
        return Candidate(policy=replace(paced, paced=sure), knows_lengths=True)
    if spec == "fcfs":
        same = ClassPolicy(priority=0, max_queue_requests=_FOREVER_MS, deadline_ms=_FOREVER_MS)
        return Candidate(policy=replace(paced, kind="fcfs", classes=dict.fromkeys(slo.classes, same)))
    if kind == "seed" and numbers in ([], ["open"]):
        classes = _classes(slo, timeout_ms=_PATIENT_MS)
        return Candidate(policy=replace(paced, kind="seed", classes=classes, seed=SeedOptions(caps=not numbers)))
    if kind == "static" and 1 <= len(numbers) <= 2:
        return Candidate(policy=_static(paced, slo, spec, numbers))
    from seekserve.repository.policy import read_policy, ready_policies

    if Path(spec).is_file() or spec in ready_policies():
        return Candidate(policy=read_policy(Path(spec), setting="--policy"))
    raise InputError(f"policy {spec!r} is neither known nor a file", hint=_HINT)


def _static(base: Policy, slo: SloFile, spec: str, numbers: list[str]) -> Policy:
    try:
        cap = int(numbers[0])
        timeout_s = float(numbers[1]) if len(numbers) == 2 else None
    except ValueError:
        cap, timeout_s = 0, None
    if cap < 1 or (timeout_s is not None and not 0.0 < timeout_s < 1e6):
        raise InputError(f"policy {spec!r} needs a cap of at least 1 and a queue timeout in seconds", hint=_HINT)
    classes = _classes(slo, timeout_ms=None if timeout_s is None else int(1000.0 * timeout_s))
    return replace(base, kind="static", classes=classes, max_running=cap)


def _first_urgent(slo: SloFile) -> str:
    return next((name for name, rules in slo.classes.items() if not rules.is_offline), next(iter(slo.classes)))


def _classes(slo: SloFile, *, timeout_ms: int | None = None) -> dict[str, ClassPolicy]:
    """`timeout_ms`: the queue timeout of urgent classes, instead of their targets."""
    out = {}
    for place, (name, rules) in enumerate(slo.classes.items()):
        if rules.is_offline:
            deadline_ms, per_token = int(rules.e2e_ms or _FOREVER_MS), 0.0
        elif timeout_ms is not None:
            deadline_ms, per_token = timeout_ms, 0.0
        else:
            deadline_ms, per_token = int(rules.ttft_ms or 1), rules.ttft_ms_per_token
        out[name] = ClassPolicy(
            priority=place,
            max_queue_requests=_FOREVER_MS,
            deadline_ms=deadline_ms,
            deadline_ms_per_token=per_token,
            tpot_slo_ms=rules.tpot_ms,
            is_offline=rules.is_offline,
        )
    return out
