"""Whether the new bundle may take the place of the old one: what clients rely on stays, and the server can run it.

Each rule returns one sentence or nothing; all are reported together, before anything is changed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from seekserve_backend.contract.bundle import Bundle
from seekserve_backend.contract.fields import ContractError
from seekserve_backend.contract.policy import Policy

from .target import Target

__all__ = ["Allowed", "swap_problems"]

_TOKENIZER = "tokenizer/tokenizer.json"
_NEEDS = {"reference": "transformers", "trtllm-engine": "tensorrt_llm", "trtllm-pytorch": "tensorrt_llm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    other_model: bool = False
    shorter: bool = False
    """A smaller sequence limit."""


def swap_problems(target: Target, allowed: Allowed) -> list[str]:
    return [sentence for rule in _RULES if (sentence := rule(target, allowed)) is not None]


def _another(target: Target, _allowed: Allowed) -> str | None:
    if target.new_dir.resolve() != target.old_dir.resolve():
        return None
    return f"model {target.model.name} serves {target.old_dir} already"


def _family(target: Target, allowed: Allowed) -> str | None:
    old, new = target.old.family, target.new.family
    if old == new or allowed.other_model:
        return None
    return f"the new bundle is of the family {new}, the present one of {old}; --allow-other-model takes it all the same"


def _tokenizer(target: Target, allowed: Allowed) -> str | None:
    """The same text must mean the same tokens, or clients' limits and prices change under them."""
    old, new = target.old.files.get(_TOKENIZER), target.new.files.get(_TOKENIZER)
    if allowed.other_model or old is None or new is None or old.sha256 == new.sha256:
        return None
    return (
        f"its {_TOKENIZER} is another ({new.size_bytes} bytes, sha256 {new.sha256[:12]}...) than the present one "
        f"({old.size_bytes} bytes, {old.sha256[:12]}...); --allow-other-model takes it all the same"
    )


def _engine(target: Target, _allowed: Allowed) -> str | None:
    old, new = target.old, target.new
    package = _NEEDS.get(new.engine)
    if new.engine == old.engine or package is None or importlib.util.find_spec(package) is not None:
        return _version(old, new)
    return f"it needs the {new.engine} engine, whose package {package} is not installed here; now it is {old.engine}"


def _version(old: Bundle, new: Bundle) -> str | None:
    if old.trtllm is None or new.trtllm is None or old.trtllm.version == new.trtllm.version:
        return None
    return (
        f"it was built for TensorRT-LLM {new.trtllm.version}, the server runs {old.trtllm.version}; build it again "
        f"with --trtllm-version {old.trtllm.version}"
    )


def _ranks(target: Target, _allowed: Allowed) -> str | None:
    old, new = target.old.parallel, target.new.parallel
    if old.world_size == new.world_size:
        return None
    return (
        f"it runs on {new.world_size} ranks (tp {new.tp} x pp {new.pp}), the launch was planned for {old.world_size} "
        f"(tp {old.tp} x pp {old.pp}); stop and launch again for another number"
    )


def _limits(target: Target, allowed: Allowed) -> str | None:
    old, new = target.old.limits.max_seq_len_tokens, target.new.limits.max_seq_len_tokens
    if new >= old or allowed.shorter:
        return None
    return f"it takes {new} tokens per request where clients may send {old} now; --force takes it all the same"


def _policy(target: Target, _allowed: Allowed) -> str | None:
    path = target.model.policy_file
    if path is None:
        return f"the config of model {target.model.name} names no policy_file; render it again"
    try:
        Policy.load(path)
    except (ContractError, OSError) as error:
        return f"the policy {path} is not valid: {error}"
    return None


_RULES: tuple[Callable[[Target, Allowed], str | None], ...] = (
    _another,
    _family,
    _tokenizer,
    _engine,
    _ranks,
    _limits,
    _policy,
)
