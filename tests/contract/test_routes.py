"""Routes, class limits and sampling bounds as they are written and read."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from seekserve.repository.policy import read_policy, ready_policies
from seekserve.server.command import FORWARDED_HEADERS
from seekserve_backend.contract.classes import SAMPLING_RANGES, SamplingBound
from seekserve_backend.contract.fields import ContractError
from seekserve_backend.contract.policy import Policy
from seekserve_backend.contract.routes import ROUTE_HEADERS, TYPE_HEADER, Origin, Route
from seekserve_backend.contract.tensors import INPUT_BY_NAME
from seekserve_backend.engines.port import Sampling

LIMITED = {"max_queue_requests": 9, "deadline_ms": 100}


def chat(**limits: Any) -> dict[str, Any]:
    return {"default_class": "chat", "classes": {"chat": {**LIMITED, **limits}}}


def test_a_policy_with_routes_and_limits_survives_writing_and_reading() -> None:
    data = {
        "default_class": "chat",
        "client_class": "bounded",
        "tenant_classes": {"acme": ["bulk", "chat"], "*": ["chat"]},
        "routes": [
            {"class": "bulk", "header": {"X-Request-Type": "offline"}, "tenant": "a*"},
            {"class": "chat", "endpoint": "/v1/*"},
        ],
        "classes": {
            "chat": {**LIMITED, "kv_reserved_share": 0.3, "sampling": {"top_k": {"max": 5, "outside": "refuse"}}},
            "bulk": {**LIMITED, "max_running": 3, "queue_timeout_ms": 50, "max_prompt_tokens": 7},
        },
    }
    policy = Policy.from_data(data, "p")
    assert policy.routes[0].header == {"x-request-type": "offline"}
    assert policy.classes["chat"].sampling == {"top_k": SamplingBound(max=5, outside="refuse")}
    assert Policy.from_data(json.loads(policy.to_json()), "again") == policy


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"routes": [{"class": "offlin"}]}, "did you mean offline?"),
        (
            {"routes": [{"class": "offline", "endpont": "/v1"}]},
            "routes[0].endpont: unknown key (did you mean endpoint?)",
        ),
        ({"routes": [{"class": "offline", "header": {"x-request-typ": "a"}}]}, "did you mean x-request-type?"),
        ({"routes": [{"class": "offline", "header": {"x-tenant": ""}}]}, "an empty value matches requests without"),
        ({"routes": {}}, "routes: expected a list of rules, got dict"),
        (
            {"routes": [{"class": "offline"}, {"class": "offline", "tenant": "a"}]},
            "routes[1]: never reached, routes[0]",
        ),
        ({"client_class": "win"}, "did you mean wins?"),
        ({"tenant_classes": {"a": ["offlin"]}}, "(did you mean offline?)"),
        ({"tenant_classes": {"a": []}}, "tenant_classes.a: expected a list of classes, got []"),
        (chat(sampling={"top_q": {"max": 1}}), "classes.chat.sampling.top_q: unknown key (did you mean top_p?)"),
        (chat(sampling={"top_p": {"max": 3}}), "classes.chat.sampling.top_p.max: expected at most 1.0, got 3"),
        (chat(sampling={"top_p": {}}), "neither min, max nor default"),
        (chat(sampling={"top_p": {"min": 0.9, "max": 0.5}}), "classes.chat.sampling.top_p.min: 0.9 is above max 0.5"),
        (chat(sampling={"top_p": {"min": 0.5, "default": 0.2}}), "default: 0.2 is outside the bounds, at least 0.5"),
        (chat(sampling={"top_p": {"max": 1, "outside": "refus"}}), "did you mean refuse?"),
        (chat(max_promt_tokens=3), "did you mean max_prompt_tokens?"),
        (
            {"default_class": "a", "classes": {n: {**LIMITED, "kv_reserved_share": 0.6} for n in "ab"}},
            "classes: kv_reserved_share adds up to 1.2, there is 1 to share",
        ),
    ],
)
def test_a_fault_is_named_with_what_was_meant(data: dict[str, Any], problem: str) -> None:
    with pytest.raises(ContractError) as caught:
        Policy.from_data(data, "p")
    assert problem in "\n".join(caught.value.problems)


@pytest.mark.parametrize(
    ("route", "origin", "matches"),
    [
        (Route(request_class="c"), Origin(), True),
        (Route(request_class="c", endpoint="/v1/chat"), Origin(endpoint="/v1/chat"), True),
        (Route(request_class="c", endpoint="/v1/chat"), Origin(endpoint="/v1/chat/x"), False),
        (Route(request_class="c", endpoint="/v1/*"), Origin(endpoint="/v1/chat"), True),
        (Route(request_class="c", endpoint="/v1/*"), Origin(), False),
        (Route(request_class="c", tenant="team-*"), Origin(tenant="team-a"), True),
        (Route(request_class="c", header={TYPE_HEADER: "Offline"}), Origin(headers={TYPE_HEADER: "offline"}), True),
        (Route(request_class="c", header={TYPE_HEADER: "offline"}), Origin(), False),
        (Route(request_class="c", tenant="a", endpoint="/e"), Origin(tenant="a", endpoint="/f"), False),
    ],
)
def test_every_condition_of_a_rule_must_hold(route: Route, origin: Origin, matches: bool) -> None:
    assert route.matches(origin) is matches


def test_what_routes_and_bounds_may_name_is_what_arrives() -> None:
    assert all(re.search(FORWARDED_HEADERS, name) for name in ROUTE_HEADERS)
    assert set(SAMPLING_RANGES) <= {field.name for field in dataclasses.fields(Sampling)}
    assert set(SAMPLING_RANGES) <= set(INPUT_BY_NAME)


def test_the_guide_s_rows_are_in_its_policy() -> None:
    assert ready_policies() == ("guide",)
    policy = read_policy(Path("guide"))
    chat, batch, offline = (policy.classes[name] for name in ("chat", "batch", "offline"))
    assert (chat.queue_timeout_ms, chat.max_running, chat.priority, chat.kv_reserved_share) == (50, 12, 0, 0.3)
    assert (batch.queue_timeout_ms, batch.max_running, batch.priority) == (200, 32, 1)
    assert (offline.max_running, offline.max_prompt_tokens) == (32, 2048)
    bounds = {name: rules.sampling["frequency_penalty"] for name, rules in policy.classes.items()}
    assert {name: (bound.min, bound.max) for name, bound in bounds.items()} == {
        "chat": (0.8, 1.2),
        "content": (1.0, 1.5),
        "batch": (None, 1.5),
        "offline": (0.0, 0.0),
    }
