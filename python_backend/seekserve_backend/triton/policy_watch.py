"""Looks at the policy file now and then, and hands over what has changed; a bad file keeps the old policy and says so.

A file is read again when its time or size changed, so a look costs one `stat`. The replaced policy counts one
generation more, which the metrics show.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path

from ..contract.fields import ContractError
from ..contract.policy import Policy

__all__ = ["PolicyWatch"]

_log = logging.getLogger(__name__)


class PolicyWatch:
    def __init__(
        self, path: Path, policy: Policy, *, refusals: Callable[[Policy], list[str]], apply: Callable[[Policy], None]
    ) -> None:
        """`refusals`: what speaks against a policy that is valid in itself; `apply` puts it in force."""
        self._path = path
        self._policy = policy
        self._refusals = refusals
        self._apply = apply
        self._seen = self._stamp()
        self.problem: str | None = None
        """Why the file as it stands is not in force."""

    @property
    def policy(self) -> Policy:
        """The one in force."""
        return self._policy

    def look(self) -> None:
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            policy = Policy.load(self._path)
            problems = self._refusals(policy)
        except (OSError, ContractError, UnicodeDecodeError) as error:
            problems = list(error.problems) if isinstance(error, ContractError) else [str(error)]
        if problems:
            self.problem = "; ".join(problems)
            _log.error("%s is not taken, the policy before it stays in force: %s", self._path, self.problem)
            return
        self.problem = None
        policy = dataclasses.replace(policy, generation=self._policy.generation)
        if policy == self._policy:
            return
        self._policy = dataclasses.replace(policy, generation=policy.generation + 1)
        self._apply(self._policy)
        _log.info("policy %s (%s) is in force, generation %d", policy.name, policy.kind, self._policy.generation)

    def _stamp(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size
