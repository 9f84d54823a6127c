"""The policy file: how requests are classed, queued, bounded and refused.

People write YAML, the toolkit validates it and writes this normalised JSON, the backend reads only the JSON. Every
number has its unit in its name and a default that is written once, here. This version knows the policy kind `fifo`:
bounded queues by class, first in first out, expiry, refusal with a computed hint. Other kinds add fields, not meanings.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .fields import ContractError, Fields

__all__ = ["POLICY_FILE", "POLICY_SCHEMA", "ClassPolicy", "Policy"]

POLICY_FILE = "policy.json"
POLICY_SCHEMA = 1
POLICY_KINDS = ("fifo",)
_CLASS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPolicy:
    """One request class. Lower `priority` is served first."""

    priority: int
    max_queue_requests: int
    """Waiting requests of this class; the next one is refused with OVERLOADED."""
    deadline_ms: int
    """Default time from arrival to first token, after which a request expires; a client may ask for less or more."""

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A validated policy. Constructed with defaults only, it is the default policy."""

    name: str = "fifo"
    kind: str = "fifo"
    default_class: str = "interactive"
    classes: Mapping[str, ClassPolicy] = field(
        default_factory=lambda: {
            "interactive": ClassPolicy(priority=0, max_queue_requests=256, deadline_ms=30_000),
            "offline": ClassPolicy(priority=1, max_queue_requests=1024, deadline_ms=600_000),
        }
    )
    bucket_edges_tokens: tuple[int, ...] = (1024, 2048, 4096, 8192, 32768)
    """Upper edges (exclusive) of the length buckets used for bookkeeping; the last bucket is open."""
    max_prompt_bytes: int = 1_048_576
    """Checked before tokenising: longer prompts are refused as TOO_LARGE without being looked at."""
    max_intake_requests: int = 256
    """Requests being tokenised or waiting for it."""
    default_max_tokens: int = 256
    clamp_max_tokens: bool = True
    """True: an asked max_tokens above what the sequence limit leaves is lowered to it; False: it is refused."""
    retry_after_min_ms: int = 500
    retry_after_max_ms: int = 60_000
    generation: int = 0
    """Counts accepted reloads; 0 is the policy read at start."""

    def to_json(self) -> str:
        data: dict[str, object] = {"schema_version": POLICY_SCHEMA}
        for name in self.__slots__:
            if name == "generation":
                continue
            value = getattr(self, name)
            if name == "classes":
                value = {key: cls.to_json() for key, cls in value.items()}
            data[name] = list(value) if isinstance(value, tuple) else value
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_data(cls, data: object, where: str) -> Policy:
        """Reads a decoded YAML or JSON document. Raises ContractError with every fault."""
        base = cls()
        fields = Fields(data, where)
        schema = fields.integer("schema_version", POLICY_SCHEMA)
        if schema != POLICY_SCHEMA:
            raise ContractError(where, [f"schema_version {schema} where this version reads {POLICY_SCHEMA}"])
        classes = _read_classes(fields) if fields.has("classes") else dict(base.classes)
        out = cls(
            name=fields.string("name", base.name),
            kind=fields.string("kind", base.kind, choices=POLICY_KINDS),
            default_class=fields.string("default_class", base.default_class),
            classes=classes,
            bucket_edges_tokens=fields.integers("bucket_edges_tokens", base.bucket_edges_tokens),
            max_prompt_bytes=fields.integer("max_prompt_bytes", base.max_prompt_bytes, low=1, high=_MOST),
            max_intake_requests=fields.integer("max_intake_requests", base.max_intake_requests, low=1, high=_MOST),
            default_max_tokens=fields.integer("default_max_tokens", base.default_max_tokens, low=1, high=_MOST),
            clamp_max_tokens=fields.boolean("clamp_max_tokens", base.clamp_max_tokens),
            retry_after_min_ms=fields.integer("retry_after_min_ms", base.retry_after_min_ms, low=1, high=_MOST),
            retry_after_max_ms=fields.integer("retry_after_max_ms", base.retry_after_max_ms, low=1, high=_MOST),
        )
        if out.default_class not in classes:
            fields.problem(f"default_class: {out.default_class!r} is not one of the classes {', '.join(classes)}")
        edges = out.bucket_edges_tokens
        if any(e < 1 for e in edges) or any(b <= a for a, b in itertools.pairwise(edges)):
            fields.problem(f"bucket_edges_tokens: must be positive and strictly increasing, got {list(edges)}")
        if out.retry_after_min_ms > out.retry_after_max_ms:
            fields.problem(
                f"retry_after_min_ms: {out.retry_after_min_ms} is above retry_after_max_ms {out.retry_after_max_ms}"
            )
        fields.done()
        return out

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Raises FileNotFoundError, or ContractError when the file is not a policy of this schema."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ContractError(str(path), [f"not JSON (line {error.lineno}: {error.msg})"]) from None
        return cls.from_data(data, str(path))


def _read_classes(fields: Fields) -> dict[str, ClassPolicy]:
    reader = fields.child("classes")
    out: dict[str, ClassPolicy] = {}
    for name in fields.mapping("classes", {}):
        entry = reader.child(str(name))
        if not _CLASS_NAME.fullmatch(str(name)):
            reader.problem(f"{name!r}: a class name is 1 to 64 of A-Z, a-z, 0-9, dot, underscore and hyphen")
        out[str(name)] = ClassPolicy(
            priority=entry.integer("priority", 0, low=0, high=1000),
            max_queue_requests=entry.integer("max_queue_requests", low=1, high=_MOST),
            deadline_ms=entry.integer("deadline_ms", low=1, high=_MOST),
        )
        entry.done()
    reader.done()
    if not out:
        fields.problem("classes: at least one class is needed")
    return out
