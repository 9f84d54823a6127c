"""What to do with a folder that stands where the bundle shall go: reuse it, replace it, or leave it alone.

Only a bundle of ours is ever replaced, only when asked for, and only when it holds nothing but its own files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from seekserve.errors import TargetExists
from seekserve.output import files_in, problems_text
from seekserve.plan.bundle import bundle_faults, header_sha256_of, sha256_of
from seekserve_backend.contract.bundle import BUNDLE_FILE, Bundle
from seekserve_backend.contract.fields import ContractError

from .files import FileCopy
from .writer import text_file

__all__ = ["judge_existing", "load_existing"]

_SHOWN = 6


def judge_existing(
    target: Path,
    wanted: Bundle,
    copies: Sequence[FileCopy],
    *,
    force: bool,
    texts: Mapping[str, str] | None = None,
    needs_copies: bool = False,
) -> Bundle | None:
    """The bundle that is there when it can be used as it is; None when it shall be replaced. Raises TargetExists.

    `needs_copies`: links to the weights of somebody else's folder are not enough.
    """
    there = load_existing(target)
    if force:
        _refuse_foreign_files(target, there)
        return None
    faults = bundle_faults(target, there)
    if faults:
        raise TargetExists(problems_text(f"the bundle at {target} is damaged", faults), hint="replace it with --force")
    differences = _differences(there, wanted, copies, texts or {})
    if needs_copies and any((target / copy.target).is_symlink() for copy in copies):
        differences.append("the weights are links there, copies were asked for")
    if differences:
        raise TargetExists(
            problems_text(f"{target} holds a bundle of something else", differences[:_SHOWN]),
            hint="choose another --out, or replace it with --force",
        )
    return there


def load_existing(target: Path) -> Bundle:
    """The bundle in that folder. Raises TargetExists when there is none, or none that this version can read."""
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


def _differences(there: Bundle, wanted: Bundle, copies: Sequence[FileCopy], texts: Mapping[str, str]) -> list[str]:
    """Cheap comparisons first: every byte of the checkpoint is read only when all else is equal."""
    pairs = {
        **{
            name: (getattr(there, name), getattr(wanted, name))
            for name in ("name", "family", "engine", "weights_dtype", "gpu")
        },
        **_pairs("parallel", there.parallel.to_json(), wanted.parallel.to_json()),
        **_pairs("limits", there.limits.to_json(), wanted.limits.to_json()),
        **_pairs("kv_cache", there.kv.to_json(), wanted.kv.to_json()),
        **_trtllm_pairs(there, wanted),
    }
    found = [f"{key} is {old} there, {new} was asked for" for key, (old, new) in pairs.items() if old != new]
    written = {name: text_file(text) for name, text in texts.items()}
    sizes = {name: file.size_bytes for name, file in written.items()}
    sizes |= {copy.target: copy.size_bytes for copy in copies}
    known = {name: file.size_bytes for name, file in there.files.items()}
    found += [f"{name} differs" for name in sorted({*sizes, *known}) if sizes.get(name) != known.get(name)]
    found += [f"{name} differs" for name, file in written.items() if name in known and file != there.files[name]]
    if not found:
        found = [f"{copy.target} differs" for copy in copies if not _is_same(copy, there)]
    return list(dict.fromkeys(found))


def _is_same(copy: FileCopy, there: Bundle) -> bool:
    file = there.files[copy.target]
    return (header_sha256_of if file.is_header_hash else sha256_of)(copy.source) == file.sha256


def _trtllm_pairs(there: Bundle, wanted: Bundle) -> dict[str, tuple[object, object]]:
    if there.trtllm is None or wanted.trtllm is None:
        return {}
    return _pairs("trtllm", there.trtllm.to_json(), wanted.trtllm.to_json())


def _pairs(prefix: str, old: dict[str, object], new: dict[str, object]) -> dict[str, tuple[object, object]]:
    return {f"{prefix}.{key}": (old[key], new[key]) for key in new}
