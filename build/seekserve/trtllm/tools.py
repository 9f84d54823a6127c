"""Flags of trtllm-build, of the conversion scripts and of quantize.py, which ended with 1.3.0rc20.

Flags are a mapping of names, with or without `--`, to typed values; a flag without a value is True.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from seekserve.errors import ConfigError

from .case import ModelCase
from .finding import ArgFinding, error, warning
from .tables import Entry, check_entry, table, unknown
from .tool_rules import TOOL_RULES, Flags
from .versions import VersionFacts, resolve_version

__all__ = ["TOOLS", "validate_build_flags"]

TOOLS: Final = (
    "trtllm-build",
    "convert-deepseek-v1",
    "convert-deepseek-v2",
    "convert-qwen",
    "convert-llama",
    "quantize",
)


def validate_build_flags(
    flags: Mapping[str, object],
    version: str | VersionFacts,
    *,
    tool: str = "trtllm-build",
    case: ModelCase | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[ArgFinding]:
    """`case` switches on the rules of precision and GPU; `environment` is what the child process will get."""
    target = resolve_version(version)
    if tool not in TOOLS:
        raise ConfigError(f"{tool!r} is none of the tools that are known", hint=f"one of {', '.join(TOOLS)}")
    if not target.has_tools:
        message = f"does not exist in TensorRT-LLM {target.version}: engines ended with 1.3.0rc20"
        return [error("tool-removed", tool, message, "use --engine trtllm-pytorch, or an earlier version")]
    found: list[ArgFinding] = []
    if target.tools_unverified:
        message = f"unverified for this version ({target.version}): {target.tools_unverified}"
        found.append(warning("tool-unverified", tool, message))
    entries = table("tools", tool)
    given, problems = _normalised(flags, entries)
    found += problems
    for name, value in given.items():
        entry = entries.get(name)
        if entry is None:
            found.append(unknown(name, f"--{name}", entries, tool))
            continue
        found += check_entry(entry, value, f"--{name}")
        if entry.needs_env and value is True and not (environment or {}).get(entry.needs_env):
            message = f"has no effect unless {entry.needs_env} is set in the environment"
            found.append(warning("flag-needs-environment", f"--{name}", message))
    missing = [name for name, entry in entries.items() if entry.is_required and name not in given]
    found += [error("flag-missing", f"--{name}", f"is missing, but {tool} needs it") for name in missing]
    view = Flags(tool=tool, given=given, case=case or ModelCase(), environment=environment or {})
    for rule in TOOL_RULES:
        found += rule(view)
    return [*(each for each in found if each.is_error), *(each for each in found if not each.is_error)]


def _normalised(
    flags: Mapping[str, object], entries: Mapping[str, Entry]
) -> tuple[dict[str, object], list[ArgFinding]]:
    """Without dashes and aliases; a flag that is given under two names with two values is an error."""
    given: dict[str, object] = {}
    problems = []
    for spelling, value in flags.items():
        name = spelling.lstrip("-").replace("-", "_")
        entry = entries.get(name)
        if entry is not None and entry.is_alias:
            use = entry.field.renamed_to
            problems.append(warning("argument-renamed", f"--{name}", "is another spelling", f"write --{use}"))
            name, value = use, _alias_value(name, value)
        if name in given and given[name] != value:
            message = f"is given twice, as {given[name]} and as {value}"
            problems.append(error("flag-twice", f"--{name}", message, "keep one"))
        given[name] = value
    return given, problems


def _alias_value(name: str, value: object) -> object:
    return {"enable": "paged", "disable": "continuous"}.get(str(value), value) if name == "paged_kv_cache" else value
