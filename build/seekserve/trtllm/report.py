"""What each version can do, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterable

from .check import every_path
from .families import families_for
from .schema import ORDER, Snapshot
from .versions import VersionFacts

__all__ = ["unverified_arguments", "versions_json", "versions_text"]

_SHOWN = 8


def versions_json(versions: Iterable[VersionFacts]) -> list[dict[str, object]]:
    return [
        {
            "version": target.version,
            "line": target.name,
            "title": target.title,
            "engine_kinds": list(target.engine_kinds),
            "families": {kind: list(families_for(target, kind)) for kind in target.engine_kinds},
            "command_line_tools": target.has_tools,
            "stock_tensorrt_llm_model": target.has_stock_model,
            "removals": list(target.removals),
            "unverified": list(target.unverified),
            "unverified_arguments": unverified_arguments(target),
            "read": [{"label": state.label, "what": state.text} for state in target.between],
            "source": target.source,
            "confidence": target.confidence,
        }
        for target in versions
    ]


def versions_text(versions: Iterable[VersionFacts], *, is_detailed: bool) -> str:
    return "\n\n".join("\n".join(_lines(target, is_detailed)) for target in versions)


def unverified_arguments(target: VersionFacts) -> list[str]:
    """Paths that one of the states around the version has and the other lacks."""
    return [
        path
        for path, field in every_path()
        if field.present and len({state.has(field.present) for state in target.between}) > 1
    ]


def _lines(target: VersionFacts, is_detailed: bool) -> list[str]:
    lines = [f"TensorRT-LLM {target.title}"]
    lines += [f"  {kind:16}{', '.join(families_for(target, kind)) or 'no family'}" for kind in target.engine_kinds]
    if not target.has_engines:
        lines.append(f"  {'trtllm-engine':16}none; the last version with engines is 1.3.0rc20")
    lines += _block("removed", target.removals)
    paths = unverified_arguments(target)
    notes = [*target.unverified]
    if paths:
        notes.append(f"{len(paths)} arguments that only one of the two states read has: {_some(paths, is_detailed)}")
    lines += _block("unverified", notes)
    lines.append(f"  {'read':16}{'; '.join(state.text for state in _in_order(target))}")
    if is_detailed:
        lines.append(f"  {'source':16}{target.source} (confidence {target.confidence})")
    return lines


def _block(label: str, items: Iterable[str]) -> list[str]:
    return [f"  {label if index == 0 else '':16}{item}" for index, item in enumerate(items)]


def _some(paths: list[str], is_detailed: bool) -> str:
    shown = paths if is_detailed else paths[:_SHOWN]
    return ", ".join(shown) + (", ..." if len(shown) < len(paths) else "")


def _in_order(target: VersionFacts) -> list[Snapshot]:
    return sorted(target.between, key=lambda state: ORDER.index(state.letter))
