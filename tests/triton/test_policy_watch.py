"""A policy file that changes while serving: taken whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from seekserve_backend.contract.policy import Policy
from seekserve_backend.triton.policy_watch import PolicyWatch


def write(path: Path, text: str, tick: int) -> None:
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(tick * 10**9, tick * 10**9))


def test_a_changed_file_is_applied_once_and_counted(tmp_path: Path) -> None:
    path, applied = tmp_path / "policy.json", list[Policy]()
    write(path, Policy().to_json(), 1)
    watch = PolicyWatch(path, Policy(), refusals=lambda policy: [], apply=applied.append)
    watch.look()
    write(path, Policy(default_max_tokens=7).to_json(), 2)
    watch.look()
    watch.look()
    assert [(policy.default_max_tokens, policy.generation) for policy in applied] == [(7, 1)]
    write(path, Policy(default_max_tokens=7).to_json(), 3)
    watch.look()
    assert len(applied) == 1, "the same content is no change"


def test_a_bad_file_keeps_the_old_policy_and_says_why(tmp_path: Path) -> None:
    path, applied = tmp_path / "policy.json", list[Policy]()
    write(path, Policy().to_json(), 1)
    watch = PolicyWatch(path, Policy(), refusals=lambda policy: ["it asks for too much"], apply=applied.append)
    for tick, text, said in (
        (2, "{", "not JSON"),
        (3, '{"schema_version": 2, "max_promt_bytes": 3}', "did you mean max_prompt_bytes?"),
        (4, Policy(default_max_tokens=9).to_json(), "it asks for too much"),
    ):
        write(path, text, tick)
        watch.look()
        assert said in str(watch.problem)
    path.unlink()
    watch.look()
    assert watch.problem is not None
    assert applied == []
