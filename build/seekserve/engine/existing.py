"""What to do with a folder that stands where the bundle shall go: reuse it, replace it, or leave it alone.

Only a bundle of ours is ever replaced, only when asked for, and only when it holds nothing but its own files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seekserve.errors import TargetExists
from seekserve.output import files_in, problems_text
from seekserve.plan.bundle import bundle_faults, sha256_of
from seekserve_backend.contract.bundle import BUNDLE_FILE, Bundle
from seekserve_backend.contract.fields import ContractError

from .files import FileCopy

__all__ = ["judge_existing"]

_SHOWN = 6


def judge_existing(target: Path, wanted: Bundle, copies: Sequence[FileCopy], *, force: bool) -> Bundle | None:
    """The bundle that is there when it can be used as it is; None when it shall be replaced. Raises TargetExists."""
    there = _load(target)
    if force:
        _refuse_foreign_files(target, there)
        return None
    faults = bundle_faults(target, there)
    if faults:
        raise TargetExists(problems_text(f"the bundle at {target} is damaged", faults), hint="replace it with --force")
    differences = _differences(there, wanted, copies)
    if differences:
        raise TargetExists(
            problems_text(f"{target} holds a bundle of something else", differences[:_SHOWN]),
            hint="choose another --out, or replace it with --force",
        )
    return there


def _load(target: Path) -> Bundle:
    try:
        return Bundle.load(target)
    except (FileNotFoundError, NotADirectoryError):
        raise TargetExists(
            f"{target} exists and is no bundle (no {BUNDLE_FILE} in it)", hint="choose another --out, or move it away"
        ) from None
    except ContractError as error:
        raise TargetExists(
            problems_text(f"{target} holds a bundle that this version cannot read", error.problems),
            hint="choose another --out, or move it away",
        ) from error


def _refuse_foreign_files(target: Path, there: Bundle) -> None:
    foreign = [name for name in files_in(target) if name != BUNDLE_FILE and name not in there.files]
    if foreign:
        raise TargetExists(
            problems_text(f"{target} holds files that are not part of its bundle", foreign[:_SHOWN]),
            hint="move them away first",
        )


def _differences(there: Bundle, wanted: Bundle, copies: Sequence[FileCopy]) -> list[str]:
    """Cheap comparisons first: every byte of the checkpoint is read only when all else is equal."""
    pairs = {
        **{
            name: (getattr(there, name), getattr(wanted, name))
            for name in ("name", "family", "engine", "weights_dtype")
        },
        **_pairs("limits", there.limits.to_json(), wanted.limits.to_json()),
        **_pairs("kv_cache", there.kv.to_json(), wanted.kv.to_json()),
    }
    found = [f"{key} is {old} there, {new} was asked for" for key, (old, new) in pairs.items() if old != new]
    sizes = {copy.target: copy.size_bytes for copy in copies}
    known = {name: file.size_bytes for name, file in there.files.items()}
    found += [f"{name} differs" for name in sorted({*sizes, *known}) if sizes.get(name) != known.get(name)]
    if not found:
        found = [
            f"{copy.target} differs" for copy in copies if sha256_of(copy.source) != there.files[copy.target].sha256
        ]
    return found


def _pairs(prefix: str, old: dict[str, object], new: dict[str, object]) -> dict[str, tuple[object, object]]:
    return {f"{prefix}.{key}": (old[key], new[key]) for key in new}
