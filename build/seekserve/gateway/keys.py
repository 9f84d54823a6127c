"""API keys: who may ask, as which tenant and class, and how often. Only hashes of keys are ever stored or compared.

The file (YAML or JSON; the same text may stand in SEEKSERVE_GATEWAY_KEYS instead) holds

    keys:
      - {name: alice, sha256: 5e88..., tenant: team-a}
      - {name: nightly, sha256: 0f3c..., tenant: team-b, class: offline, requests_per_min: 60, burst_requests: 10}

A key is 256 random bits, so that a plain SHA-256 of it cannot be turned back. Every stored hash is compared, each in
constant time, whichever matches: the answer's delay says nothing about the keys.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seekserve.errors import ConfigError, InputError
from seekserve.output import problems_text
from seekserve_backend.contract.fields import ContractError, Fields

__all__ = ["ENVIRONMENT", "ApiKey", "KeyRing", "RateLimit", "load_keys", "new_key"]

ENVIRONMENT = "SEEKSERVE_GATEWAY_KEYS"
_PREFIX = "sk-seekserve-"
_HASH = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    name: str
    """For logs and metrics; the key itself appears nowhere."""
    sha256: str
    tenant: str
    request_class: str | None = None
    """None: the route or the caller's header decides."""
    requests_per_min: float | None = None
    burst_requests: int = 10


class RateLimit:
    """A token bucket. Pure: time is an argument."""

    def __init__(self, requests_per_min: float, burst_requests: int) -> None:
        self._per_s = requests_per_min / 60.0
        self._most = float(burst_requests)
        self._left = self._most
        self._at_s = 0.0

    def take(self, now_s: float) -> int | None:
        """None when the request may pass, otherwise the milliseconds until the next one may."""
        self._left = min(self._most, self._left + max(0.0, now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._left >= 1.0:
            self._left -= 1.0
            return None
        return int((1.0 - self._left) / self._per_s * 1000.0) + 1


class KeyRing:
    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._keys = tuple(keys)
        self._limits = {
            key.name: RateLimit(key.requests_per_min, key.burst_requests)
            for key in keys
            if key.requests_per_min is not None
        }

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, authorization: str | None) -> ApiKey | None:
        """The key of an `Authorization: Bearer ...` header; None when it is missing or unknown."""
        scheme, _, given = (authorization or "").partition(" ")
        digest = hashlib.sha256(given.strip().encode("utf-8", "surrogateescape")).hexdigest()
        found: ApiKey | None = None
        for key in self._keys:
            if hmac.compare_digest(key.sha256, digest):
                found = key
        return found if scheme.lower() == "bearer" else None

    def wait_ms(self, key: ApiKey, now_s: float) -> int | None:
        """Takes one request out of the key's allowance; how long to wait when there is none left."""
        limit = self._limits.get(key.name)
        return None if limit is None else limit.take(now_s)


def new_key(tenant: str) -> tuple[str, dict[str, str]]:
    """A fresh key, and the entry of the key file that lets it in."""
    key = _PREFIX + secrets.token_urlsafe(32)
    digest = hashlib.sha256(key.encode()).hexdigest()
    return key, {"name": f"{tenant}-{digest[:6]}", "sha256": digest, "tenant": tenant}


def load_keys(path: Path | None, env: Mapping[str, str]) -> KeyRing:
    """From the file, else from the environment, else none. Raises ConfigError with every fault, InputError when both
    are given; the text itself is never in a message."""
    text = env.get(ENVIRONMENT)
    if path is not None and text:
        raise InputError(f"keys are given twice, by --keys {path} and by {ENVIRONMENT}; leave one out")
    if path is None and not text:
        return KeyRing(())
    where = str(path) if path is not None else ENVIRONMENT
    return KeyRing(_read(_parse(path, text or ""), where))


def _parse(path: Path | None, text: str) -> Any:
    if path is not None:
        from seekserve.plan.yaml_file import read_yaml

        return read_yaml(path, setting="--keys")
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"{ENVIRONMENT} is neither YAML nor JSON; its form is that of a --keys file") from None


def _read(data: Any, where: str) -> tuple[ApiKey, ...]:
    try:
        fields = Fields(data, where)
        entries = fields.raw("keys")
        if not isinstance(entries, list) or not entries:
            fields.problem("keys: expected a list of at least one key")
            entries = []
        keys = tuple(_key(fields.nested(f"keys[{n}]", each)) for n, each in enumerate(entries))
        for what, values in (("name", [k.name for k in keys]), ("sha256", [k.sha256 for k in keys])):
            if len(set(values)) < len(values):
                fields.problem(f"keys: two keys have the same {what}")
        fields.done()
    except ContractError as error:
        raise ConfigError(
            problems_text(where, error.problems), hint="`seekserve gateway --new-key TENANT` makes an entry"
        ) from error
    return keys


def _key(entry: Fields) -> ApiKey:
    key = ApiKey(
        name=entry.string("name"),
        sha256=entry.string("sha256").lower(),
        tenant=entry.string("tenant"),
        request_class=entry.opt_string("class"),
        requests_per_min=entry.opt_number("requests_per_min", low=0.001, high=1e6),
        burst_requests=entry.integer("burst_requests", 10, low=1, high=1_000_000),
    )
    if not _HASH.fullmatch(key.sha256):
        entry.problem("sha256: expected 64 hexadecimal digits, the SHA-256 of the key")
    for what, value in (("name", key.name), ("tenant", key.tenant)):
        if not _NAME.fullmatch(value):
            entry.problem(f"{what}: expected 1 to 64 of A-Z, a-z, 0-9, dot, underscore and hyphen")
    entry.done()
    return key
