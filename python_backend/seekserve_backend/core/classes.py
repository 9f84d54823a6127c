"""Which class a request is of, and what its class lets it sample with. Judges and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

from ..contract.classes import ClassPolicy
from ..contract.policy import Policy
from ..contract.refusal import ErrorCode
from ..contract.routes import ANY_TENANT, TYPE_HEADER, Origin
from .refusals import Refusal, Why

__all__ = ["NOWHERE", "bound_sampling", "choose_class"]

NOWHERE = Origin()
BATCH_ENDPOINTS = "/v1/batch/"
_SHOWN_CHARS = 64


def choose_class(policy: Policy, named: str | None, origin: Origin) -> str | Refusal:
    """The class named by the client, bounded by the policy, or the one of the first route that matches.

    The type header names a class too, unless the policy has a rule about that header. An unknown name comes back as it
    is: `Admission.judge_class` refuses it.
    """
    routed = next(
        (route.request_class for route in policy.routes if route.matches(origin)), _batch_class(policy, origin)
    )
    by_header = origin.headers.get(TYPE_HEADER) or None
    if named is None and not any(TYPE_HEADER in route.header for route in policy.routes):
        named = by_header
    if policy.client_class == "ignored":
        named = None
    own = routed or policy.default_class if named is None else _bounded(policy, named, routed)
    allowed = policy.tenant_classes.get(origin.tenant) or policy.tenant_classes.get(ANY_TENANT)
    if allowed is None or own in allowed or own not in policy.classes:
        return own
    if named is None or own != named:
        return allowed[0]
    return Refusal(
        code=ErrorCode.INVALID,
        why=Why.INVALID,
        field="request_class",
        reason=f"request_class {named!r} is not for tenant {origin.tenant[:_SHOWN_CHARS]!r}, who may use "
        f"{', '.join(allowed)}; send one of them, or none",
    )


def _batch_class(policy: Policy, origin: Origin) -> str | None:
    """What comes in as a batch can wait, where no rule says otherwise."""
    if not origin.endpoint.startswith(BATCH_ENDPOINTS):
        return None
    return next((name for name, rules in policy.classes.items() if rules.is_offline), None)


def _bounded(policy: Policy, named: str, routed: str | None) -> str:
    if policy.client_class != "bounded" or named not in policy.classes:
        return named
    most = routed or policy.default_class
    return named if policy.classes[named].priority >= policy.classes[most].priority else most


def bound_sampling(name: str, rules: ClassPolicy, given: Mapping[str, float]) -> Mapping[str, float] | Refusal:
    """What the class sets otherwise than the client did, by parameter; or why it refuses. `given`: what it named."""
    changed: dict[str, float] = {}
    for parameter, bound in rules.sampling.items():
        value = given.get(parameter)
        if value is None:
            if bound.default is not None:
                changed[parameter] = bound.default
        elif not bound.holds(value):
            if bound.outside == "refuse":
                return Refusal(
                    code=ErrorCode.INVALID,
                    why=Why.INVALID,
                    field=parameter,
                    reason=f"{parameter} is {value:g}, class {name} takes {bound.text}",
                )
            changed[parameter] = bound.nearest(value)
    return changed
