"""Opening a bundle: its description, and whether the files it lists are still there and whole.

Sizes are checked always, content hashes on demand (they read every byte, or the header alone where bundle.json says so:
linked weights of hundreds of GB). All faults are reported together.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from seekserve.errors import BundleError
from seekserve.output import problems_text
from seekserve_backend.contract.bundle import BUNDLE_FILE, Bundle
from seekserve_backend.contract.fields import ContractError

__all__ = ["bundle_faults", "header_sha256_of", "open_bundle", "sha256_of"]

_CHUNK_BYTES = 4 * 1024 * 1024
_MAX_HEADER_BYTES = 100_000_000
"""The safetensors library reads no larger one."""


def open_bundle(folder: Path, *, hashes: bool = False) -> Bundle:
    """Raises BundleError when `folder` is not a whole bundle of this schema."""
    if not folder.is_dir():
        raise BundleError(
            f"bundle {folder}: {'not a folder' if folder.exists() else 'no such folder'}",
            hint="make one with `seekserve build-engine CHECKPOINT --out BUNDLE`",
        )
    try:
        bundle = Bundle.load(folder)
    except FileNotFoundError:
        raise BundleError(
            f"bundle {folder}: no {BUNDLE_FILE} in it, so it is not a bundle",
            hint="make one with `seekserve build-engine CHECKPOINT --out BUNDLE`",
        ) from None
    except ContractError as error:
        raise BundleError(problems_text(f"bundle {folder}: {BUNDLE_FILE}", error.problems)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"bundle {folder}: cannot read {BUNDLE_FILE}: {error}") from error
    faults = bundle_faults(folder, bundle, hashes=hashes)
    if faults:
        raise BundleError(
            problems_text(f"bundle {folder} is damaged", faults),
            hint="build it again with `seekserve build-engine CHECKPOINT --out BUNDLE --force`",
        )
    return bundle


def bundle_faults(folder: Path, bundle: Bundle, *, hashes: bool = False) -> list[str]:
    """One sentence for each listed file that is missing, of another size, or (with `hashes`) of other content."""
    faults = []
    for name, file in bundle.files.items():
        path = folder / name
        if not path.is_file():
            broken = f", a link to {path.readlink()}, which is not there" if path.is_symlink() else ""
            faults.append(f"{name} is missing{broken}")
        elif (size := path.stat().st_size) != file.size_bytes:
            faults.append(f"{name} has {size} bytes where {BUNDLE_FILE} says {file.size_bytes}")
        elif hashes and (digest := _digest(path, file.is_header_hash)) != file.sha256:
            what = "a header with " if file.is_header_hash else ""
            faults.append(f"{name} has {what}sha256 {digest[:12]}... where {BUNDLE_FILE} says {file.sha256[:12]}...")
    return faults


def _digest(path: Path, is_header_hash: bool) -> str:
    return header_sha256_of(path) if is_header_hash else sha256_of(path)


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def header_sha256_of(path: Path) -> str:
    """Of a safetensors file's length field and header: names, shapes, dtypes and offsets of every tensor in it."""
    with path.open("rb") as file:
        length = file.read(8)
        size_bytes = min(int.from_bytes(length, "little"), _MAX_HEADER_BYTES)
        return hashlib.sha256(length + file.read(size_bytes)).hexdigest()
